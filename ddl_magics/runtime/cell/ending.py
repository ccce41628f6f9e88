"""How a rank's cell ended: an exception of the user's code is reported, and is no crash."""

from __future__ import annotations

import os
import re
import socket
import traceback
from typing import Any, Callable

from ..collectives.announcement import Diverged, PeerLost
from ..rank.rank import Rank
from ..rank_end import Failure, FailureKind, RankEnd
from ..stopping import NotANumber, StopRun
from ..tf_distribute.cluster import is_of_a_peer
from ..wording import without_colours
from . import advice

MAX_MESSAGE_CHARACTERS = 2_000
MAX_TRACEBACK_CHARACTERS = 20_000

#: The name under which the cell's source appears in tracebacks.
CELL_FILE = "<cell>"

#: The folder of this package, with its separator.
_RUNTIME = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")

#: Before the name of an exception of this package, at the end of a traceback.
_OUR_NAMES = re.compile(r"(?m)^%s\.[\w.]*\.(?=\w+(:|$))" % re.escape(__name__.rsplit(".", 2)[0]))

#: Of the trace in a message: frames that are not the cell's, and the empty lines below.
_OTHER_FRAMES = re.compile(r'(?m)^ +File "(?!%s").*\n(?:(?! +File ) *\n| {4,}(?!File ).*\n)*' % CELL_FILE)

#: Frames of a traceback: "File ..." and what is indented below.
_TRACE = re.compile(r'(?m)^ +File ".*\n(?: +.*\n)*')


def observe(run_cell: Callable[[], Any], rank: Rank) -> RankEnd:
    """Call `run_cell`; how it ended."""
    try:
        run_cell()
        return RankEnd("finished")
    except SystemExit as error:
        message = "the cell called sys.exit(%s); let it end instead, or raise an exception"
        return _failed(rank, "exit", message % ("" if error.code is None else repr(error.code)))
    except BaseException as error:
        return of_error(error, rank)


def of_error(error: BaseException, rank: Rank) -> RankEnd:
    """The end of a rank whose cell raised `error`."""
    if is_stop(error, rank):
        return RankEnd("stopped")
    error = _hook_error(error, rank)
    text = _traceback(error)
    if _lost_a_peer(error, rank):
        return _failed(rank, "peer", str(error), text)
    if isinstance(error, Diverged):
        return _failed(rank, "diverged", str(error), text)
    if isinstance(error, NotANumber):  # reported by the rank where it was seen first
        return _failed(rank, "nan" if error.rank == rank.config.rank else "peer", str(error), text)
    message = ": ".join(filter(None, (type(error).__name__, essence(str(error)))))
    return _failed(rank, "error", message, text, advice.of(error, rank.config.spec))


def is_stop(error: BaseException, rank: Rank) -> bool:
    """Whether `error` is how a stop of the run ended the cell: this rank's, or that of a peer that left before it."""
    if isinstance(error, (StopRun, KeyboardInterrupt)):
        return True
    return rank.stop.asked and _lost_a_peer(_hook_error(error, rank), rank)


def _hook_error(error: BaseException, rank: Rank) -> BaseException:
    """What a hook raised, where TensorFlow has wrapped it in words of its own."""
    return rank.errors.first or error


def _lost_a_peer(error: BaseException, rank: Rank) -> bool:
    return isinstance(error, PeerLost) or (rank.cluster is not None and is_of_a_peer(error))


def essence(message: str) -> str:
    """What went wrong in a TensorFlow graph, without the trace of where the graph was made."""
    in_user_code = message.startswith("in user code:")
    if not _is_traced(message):
        return message
    after_trace = _TRACE.split(message)[-1].strip()
    if in_user_code:  # ends in the name of an exception
        return re.sub(r"\A\w+Error: ", "", after_trace) or message
    return re.sub(r"\ANode: .*\n|\s*\[\[(?s:.*)", "", after_trace).strip() or message


def _is_traced(message: str) -> bool:
    """Whether TensorFlow's message has a trace of where the graph was made."""
    return message.startswith(("in user code:", "Graph execution error"))


def _failed(rank: Rank, kind: FailureKind, message: str, text: str = "", what_to_do: str = "") -> RankEnd:
    message = without_colours(message)[:MAX_MESSAGE_CHARACTERS]  # Keras writes parts of some in bold
    message = "%s. %s" % (message.rstrip(". \n"), what_to_do) if what_to_do else message
    return RankEnd("failed", Failure(rank.config.rank, socket.gethostname(), kind, message, without_colours(text)))


def _traceback(error: BaseException) -> str:
    """The traceback from the cell on: how the runtime came to call the cell is of no use to its author."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename != CELL_FILE:
        at = at.tb_next
    report = traceback.TracebackException(type(error), error, at)
    _leave_runtime_out(report)
    text = _OUR_NAMES.sub("", "".join(report.format()))
    message = str(error)
    if _is_traced(message):
        text = text.replace(message, _OTHER_FRAMES.sub("", message))
    return text[-MAX_TRACEBACK_CHARACTERS:]


def _leave_runtime_out(report: traceback.TracebackException) -> None:
    """Remove this package's frames below the cell's: they would look as if the mistake were here."""
    if any(frame.filename == CELL_FILE for frame in report.stack):
        frames = [frame for frame in report.stack if not frame.filename.startswith(_RUNTIME)]
        report.stack = traceback.StackSummary.from_list(frames)
    for cause in (report.__cause__, report.__context__):
        if cause is not None:
            _leave_runtime_out(cause)
