"""The reason in a Spark error, as one line; and calls whose errors do not matter."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Callable

MAX_CHARACTERS = 500

_PYTHON_ERROR = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*(:|$)")
#: What TensorFlow puts around its messages.
_TENSORFLOW = re.compile(r"\{\{function_node .*?\}\}\s*|\s*\[Op:\w+\].*$")
_JAVA_CLASS = re.compile(r"^:?\s*([a-z]\w*\.)+[A-Z]\w*:\s*")
#: What Spark puts before the error of a task.
_OF_TASK = re.compile(r"^Job aborted due to stage failure: .*most recent failure: Lost task \S+ in stage \S+ [^:]*: ")


#: What Spark says of an error in one of its own threads.
_OF_WAITING = re.compile(r"Exception thrown in awaitResult:?\s*$")

#: Where nothing answers Py4J any more.
DRIVER_DIED = "Spark's driver process (Java) has died: restart the kernel, which begins a new session"


def is_of_dead_jvm(error: BaseException) -> bool:
    """Whether Py4J has raised it because no Java answers; other connections break with the same kinds of errors."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    in_py4j = frame is not None and "py4j" in frame.tb_frame.f_globals.get("__name__", "")
    return type(error).__name__ == "Py4JNetworkError" or (isinstance(error, ConnectionError) and in_py4j)


def _innermost(error: BaseException | str) -> str:
    """The first line of the exception of Java that caused the one behind `error`; "" where there is none."""
    exception: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    message = ""
    while exception is not None:
        message, exception = str(exception.toString()), exception.getCause()
    return message.splitlines()[0].strip() if message.strip() else ""


def cause(error: BaseException | str) -> str:
    """The line of `error` that says why: the Python exception's where its text has a Python traceback, else the first.

    At most `MAX_CHARACTERS` long, and without the name of a Java class or of a function of TensorFlow's graph.
    """
    return _TENSORFLOW.sub("", _cause(error))[:MAX_CHARACTERS]


def _cause(error: BaseException | str) -> str:
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return DRIVER_DIED
    lines = [line.strip() for line in str(getattr(error, "java_exception", error)).strip().splitlines()]
    traceback = next((i for i, line in enumerate(lines) if "Traceback (most recent call last)" in line), None)
    if traceback is not None:
        for line in lines[traceback + 1 :]:
            if _PYTHON_ERROR.match(line):
                return line
    message = lines[0] if lines else type(error).__name__
    if "Parquet column cannot be converted" in message:
        message += " Give the column one type in all files: write those of the other type anew"
    if "CSV header" in message:
        message = message.rstrip(":.") + ": give all files one first line, or read each and join them with unionByName"
    if _OF_WAITING.search(message):
        message = _innermost(error) or message
    return _JAVA_CLASS.sub("", _OF_TASK.sub("", _JAVA_CLASS.sub("", message)))


def best_effort(call: Callable[[], object]) -> None:
    """Call Spark to clean up; a context that the user has stopped meanwhile has nothing to clean up."""
    with contextlib.suppress(Exception):  # Py4J raises many kinds
        call()
