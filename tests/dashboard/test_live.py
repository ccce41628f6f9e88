"""The live view's kernel side, with the messages that its widget would send."""

import contextlib
import subprocess
import sys
import threading
import time
from queue import Empty

import pytest
from support.kernels import Kernel
from support.page import FACTS
from support.synthetic import Synthetic

from ddl_magics.dashboard import live
from ddl_magics.dashboard.live import LiveView


@pytest.fixture
def view(monkeypatch):
    """A LiveView of two workers; `view.sent` are its messages, `view.stopped` is set by Stop."""
    stopped = threading.Event()
    made = LiveView(FACTS, stopped.set)
    made.sent = []
    monkeypatch.setattr(made.widget, "send", lambda content, buffers=None: made.sent.append(content["delta"]))
    made.stopped = stopped
    return made


def hello(view):
    view._receive(view.widget, {"type": "hello"}, [])


def test_a_small_run_is_sent_whole_until_a_page_asks(view):
    run = Synthetic(2, epochs=2, steps=40)
    view.feed(run.begin())
    view.feed(run.train(0.1))
    assert [message["full"] for message in view.sent] == [True, True]
    hello(view)
    view.feed([run.log(0, "later\n")])
    assert [message["full"] for message in view.sent] == [True, True, True, False]


def test_a_long_run_is_not_sent_whole_unasked(view):
    run = Synthetic(2, epochs=20, steps=100, step_seconds=0.2)
    view.feed([*run.begin(), *run.train()])
    assert [message["full"] for message in view.sent] == [False]


def test_messages_are_numbered_without_gaps(view):
    run = Synthetic(2, epochs=2, steps=40)
    view.feed(run.begin())
    hello(view)
    view.feed(run.train())
    view.feed(run.end())
    numbers = [message["n"] for message in view.sent]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_end_of_a_run_leaves_nothing_unsent(view):
    run = Synthetic(2, epochs=4, steps=400)
    hello(view)
    view.feed([*run.begin(), *run.train(), *run.fail(1)])
    assert view.sent[1]["state"]["failure"]["rank"] == 1
    sent = {key for message in view.sent for key, *_ in message["series"]}
    assert sent == set(view._history.series)


def test_stop_is_handed_on_without_blocking_the_kernel(view):
    view._receive(view.widget, {"type": "stop"}, [])
    assert view.stopped.wait(5)


@pytest.mark.parametrize(
    "content", ["stop", None, [], {}, {"type": "what"}, {"type": None}, {"type": ["hello"]}, {"type": {}}]
)
def test_other_messages_are_ignored(view, content):
    view._receive(view.widget, content, [])
    assert not view.stopped.is_set() and not view.sent


def test_a_silent_run_is_heard_of(view, monkeypatch):
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.0)
    run = Synthetic(2)
    view.feed(run.begin())
    before = len(view.sent)
    assert view.heartbeat() and len(view.sent) == before + 1
    view.feed(run.end())
    assert not view.heartbeat()


def test_feeding_from_many_threads_loses_nothing(view):
    runs = [Synthetic(2, epochs=1, steps=100, bucket=1) for _ in range(4)]
    hello(view)
    threads = [threading.Thread(target=lambda run=run: [view.feed([e]) for e in run.train()]) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert view._history.workers[0].steps == 400


def test_importing_the_live_view_imports_no_heavy_library():
    heavy = ("tensorflow", "keras", "pyspark", "plotly", "pandas")
    code = "import sys, ddl_magics.dashboard.live, ddl_magics.dashboard.static; "
    code += f"print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


FED_BY_A_THREAD = f"""
import threading, time
from ddl_magics.dashboard.live import LiveView
view = LiveView({FACTS!r}, lambda: None)

def feed():
    while True:
        view.feed([])
        time.sleep(0.1)

threading.Thread(target=feed, daemon=True).start()
print(view.widget.comm.comm_id)
"""


def test_a_page_is_answered_after_one_whose_subshell_was_deleted():
    """A page of JupyterLab has its widgets sent in a subshell, which it deletes, and says hello in another one."""
    kernel = Kernel()
    client = kernel.client

    def subshell(request, **content):
        client.control_channel.send(client.session.msg(f"{request}_subshell_request", content))
        return client.get_control_msg(timeout=30)["content"].get("subshell_id")

    def send(kind, subshell_id, **content):
        message = client.session.msg(kind, content)
        message["header"]["subshell_id"] = subshell_id
        client.shell_channel.send(message)

    def deltas(comm, seconds):
        """What the widget sends within so many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(Empty):
                message = client.get_iopub_msg(timeout=0.5)
                if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == comm:
                    yield message["content"]["data"]["content"]["delta"]

    try:
        comm = kernel.run(FED_BY_A_THREAD).text.strip()
        hello = {"comm_id": comm, "data": {"method": "custom", "content": {"type": "hello"}}}
        send("comm_msg", None, **hello)
        assert any(not delta["full"] for delta in deltas(comm, 20))

        first = subshell("create")
        send("comm_open", first, comm_id="c", target_name="jupyter.widget.control", data={})
        list(deltas(comm, 1))
        subshell("delete", subshell_id=first)
        send("comm_msg", subshell("create"), **hello)
        assert any(delta["full"] for delta in deltas(comm, 20))
    finally:
        kernel.close()
