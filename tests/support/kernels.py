"""A real kernel, asked as a front end asks: with somebody who can click, or as nbclient and papermill do."""

import ast
import os
import re
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from queue import Empty

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

#: For a kernel to answer on a busy machine.
START_SECONDS = 60

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Answer:
    """What a cell gave: printed text, displayed MIME bundles (as last updated), and its error."""

    text: str = ""
    displays: list = field(default_factory=list)
    error: str = ""
    message: str = ""
    traceback: str = ""
    seconds: float = 0.0

    def bundle(self, mime):
        """The first displayed bundle that has this type."""
        return next((data for data in self.displays if mime in data), None)


class Kernel:
    """`run` executes a cell. The kernel's environment is this process's.

    Its sockets are files: a port of TCP could be taken by another process until the kernel has started.

    Args:
        command: the kernel's own, with {connection_file} in it; the default is IPython's in this Python.
        environment: variables besides this process's.
    """

    def __init__(self, command=None, environment=None):
        command = command or [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._sockets = tempfile.TemporaryDirectory(prefix="kernel-")
        self.manager = KernelManager(transport="ipc", ip=os.path.join(self._sockets.name, "s"))
        self.manager._kernel_spec = KernelSpec(argv=list(command), display_name="tests", language="python")
        self.manager.start_kernel(env={**os.environ, **(environment or {})})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=START_SECONDS)
        self._ids = {}

    @property
    def pid(self):
        return self.manager.provisioner.pid

    def run(self, code, clickable=False, timeout=120, interrupt_when=None, interrupt_after=None):
        """Execute a cell.

        Args:
            code: its source.
            clickable: ask as a notebook in a browser does, where the kernel may ask back.
            timeout: seconds until the test is given up.
            interrupt_when: interrupt the kernel when this pattern has been printed.
            interrupt_after: seconds until the kernel is interrupted.
        """
        answer, begun = Answer(), time.monotonic()
        message = self.client.execute(code, allow_stdin=clickable)
        if interrupt_after is not None:
            threading.Timer(interrupt_after, self.manager.interrupt_kernel).start()
        done = False
        while not done:
            left = timeout - (time.monotonic() - begun)
            if left <= 0:
                raise TimeoutError(f"the cell did not end; it printed:\n{answer.text}")
            try:
                reply = self.client.get_iopub_msg(timeout=min(left, 1.0))
            except Empty:
                continue
            if reply["parent_header"].get("msg_id") == message:
                done = self._take(reply["msg_type"], reply["content"], answer)
            elif reply["msg_type"] == "update_display_data":
                self._update(reply["content"])
            if interrupt_when and re.search(interrupt_when, answer.text):
                interrupt_when = None
                threading.Timer(0.2, self.manager.interrupt_kernel).start()
        answer.seconds = time.monotonic() - begun
        answer.traceback = _COLOURS.sub("", answer.traceback)
        return answer

    def value(self, expression, magic="", **how):
        """The value of an expression, which must be of literals; `magic` is the line before it, where there is one.

        What a run that has ended says of its variables may be printed before it.
        """
        answer = self.run(f"{magic}print(repr(({expression})))", **how)
        assert answer.error == "", answer.traceback
        return ast.literal_eval(answer.text.splitlines()[-1])

    def _take(self, kind, content, answer):
        if kind == "stream":
            answer.text += content["text"]
        elif kind in ("display_data", "execute_result"):
            data = dict(content["data"])
            answer.displays.append(data)
            name = content.get("transient", {}).get("display_id")
            if name:
                self._ids[name] = data
        elif kind == "update_display_data":
            self._update(content)
        elif kind == "error":
            answer.error, answer.message = content["ename"], content["evalue"]
            answer.traceback = "\n".join(content["traceback"])
        return kind == "status" and content["execution_state"] == "idle"

    def _update(self, content):
        data = self._ids.get(content["transient"]["display_id"])
        if data is not None:
            data.clear()
            data.update(content["data"])

    def kill(self):
        """End the kernel as a machine does that runs out of memory: it can tell nobody."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()
        self._sockets.cleanup()
