"""The id of the Spark executor that a process belongs to. Python on executors has no API for it."""

from __future__ import annotations

_OPTION = b"--executor-id"
#: The rank's process, Spark's Python worker, its daemon, the executor's JVM, and room for wrappers.
MAX_ANCESTORS = 10


def executor_of(pid: int) -> str:
    """The id, as Spark's web pages show it, from the command lines of the process and its ancestors.

    Empty where no executor has a process of its own (the master local[n]), and on systems without /proc.
    """
    for _ in range(MAX_ANCESTORS):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
            with open("/proc/%d/stat" % pid, "rb") as file:
                # The second field is the program's name in brackets, which may contain spaces and brackets.
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        if _OPTION in words[:-1]:
            return words[words.index(_OPTION) + 1].decode(errors="replace")
    return ""
