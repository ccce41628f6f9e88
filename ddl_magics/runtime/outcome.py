"""How a rank's cell ended, as the record that the driver gets: an exception of the user's code is no crash."""

import re
import socket
import traceback

from . import collective
from .rank import StopRun
from .tf_cluster import is_of_a_peer

MAX_MESSAGE_CHARACTERS = 2_000
MAX_TRACEBACK_CHARACTERS = 20_000

#: The name under which the cell's source appears in tracebacks.
CELL_FILE = "<cell>"

#: Frames of a traceback: "File ..." and what is indented below.
_TRACE = re.compile(r'(?m)^ +File ".*\n(?: +.*\n)*')

NAN_ADVICE = "lower the learning rate or clip gradients"


class NotANumber(Exception):
    """A loss or a gradient turned NaN or infinite; `rank` says where it was seen first."""

    def __init__(self, rank, message):
        super().__init__(message)
        self.rank = rank


def observe(run_cell, context):
    """Call `run_cell` and translate what leaves it into the payload of an END frame."""
    try:
        run_cell()
        return {"outcome": "finished", "failure": None}
    except StopRun:
        return {"outcome": "stopped", "failure": None}
    except KeyboardInterrupt:
        return {"outcome": "stopped", "failure": None}
    except SystemExit as error:
        message = "the cell called sys.exit(%s); let it end instead, or raise an exception" % (
            "" if error.code is None else repr(error.code)
        )
        return _failure("exit", message, context)
    except BaseException as error:
        return failed(error, context)


def failed(error, context):
    """The END payload for an exception."""
    if context.error is not None:
        error = context.error  # TensorFlow wraps what a hook raises in words of its own
    of_a_peer = isinstance(error, collective.PeerLost) or (context.cluster is not None and is_of_a_peer(error))
    if context.stop_asked and of_a_peer:
        return {"outcome": "stopped", "failure": None}
    text = _traceback(error)
    if of_a_peer:
        return _failure("peer", str(error), context, text)
    if isinstance(error, collective.Diverged):
        return _failure("diverged", str(error), context, text)
    if isinstance(error, NotANumber):  # told by the rank that brought it, all others only heard of it
        return _failure("nan" if error.rank == context.rank else "peer", str(error), context, text)
    return _failure("error", "%s: %s" % (type(error).__name__, essence(str(error))), context, text)


def essence(message):
    """What went wrong in a TensorFlow graph, without the trace of where the graph was made."""
    made, run = message.startswith("in user code:"), message.startswith("Graph execution error")
    if not made and not run:
        return message
    after_trace = _TRACE.split(message)[-1].strip()
    if made:  # ends in the name of an exception
        return re.sub(r"\A\w+Error: ", "", after_trace) or message
    return re.sub(r"\ANode: .*\n|\s*\[\[(?s:.*)", "", after_trace).strip() or message


def _failure(kind, message, context, text=""):
    message = message[:MAX_MESSAGE_CHARACTERS]
    host = socket.gethostname()
    failure = {"rank": context.rank, "host": host, "kind": kind, "message": message, "traceback": text}
    return {"outcome": "failed", "failure": failure}


def _traceback(error):
    """The traceback from the cell on: how the runtime came to call the cell is of no use to its author."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename != CELL_FILE:
        at = at.tb_next
    lines = traceback.format_exception(type(error), error, at)
    return "".join(lines)[-MAX_TRACEBACK_CHARACTERS:]
