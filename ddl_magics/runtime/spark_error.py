"""What a Spark error says, in one line."""

import re

MAX_CHARACTERS = 500

_PYTHON_ERROR = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*(:|$)")
_JAVA_CLASS = re.compile(r"^:?\s*([a-z]\w*\.)+[A-Z]\w*:\s*")


def cause(error):
    """The line of `error` (an exception or its text) that says why: the Python exception's where there is one."""
    lines = [line.strip() for line in str(getattr(error, "java_exception", error)).strip().splitlines()]
    traceback = next((at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line), None)
    if traceback is not None:
        for line in lines[traceback + 1 :]:
            if _PYTHON_ERROR.match(line):
                return line[:MAX_CHARACTERS]
    first = lines[0] if lines else type(error).__name__
    return _JAVA_CLASS.sub("", first)[:MAX_CHARACTERS]
