"""What the documents promise: each promise names the tests that show it, and its numbers are those of the code."""

import ast
import re

import pytest
from support.paths import ROOT

from ddl_magics.history import git, notebook_copy
from ddl_magics.runs import follower, live_tracking
from ddl_magics.runtime.driver import executors, silence
from ddl_magics.runtime.executor import stall
from ddl_magics.runtime.monitoring import at_training, counting, drift, reference, watched, windows
from ddl_magics.runtime.provenance import frames, values
from ddl_magics.runtime.training import checkpointing
from ddl_magics.runtime.transport import handshake, link_watch, wire
from ddl_magics.serving import kafka_writer, request_log
from ddl_magics.serving.process import batching
from ddl_magics.store import files

PAGES = ("security", "faults", "how-it-works", "serving", "monitoring", "history")
_TESTED = re.compile(r"<!-- tested by (.*?) -->", re.DOTALL)
#: What makes a sentence a promise.
_PROMISE = re.compile(
    r"\b(never|at most|nobody|no other|not even|refused|rejected|rejects|cannot be (read|loaded|changed|attached)|"
    r"within (an?|\w+ \w+ (an?|of)|\d+) ?\w*|no request|all or nothing)\b"
)
PACKAGE = ROOT / "ddl_magics"


def text_of(page):
    return (ROOT / "docs" / f"{page}.md").read_text()


def blocks(text):
    """The paragraphs, items of lists and rows of tables of a page, each with the comment that follows it."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        parts = re.split(r"\n(?=[-*|]|\d+\. )", paragraph)
        found += [part for part in parts if not re.match(r"\|\s*-|#", part)]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_of_a_promise_are_there(page):
    named = [name for names in _TESTED.findall(text_of(page)) for name in re.split(r",\s+", names.strip())]
    assert named
    for name in named:
        path, _, function = name.partition("::")
        source = (ROOT / "tests" / path).read_text()
        assert re.search(rf"^(async )?def {re.escape(function)}\(", source, re.MULTILINE), f"{page}: no {name}"


@pytest.mark.parametrize("page", PAGES)
def test_a_promise_names_its_tests(page):
    for block in blocks(text_of(page)):
        words = re.sub(r"<!--.*?-->|`[^`]*`", "", block, flags=re.DOTALL)
        assert not _PROMISE.search(words) or _TESTED.search(block), f"{page} promises without a test: {block[:300]}"


MEGABYTES = 2**20
NUMBERS = {
    "security": [
        ("may take 5 seconds in all", handshake.HANDSHAKE_SECONDS == 5),
        ("At most 32 handshakes", wire.HANDSHAKES_AT_ONCE == 32),
    ],
    "faults": [
        ("waits up to two minutes for executors", executors.EXECUTORS_SECONDS == 120),
        ("detected after half a minute without an answer", link_watch.SILENT_SECONDS == 30),
        ("ends it after 20 s without an answer", link_watch.SUPERVISOR_SILENT_SECONDS == 20),
        ("within ten minutes of the run's end", follower.LOST_SECONDS == 600),
        ("that is tried again for ten minutes", follower.LOST_SECONDS == 600),
        ("nothing has come from it for a minute", silence.SILENT_SECONDS == 60),
        ("at most one per second", checkpointing.LEAST_SECONDS == 1),
        ("at most a twentieth of the time", checkpointing.MOST_OF_THE_TIME == 1 / 20),
        ("A state of more than 2 GB is not\nsent", checkpointing.MAX_BYTES == 2 << 30),
        ("is removed by the next one after a day", files.LEFT_SECONDS == 86400),
        (
            "no step for a minute, or for twenty of its median steps",
            (stall.NOTICE_SECONDS, stall.NOTICE_STEPS) == (60, 20),
        ),
    ],
    "serving": [
        ("called with at most 1024 at once", batching.BATCH_ROWS == 1024),
        ("after a minute or 16 MB", (request_log.ROTATE_SECONDS, request_log.ROTATE_BYTES) == (60, 16 * MEGABYTES)),
        ("at most the last second is missing", request_log.FLUSH_SECONDS == 1),
        ("that has not changed for ten minutes", request_log.ORPHAN_SECONDS == 600),
    ],
    "monitoring": [
        ("20,000 rows of all ranks together", at_training.SAMPLE_ROWS == 20_000),
        ("score up to 2,000 rows", at_training.OUTPUT_ROWS == 2_000),
        ("a number of at most 20 values", reference.MAX_VALUES == 20),
        ("the 20 most frequent values", reference.MAX_VALUES == 20),
        ("a vector of at most 256 elements", watched.MAX_ELEMENTS == 256),
        ("At most 512 elements of all inputs", at_training.MAX_WATCHED == 512),
        ("that have 5,000 rows together", windows.ROWS == 5_000),
        ("From 0.1 on it counts as a drift, from 0.25 on", (drift.DRIFT, drift.SEVERE) == (0.1, 0.25)),
        ("one of a million cases", drift.FALSE_ALARM == 1e-6),
        ("With fewer than 200 rows", drift.MIN_ROWS == 200),
        ("eight bins a decade", counting.LATENCY_PER_DECADE == 8),
        ("more than\nfive minutes ahead", counting.AHEAD_SECONDS == 300),
        ("rose by more than a tenth", drift.ERROR_RISE == 1.1),
        ("up to 128 MB", kafka_writer.WAITING_KIB == 128 * 1024),
        ("and for up to ten minutes", kafka_writer.PATIENCE_MS == 600_000),
    ],
    "history": [
        ("up to 256 kB", git.MAX_CHARACTERS == 256 * 1024),
        ("(up to 1 MB)", notebook_copy.MAX_CHARACTERS == MEGABYTES),
        ("Of values above 16 MB, parts are hashed", values.WHOLE_BYTES == 16 * MEGABYTES),
        ("of the first 32 files", frames.MOST_FILES == 32),
        ("about\nonce a second", live_tracking.GATHER_SECONDS == 1),
        ("up to ten minutes after the run's end", live_tracking.LAST_RETRY_SECONDS == 600),
    ],
}


@pytest.mark.parametrize("page", NUMBERS)
def test_the_numbers_of_a_page_are_those_of_the_code(page):
    words = re.sub(r"\s+", " ", text_of(page))
    for text, holds in NUMBERS[page]:
        text = re.sub(r"\s+", " ", text)
        assert text in words, f"docs/{page}.md no longer says {text!r}"
        assert holds, f"docs/{page}.md says {text!r}, and the code has another number"


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.fixture(scope="module")
def package():
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}


def test_arrays_are_read_without_pickle(package):
    loads = [(file, node) for file, tree in package.items() for name, node in calls(tree) if name == "np.load"]
    assert len(loads) > 5
    for file, node in loads:
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        assert options.get("allow_pickle") == "False", f"{file}: {ast.unparse(node)}"


def test_pickle_is_read_where_the_docs_say_so_and_nowhere_else(package):
    """The values that a cell uses and a sample of an evaluation, both in Spark's own channel; Livy's text; bytecode."""
    readers = re.compile(r"(\w+\.)*(pickle|cloudpickle|marshal|dill|joblib|shelve)\.(loads?|Unpickler|open)|eval|exec")
    found = {file for file, tree in package.items() for name, _ in calls(tree) if readers.fullmatch(name)}
    inherited = {
        file
        for file, tree in package.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "pickle.Unpickler" for base in node.bases)
    }
    assert inherited == {"runtime/cell/names.py", "clusters/livy_channel.py"}
    of_ours = {"runtime/data/by_value.py", "runtime/data/tfrecord_folder.py"}  # its sources, on executors
    of_the_cell = {"runtime/cell/execution.py", "runtime/variables/definitions.py"}
    trained_here = {"runtime/lambda_layers.py"}  # of files that this user's runs have trained
    assert found == {"runtime/cell/names.py", "runtime/scoring/evaluator.py"} | of_ours | of_the_cell | trained_here


def test_ports_are_opened_in_these_places_and_none_is_fixed(package):
    """A run's own; those that TensorFlow's servers get; a probe for a served model's. The panel's server opens none."""
    opened = re.compile(r"(\w+\.)*(bind|create_server|HTTPServer|listen|start_server)")
    found = {
        (file, ast.unparse(node))
        for file, tree in package.items()
        for name, node in calls(tree)
        if opened.fullmatch(name) and not name.startswith("inspect.")
    }
    sockets = {file for file, text in found if "socket" in text or "reserved" in text or "probe" in text}
    assert sockets <= {"runtime/transport/wire.py", "runtime/transport/descriptors.py", "serving/launch.py"} | {
        "runtime/tf_distribute/cluster.py"
    }
    assert not [file for file, text in found if file.startswith("server/") and "listen" not in text]
    assert not [text for _, text in found if re.search(r"bind\(\(.*, [1-9]\d*\)\)", text)]
