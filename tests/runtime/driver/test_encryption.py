"""--encrypt on a real Spark: who listens between two hosts reads nothing, and the control reads everything."""

import json
import random
import time
import unittest.mock
from types import SimpleNamespace

import numpy as np
import pytest
from chaos import hosts as chaos_hosts
from support import hosts, launch, starts
from support.capture import Capture
from support.paths import KERAS2_PYTHON
from support.processes import output_of

from ddl_magics.runtime.driver import encryption
from ddl_magics.runtime.run_spec import RunSpec

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not hosts.can_be_pretended(), reason="hosts are pretended with root's rights, on Linux"),
]

#: What a run prints, and each number of its gradient, are in nobody else's traffic.
MARK = f"{time.time_ns():x}"
NUMBER = (2 * random.randrange(1 << 12, 1 << 14) + 1) / (1 << 16)  # so few bits that means of it are exact
CELL = f"""
import keras, numpy as np, tensorflow as tf
x = np.full((64, 5000), {NUMBER}, "float32")
model = keras.Sequential([keras.Input((5000,)), keras.layers.Dense(1)])
model.compile("sgd", lambda y, outputs: tf.reduce_mean(outputs))
model.fit(x, x[:, :1], batch_size=32, epochs=3, verbose=0)
print("printed", "{MARK}")
"""
PRINTED = f"printed {MARK}".encode()
#: The gradient, also as a sum over two ranks of which each has half of the rows.
GRADIENTS = [np.full(8, share * np.float32(NUMBER), np.float32).tobytes() for share in (0.5, 1.0, 2.0)]

TLS = b"\x16\x03"


@pytest.fixture(scope="module")
def spark(spark_cluster, tmp_path_factory):
    return spark_cluster(2, hosts.python(tmp_path_factory.mktemp("hosts"), 1))


def seen(spark, **spec):
    """What has travelled while a run was in progress, and the run's end."""
    with Capture() as capture:
        ended = launch.finished(spark, CELL, **spec)
    assert PRINTED.decode() in ended.logs()
    return capture, ended


def test_without_encryption_all_is_read(spark):
    capture, _ = seen(spark)
    assert capture.holds(PRINTED) and any(capture.holds(gradient) for gradient in GRADIENTS)


@pytest.mark.parametrize("strategy", ["allreduce", pytest.param("ps", marks=pytest.mark.slow)])
def test_with_encryption_nothing_is_read(spark, strategy):
    capture, ended = seen(spark, encrypt="yes", strategy=strategy, rule="adag" if strategy == "ps" else None)
    assert sum(map(len, capture.beginning(TLS))) > 100_000
    assert not capture.holds(PRINTED) and not any(capture.holds(gradient) for gradient in GRADIENTS)
    notices = [event["message"] for event in ended.of_kind("notice")]
    assert not [message for message in notices if "keys" in message]  # none has left this machine


@pytest.mark.slow
@pytest.mark.keras2
def test_with_encryption_nothing_is_read_of_keras_2(spark_cluster, tmp_path):
    spark = spark_cluster(2, hosts.python(tmp_path, 1, command=KERAS2_PYTHON))
    capture, _ = seen(spark, encrypt="yes")
    assert sum(map(len, capture.beginning(TLS))) > 100_000
    assert not capture.holds(PRINTED) and not any(capture.holds(gradient) for gradient in GRADIENTS)


#: With these Spark encrypts its own connections.
CRYPTO = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "of the cluster",
    "spark.network.crypto.enabled": "true",
}


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_where_spark_encrypts_no_cell_no_secret_and_no_gradient_is_read_between_hosts(tmp_path, encrypted):
    """Executors are on hosts of their own, and all that one sends and gets is read. Without encryption all is found."""
    settings = {"spark.broadcast.compress": "false", **(CRYPTO if encrypted else {})}
    java = starts.java_home() / "bin" / "java"
    with chaos_hosts.Hosts(2, tmp_path / "hosts", java) as pair, Capture(pair.link(0)) as capture:
        arguments = [pair.driver_address, str(pair.java_home), str(tmp_path), json.dumps(settings), CELL]
        run = json.loads(output_of("support.run_on_hosts", *arguments, timeout=200))
    assert run["state"] == "FINISHED" and PRINTED.decode() in run["logs"], run
    secret = bytes.fromhex(run["secret"])
    told = {
        "cell": capture.holds(CELL.encode().splitlines()[3]),
        "secret": capture.holds(secret) or capture.holds(run["secret"].encode()),
        "printed": capture.holds(PRINTED),
        "gradient": any(capture.holds(gradient) for gradient in GRADIENTS),
    }
    assert told == dict.fromkeys(told, not encrypted)
    assert (sum(map(len, capture.beginning(TLS))) > 100_000) == encrypted


def asked(encrypt, master="yarn", **conf):
    """(whether connections are encrypted, whether their keys are exposed)."""
    named = {name.replace("_", "."): value for name, value in conf.items()}
    sc = SimpleNamespace(master=master, _conf=named)
    with unittest.mock.patch.object(encryption.certificates, "make", lambda sc, run: "made"):
        made = encryption.certificate(sc, RunSpec(run="r", encrypt=encrypt))
    return made is not None, encryption.keys_are_exposed(sc)


def test_connections_are_encrypted_where_sparks_are_or_where_it_is_asked_for():
    assert asked(None) == asked("auto") == asked("auto", spark_ssl_enabled="false") == (False, True)
    assert asked("yes") == asked("auto", spark_ssl_enabled="true") == (True, True)
    assert asked("auto", spark_network_crypto_enabled="true") == (True, False)
    assert asked("no", spark_network_crypto_enabled="true") == (False, False)
    assert asked("yes", master="local-cluster[2,1,1024]") == (True, False)


@pytest.mark.parametrize("strategy", ["tf-allreduce", "tf-ps"])
def test_tensorflows_own_connections_are_refused(spark, strategy):
    ended = launch.run_cell(spark, "strategy.scope()", encrypt="yes", strategy=strategy)
    assert ended.state == "FAILED"
    assert ended.failure["message"] == (
        f"--encrypt yes is set, and TensorFlow's own connections, which --strategy {strategy} uses, cannot be "
        "encrypted: use --strategy allreduce or ps, or --encrypt no"
    )
