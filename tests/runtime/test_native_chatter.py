"""What TensorFlow's C++ side prints as it is loaded, between lines of others on the standard error."""

import os
import subprocess
import sys
import threading

import pytest

from ddl_magics.runtime.native_chatter import left_out

CHATTER = b"""\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795854120.892874    4425 port.cc:153] oneDNN custom operations are on.
E0000 00:00:1795854120.892874    4425 cuda_driver.cc:266] failed call to cuInit: no CUDA-capable device
"""


@pytest.fixture
def without_tensorflow(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)


def test_it_is_left_out_and_all_else_passes(without_tensorflow, capfd):
    with pytest.raises(ZeroDivisionError), left_out():
        os.write(2, b"mine\n" + CHATTER[:100])
        os.write(2, CHATTER[100:] + b"E0000 an error\nhalf")
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b' a line\\n' * 20_000 + b'end')"], check=True)
        1 / 0  # noqa: B018
    os.write(2, CHATTER)
    assert capfd.readouterr().err == "mine\nE0000 an error\nhalf" + " a line\n" * 20_000 + "end" + CHATTER.decode()
    assert not [thread for thread in threading.enumerate() if thread.name == "ddl_magics stderr"]


def test_one_thread_at_a_time_and_none_where_tensorflow_is_loaded(without_tensorflow, capfd, monkeypatch):
    with left_out(), left_out():
        os.write(2, CHATTER)
    monkeypatch.setitem(sys.modules, "tensorflow", os)
    with left_out():
        os.write(2, CHATTER)
    assert capfd.readouterr().err == CHATTER.decode()
