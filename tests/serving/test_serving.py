"""A model served by a real MLServer: its protocols, a new version under load, its log, its end."""

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from IPython.core.error import UsageError
from kafka import rig
from support import served as asking
from support.paths import ROOT
from support.refusals import refusal
from support.stored import with_model
from support.until import until

from ddl_magics import __main__
from ddl_magics.commands import serve as serve_command
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.table import BY_VERB
from ddl_magics.serving.servers import list_served

ROWS = np.random.default_rng(1).normal(size=(5, 3)).astype("float32")
pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("serve_python")]


def small(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(2, "softmax")])


def two_ends():
    """A model with text and numbers, and two outputs."""
    word, size = keras.Input((1,), name="word", dtype="string"), keras.Input((2,), name="size")
    lookup = keras.layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")
    merged = keras.layers.Concatenate()([lookup(word), size])
    outputs = {"kind": keras.layers.Dense(4, "softmax")(merged), "likely": keras.layers.Dense(1)(merged)}
    return keras.Model({"word": word, "size": size}, outputs)


def command(line, run=None):
    def find(word):
        if run is None:
            raise UsageError(f"there is no run {word}.")
        return run

    kernel = Kernel(SimpleNamespace(find=find))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        text = str(BY_VERB["serve"].execute(kernel, line.split()))
    return text, printed.getvalue().splitlines()


@pytest.fixture(scope="module")
def models():
    return [small(seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("requests")


@pytest.fixture(scope="module")
def served(jupyter_data_dir, serve_python, models, log):
    """The server that most tests share."""
    text, told = command(f"digits --log {log}", with_model(models[0]))
    (found,) = list_served()
    unmonitored, starting = told
    assert unmonitored.startswith("%ddl monitor cannot compare the requests: digits has no reference")
    assert starting == "starting MLServer for version 1 of digits"
    assert text.splitlines()[0].startswith(f"digits version 1 is served at {found.url}, gRPC at 127.0.0.1:")
    assert "until this process ends; requests are logged to " in text
    yield found
    asking.end(found)


def predicted(model, rows):
    return np.asarray(model.predict(rows, verbose=0))


def test_the_printed_lines_work(served):
    curl, python = served.how_to_call().splitlines()
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["outputs"][0]["data"]) == 2
    call = f'requests.post("{served.url}/invocations", json={{"inputs": [[0, 0, 0]]}})'
    assert python.strip() == f'import requests; {call}.json()["predictions"]'


def test_the_open_inference_protocol_over_http(served, models):
    status, answer = asking.infer(served, ROWS)
    assert status == 200 and (answer["model_name"], answer["model_version"]) == ("digits", "1")
    (output,) = answer["outputs"]
    assert output["shape"] == [5, 2] and output["datatype"] == "FP32"
    assert np.allclose(np.reshape(output["data"], (5, 2)), predicted(models[0], ROWS), atol=1e-6)
    assert asking.infer(served, ROWS[:1], path="/versions/1")[1]["outputs"][0]["shape"] == [1, 2]
    with urllib.request.urlopen(f"{served.url}/v2/models/digits", timeout=10) as described:
        about = json.loads(described.read())
    assert (about["inputs"][0]["datatype"], about["inputs"][0]["shape"]) == ("FP32", [-1, 3])
    nested = {"inputs": [{"name": "any", "shape": [2, 3], "datatype": "FP64", "data": ROWS[:2].tolist()}]}
    assert asking.post(f"{served.url}/v2/models/digits/infer", nested)[0] == 200


def test_the_open_inference_protocol_over_grpc(served, serve_python, models):
    program = (
        "import sys, json, numpy as np, tritonclient.grpc as grpc\n"
        "client = grpc.InferenceServerClient(sys.argv[1])\n"
        "assert client.is_server_ready() and client.is_model_ready('digits')\n"
        "rows = np.array(json.loads(sys.argv[2]), 'float32')\n"
        "given = grpc.InferInput('input', list(rows.shape), 'FP32'); given.set_data_from_numpy(rows)\n"
        "answer = client.infer('digits', [given])\n"
        "print(json.dumps(answer.as_numpy(answer.get_response().outputs[0].name).tolist()))\n"
        "try: client.unload_model('digits')\n"
        "except grpc.InferenceServerException as error: print(error.message())\n"
    )
    arguments = [serve_python, "-c", program, served.grpc, json.dumps(ROWS.tolist())]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    values, refusal = done.stdout.splitlines()
    assert np.allclose(json.loads(values), predicted(models[0], ROWS), atol=1e-6)
    assert "changes by %ddl serve alone" in refusal


def test_invocations_take_what_mlflow_takes(served, models):
    for body in ({"inputs": ROWS.tolist()}, {"instances": ROWS.tolist()}):
        status, answer = asking.post(f"{served.url}/invocations", body)
        assert status == 200 and np.allclose(answer["predictions"], predicted(models[0], ROWS), atol=1e-6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": ROWS[:, :2].tolist()}, r"takes an array of shape \(rows, 3\) as input '\w+', not \(5, 2\)"),
        ({"inputs": []}, "takes an array of shape"),
        ({"inputs": {"a": [[1, 2, 3]], "b": [[1]]}}, "the model takes .*, not a, b"),
        ({"inputs": [[1, 2, "x"]]}, "input"),
        ({"inputs": [[1, 2, None]]}, "it takes float32"),
        ({"inputs": [[1, 2, 1e39]]}, r"1e\+39 is no float32"),
        ({"inputs": [[1, 2, 3], [1]]}, "input"),
        ({"rows": [[1, 2, 3]]}, "write"),
        (b"{", "the body is no JSON"),
    ],
)
def test_a_bad_request_is_answered_in_one_line(served, body, message):
    before = asking.infer(served, ROWS)[1]["outputs"]
    status, answer = asking.post(f"{served.url}/invocations", body)
    assert status == 400
    assert re.search(message, answer["error"]) and "\n" not in answer["error"]
    assert asking.infer(served, ROWS)[1]["outputs"] == before


def v2(datatype, data, **changes):
    return {"inputs": [{"name": "input", "shape": [1, 3], "datatype": datatype, "data": data, **changes}]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (v2("FP32", [1, 2, 1e39]), r"input input: 1e\+39 is no float32"),
        (v2("FP64", [1, 2, 1e39]), r"input input: 1e\+39 is no float32"),
        (v2("INT32", [1, 2, 2**32 + 3]), "input input: 4294967299 is no int32"),
        (v2("INT32", [1, 2, 1.5]), r"input input: 1\.5 is no int32"),
        (v2("INT32", [1, 2, None]), "input input: "),
        (v2("BOOL", [0, 1, 5]), "input input: 5 is no bool"),
        (v2("UINT64", [1, 2, 2**70]), "input input: "),
        (v2("TEXT", [1, 2, 3]), r"body\.inputs\.0\.datatype: Input should be 'BOOL', "),
        ({"inputs": ROWS.tolist()}, r"body\.inputs\.0: Input should be a valid dictionary"),
        ([1, 2, 3], "body: Input should be a valid dictionary"),
        (b"{", "the body is no JSON: unexpected end of data"),
    ],
)
def test_a_bad_request_of_the_protocol_is_answered_in_one_line(served, body, message):
    status, answer = asking.post(f"{served.url}/v2/models/digits/infer", body)
    assert (status, list(answer)) == (400, ["error"])
    assert re.match(message, answer["error"]) and "\n" not in answer["error"]


def test_nobody_changes_what_is_served_over_the_network(served):
    for path in ("/v2/repository/models/digits/unload", "/v2/repository/models/digits/load", "/v2/repository/index"):
        assert asking.post(served.url + path, {})[0] == 404
    foreign = urllib.request.Request(f"{served.url}/v2/health/ready", headers={"Host": "attacker.example"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(foreign, timeout=10)
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)} - {"127.0.0.1", "::1"}
    for address in addresses:
        for port in (served.settings["http_port"], served.settings["grpc_port"]):
            with pytest.raises(OSError):
                socket.create_connection((address, port), timeout=2).close()
    assert served.folder.stat().st_mode & 0o777 == 0o700


def test_requests_rates_latencies_and_errors_are_counted(served):
    before = served.read(served.folder).status
    with asking.Load(served, ROWS, threads=2):
        time.sleep(2)
    asking.post(f"{served.url}/invocations", b"{")
    until(lambda: served.read(served.folder).status["errors"] > before["errors"], 10)
    now = served.read(served.folder).status
    assert now["requests"] - before["requests"] > 10 and now["rate"] > 0 and len(now["rates"]) == 59
    latency = now["latency"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"]
    line = str(serve_command.serving(None))
    assert line.startswith("digits  version 1  http://127.0.0.1:") and "requests/s" in line and "p95" in line


def test_a_new_version_takes_over_under_load_without_a_failed_request(served, models):
    expected = {
        number: predicted(model, ROWS[:1])[0] for number, model in zip("123", [*models, models[0]], strict=True)
    }
    with asking.Load(served, ROWS[:1]) as load:
        for number, model in (("2", models[1]), ("3", models[0])):
            text, told = command("digits", with_model(model))
            assert text.startswith(f"digits version {number} is served at {served.url}")
            assert told == [f"loading version {number} of digits; version {int(number) - 1} serves meanwhile"]
            asked = len(load.answers)
            until(lambda asked=asked: len(load.answers) > asked + 20, 20)
    assert {status for status, _, _ in load.answers} == {200}
    assert [answer[1] for answer in load.answers if answer[1] == "3"], "the last one has taken over"
    for _, version, values in load.answers:
        assert np.allclose(values, expected[version], atol=1e-6), "a version answers with its own model"
    assert asking.infer(served, ROWS, path="/versions/1")[0] == 404
    assert served.read(served.folder).version == "3"


def test_a_version_that_cannot_be_loaded_changes_nothing(served, tmp_path):
    folder = with_model(small(4)).export(tmp_path / "bad", "keras")
    (folder / "model.keras").write_bytes(b"no model")
    with pytest.raises(UsageError, match="version 4 of digits cannot be served, and 3 is: "):
        command(f"{folder} --name digits")
    assert asking.infer(served, ROWS)[1]["model_version"] == "3"
    with pytest.raises(UsageError, match="is served already, with another --port: %ddl serve --stop digits first"):
        command("digits --port 1", with_model(small(4)))


def test_each_request_is_in_the_log_once(served, log):
    """After all of the above, and with the server's end."""
    until(lambda: served.read(served.folder).status["rate"] == 0, 20)
    status = served.read(served.folder).status
    text, _ = command("--stop digits")
    assert text == "digits is not served any more" and not served.folder.exists() and not served.alive
    lines = [json.loads(line) for path in log.iterdir() for line in path.read_text().splitlines()]
    assert not [path for path in log.iterdir() if path.name.startswith(".")]
    assert len(lines) == status["requests"] and len({line["id"] for line in lines}) == len(lines)
    assert {line["version"] for line in lines} == {"1", "2", "3"}
    assert sum(line["error"] is not None for line in lines) == status["errors"]
    good = next(line for line in lines if line["error"] is None and line["rows"] == 5)
    (inputs,), (outputs,) = good["inputs"].values(), good["outputs"].values()
    assert np.allclose(inputs, ROWS) and np.shape(outputs) == (5, 2)
    assert 0 < good["latency"] < 30 and abs(good["time"] - time.time()) < 600
    bad = next(line for line in lines if line["error"] is not None)
    assert bad["outputs"] is None and bad["rows"] == 0


@pytest.mark.slow
def test_requests_are_logged_in_a_topic_of_kafka():
    from confluent_kafka import Consumer

    broker = rig.start()
    try:
        uri = f"kafka://{broker.address}/requests"
        command(f"topical --log {uri}", with_model(small(6), "topical"))
        (served,) = list_served()
        sent = {asking.infer(served, ROWS)[1]["id"] for _ in range(5)}
        command("--stop topical")
        reader = Consumer({"bootstrap.servers": broker.address, "group.id": "tests", "auto.offset.reset": "earliest"})
        reader.subscribe(["requests"])
        found = []
        until(lambda: (found.append(reader.poll(1.0)) or len([each for each in found if each])) >= 5, 60)
        reader.close()
        assert {json.loads(message.value())["id"] for message in found if message} == sent
    finally:
        broker.stop()


def test_a_detached_server_outlives_its_process_and_a_registry_names_its_version(tmp_path):
    """Text, two inputs and two outputs; started from the command line; then killed."""
    run = with_model(two_ends(), "words")
    run.register("words", tmp_path, "saved_model")
    assert run.register("words", tmp_path, "keras", alias="champion") == 2
    log = tmp_path / "log"
    line = [f"{tmp_path}/words@champion", "--detached", "--log", log, "--log-inputs", "no", "--log-sample", "0.5"]
    arguments = [sys.executable, "-m", "ddl_magics", "serve", "--json", *map(str, line)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    (served,) = list_served()
    answer = {"name": "words", "version": "2", "url": served.url, "grpc": served.grpc}
    assert json.loads(done.stdout) == {**answer, "detached": True, "log": str(log)}
    assert "starting MLServer for version 2 of words" in done.stderr
    try:
        given = {"word": [["b"], ["x"]], "size": [[1.0, 2.0], [0.5, 0.25]]}
        found = asking.post(f"{served.url}/invocations", {"inputs": given})[1]["predictions"]
        expected = run.model()({"word": tf.constant(given["word"]), "size": tf.constant(given["size"])})
        for name, values in expected.items():
            assert np.allclose(found[name], values, atol=1e-5)
        rows = [{"word": [word], "size": size} for (word,), size in zip(given["word"], given["size"], strict=True)]
        assert asking.post(f"{served.url}/invocations", {"instances": rows})[1]["predictions"] == found
        for _ in range(40):
            asking.post(f"{served.url}/invocations", {"inputs": given})
        assert command(f"{tmp_path}/words@1")[0].startswith("words version 1 is served"), (
            "an older one, of another format"
        )
        again = asking.post(f"{served.url}/invocations", {"inputs": given})[1]["predictions"]
        assert np.allclose(again["kind"], found["kind"], atol=1e-5)
        until(lambda: any(path.stat().st_size for path in log.iterdir()), 10)
        os.kill(served.owner["pid"], signal.SIGKILL)
        until(lambda: not served.alive, 10)
        assert "is not served any more: " in str(serve_command.serving(None))
        text, _ = command(f"{tmp_path}/words@champion --log {log}")
        assert text.startswith("words version 2 is served"), "the name is free again"
    finally:
        for each in list_served():
            asking.end(each)
    lines = [json.loads(line) for path in log.iterdir() for line in path.read_text().splitlines()]
    assert 5 < len(lines) < 40 and {line["inputs"] for line in lines} == {None}


@pytest.mark.slow
def test_a_server_ends_with_its_process():
    program = (
        "import sys; from ddl_magics import Run; from ddl_magics.store import find_run\n"
        "served = Run.stored(find_run(sys.argv[1])).serve('short')\n"
        "print(served.url, flush=True); sys.stdin.read()"
    )
    run = with_model(small(5))
    arguments = [sys.executable, "-c", program, run.id]
    process = subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert any("http://" in line for line in iter(process.stdout.readline, ""))
        (served,) = [each for each in list_served() if each.name == "short"]
        assert served.alive
    finally:
        process.kill()
        process.wait()
    until(lambda: not served.alive, 30)
    assert list_served() == [], "it has ended as it should"


@pytest.mark.slow
def test_a_layer_of_the_notebooks_own_is_served_as_a_saved_model(tmp_path):
    """Its code is not in MLServer's environment: that is told, with the way out."""

    @keras.saving.register_keras_serializable("notebook")
    class Doubled(keras.layers.Layer):
        def call(self, given):
            return 2 * given

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), Doubled()])
    run = with_model(model, "doubled")
    with pytest.raises(UsageError, match=r"doubled is not served: Keras .*Doubled.*serve run\.export"):
        command("doubled", run)
    exported = run.export(tmp_path / "doubled", "saved_model", custom_objects={"Doubled": Doubled})
    try:
        text, _ = command(f"{exported} --name doubled")
        assert text.startswith("doubled version 1 is served")
        (served,) = list_served()
        found = asking.post(f"{served.url}/invocations", {"inputs": ROWS.tolist()})[1]["predictions"]
        assert np.allclose(found, predicted(model, ROWS), atol=1e-5)
    finally:
        for each in list_served():
            asking.end(each)


def test_an_export_of_another_format_is_refused(tmp_path):
    run = with_model(small(6))
    folder = run.export(tmp_path / "export", "litert")
    with pytest.raises(UsageError, match="litert cannot be served"):
        command(str(folder))
    assert list_served() == []


def test_a_taken_port_is_told(models):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match=r"port \d+ cannot be used .*: choose another --port"):
            command(f"digits --port {taken.getsockname()[1]}", with_model(models[0]))
    assert list_served() == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "write: %ddl serve RUN"),
        ("a b", "write: %ddl serve RUN"),
        ("a --prot 1", "has no option --prot. Did you mean --port"),
        ("a --port x", "--port must be a number from 1 to 65535, not 'x'"),
        ("a --port", "--port needs a value"),
        ("a --log-inputs maybe", "--log-inputs must be yes or no, not 'maybe'"),
        ("a --log kafka://host:9092", "--log: write the log's topic as kafka://HOST:PORT/TOPIC, not kafka://host:9092"),
        ("a --log kafka://u:p@host:9092/t", "--log: leave user and password out of the log's address"),
        ("a --log kafka://u:p@host:9092/t/u", "--log: leave user and password out of the log's address"),
        ("a --log kafka:u:p@host", "--log: leave user and password out of the log's address"),
        ("a --log-sample 0", "--log-sample must be a share above 0, up to 1, not '0'"),
        ("a --to kserv x", "--to must be kserve or azureml, not kserv. Did you mean kserve"),
        ("a --to kserve x --port 1", "--to writes files and serves nothing"),
        ("--stop a --port 1", "write: %ddl serve RUN"),
        ("--stop a", "no model a is served. %ddl serving lists them"),
        ("a", "there is no run a"),
    ],
)
def test_a_mistake_is_told_in_one_line(line, message):
    assert message in refusal(command, line)


def test_the_command_line_tells_a_mistake_without_a_traceback(capsys):
    assert __main__.main(["serve", "nothing"]) == 1
    assert "there is no run nothing." in capsys.readouterr().err
    assert __main__.main(["serving"]) == 0
    assert "no model is served" in capsys.readouterr().out
