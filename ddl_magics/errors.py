"""The error of a run that failed, shown as if its traceback were the notebook's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddl_magics.runtime import events as ev

_RULE = "-" * 75


class DistributedCellError(RuntimeError):
    """A run failed or was lost.

    Attributes:
        run: name of the run.
        rank: rank that failed, -1 where it was the job as a whole.
        host: where that rank ran; may be empty.
        kind: "error" (the cell raised), "exit", "signal", "nan", "diverged", "peer", "lost", "timeout" or "spark".
        message: the cause in one line.
        remote_traceback: the rank's traceback as text; empty where there is none.
    """

    def __init__(self, run: str, failure: Mapping[str, Any]) -> None:
        self.run = run
        self.rank = int(failure.get("rank", ev.JOB))
        self.host = str(failure.get("host") or "")
        self.kind = str(failure.get("kind") or "error")
        self.message = str(failure.get("message") or "no reason was given")
        self.remote_traceback = str(failure.get("traceback") or "").rstrip()
        super().__init__(f"{self.where}: {self.message}")

    @property
    def where(self) -> str:
        """The run and what of it failed: "digits, rank 1 on wn3"."""
        rank = "" if self.rank == ev.JOB else f", rank {self.rank}" + (f" on {self.host}" if self.host else "")
        return f"{self.run}{rank}"

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of the frames of this library, which say nothing about the cell's mistake."""
        heading = f"{type(self).__name__} ({self.where})"
        if not self.remote_traceback:
            return [_RULE, f"{heading}: {self.message}"]
        return [_RULE, heading, *_highlighted(self.remote_traceback).splitlines()]


class CellSyntaxError(Exception):
    """The cell does not compile; shown as IPython shows a SyntaxError, without the frames of the magic."""

    def __init__(self, shell: Any, error: SyntaxError) -> None:
        super().__init__(str(error))
        self._shell = shell
        self._error = error

    def _render_traceback_(self) -> list[str]:
        rendered: list[str] = self._shell.SyntaxTB.structured_traceback(type(self._error), self._error, [])
        return rendered


class RunInterrupted(KeyboardInterrupt):
    """The kernel was interrupted while a cell waited for its run; cells behind it must not start."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


def _highlighted(traceback: str) -> str:
    from IPython.core.getipython import get_ipython
    from pygments import highlight
    from pygments.formatters import TerminalFormatter
    from pygments.lexers import PythonTracebackLexer

    shell = get_ipython()
    if shell is None or str(getattr(shell, "colors", "nocolor")).lower() == "nocolor":
        return traceback
    return str(highlight(traceback, PythonTracebackLexer(), TerminalFormatter())).rstrip()
