"""Errors that the notebook shows; that of a failed run has the remote traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddl_magics.runtime import events as ev

_RULE = "-" * 75


class DistributedCellError(RuntimeError):
    """A run failed or was lost.

    Attributes:
        run: name of the run.
        rank: the rank that failed, or -1 for the job as a whole.
        host: the host of that rank; may be empty.
        kind: "error" (the cell raised), "exit", "signal", "nan", "diverged", "peer", "lost", "stalled" or "spark".
        message: the cause in one line.
        remote_traceback: the rank's traceback as text, or "".
    """

    def __init__(self, run: str, failure: Mapping[str, Any], was_shown: bool = False) -> None:
        """was_shown: the traceback was shown before, so that IPython shows one line."""
        self.run = run
        self._was_shown = was_shown
        self.rank = int(failure.get("rank", ev.JOB))
        self.host = str(failure.get("host") or "")
        self.kind = str(failure.get("kind") or "error")
        self.message = str(failure.get("message") or "no cause was reported")
        self.remote_traceback = str(failure.get("traceback") or "").rstrip()
        super().__init__(f"{self.where}: {self.message}")

    @property
    def where(self) -> str:
        """The run, and the rank that failed: "digits, rank 1 on wn3"."""
        rank = "" if self.rank == ev.JOB else f", rank {self.rank}" + (f" on {self.host}" if self.host else "")
        return f"{self.run}{rank}"

    def _render_traceback_(self) -> list[str]:
        """Shown by IPython instead of this library's frames, which say nothing about the cell's mistake."""
        heading = f"{type(self).__name__} ({self.where})"
        if self._was_shown and self.remote_traceback:
            message = f"{self.message.splitlines()[0] if self.message else ''} (%ddl show {self.run} has the traceback)"
            return [_RULE, f"{heading}: {message}"]
        if not self.remote_traceback:
            return [_RULE, f"{heading}: {self.message}"]
        return [_RULE, heading, *_highlighted(self.remote_traceback).splitlines()]


class InOneLine(Exception):
    """Shown by IPython without a traceback: its frames are this library's, and the line says what to do."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class UnsafeKey(InOneLine, PermissionError):
    """The key that marks what this user's runs have trained may be somebody else's."""


class NotInRun(InOneLine, LookupError):
    """The run has no such model, weights, file or rank."""


class NotInHistory(InOneLine, KeyError):
    """A history has no such metric."""

    def __str__(self) -> str:
        return str(self.args[0])


class NotAKerasFile(InOneLine, ValueError):
    """The path of a model does not end in .keras."""


class CannotScore(InOneLine, ValueError):
    """A model cannot score a DataFrame: a column is missing or of another kind, or the first row has no prediction."""


class CannotWrite(InOneLine, ValueError):
    """A DataFrame cannot be written: a column is of another type, the folder exists, or the storage refuses it."""


class NotInEvaluation(InOneLine, LookupError):
    """An evaluation has no such output, matrix or curve."""


class CannotExport(InOneLine, RuntimeError):
    """A model cannot be exported, or a version of it registered."""


class CannotServe(InOneLine, RuntimeError):
    """A model cannot be served, or no served model has this name."""


class NoAttribute(InOneLine, AttributeError):
    """A run has no such attribute."""


class NoFolder(InOneLine, FileNotFoundError):
    """The folder for a model does not exist."""


class NoPrediction(InOneLine, LookupError):
    """A scaling report has too few measurements for a prediction."""


class NotInstalled(InOneLine, ImportError):
    """A required library is not installed; the message says how to install it."""


class SearchFailed(InOneLine, RuntimeError):
    """A hyperparameter search cannot continue; the message says why. Its trials are kept."""


class CellSyntaxError(Exception):
    """The cell does not compile. Shown as IPython shows a SyntaxError, without the frames of the magic."""

    def __init__(self, shell: Any, error: SyntaxError) -> None:
        super().__init__(str(error))
        self._shell = shell
        self._error = error

    def _render_traceback_(self) -> list[str]:
        rendered: list[str] = self._shell.SyntaxTB.structured_traceback(type(self._error), self._error, [])
        return rendered


class RunInterrupted(KeyboardInterrupt):
    """The kernel was interrupted while a cell waited for its run; the cells after it must not start."""

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
