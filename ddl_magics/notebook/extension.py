"""`%load_ext ddl_magics`: registers magics, completion and defaults with a shell, and removes them again."""

from __future__ import annotations

import ast
import atexit
import difflib
import re
from collections.abc import Callable
from typing import Any

from IPython.core.getipython import get_ipython

from ddl_magics.clusters import shipping
from ddl_magics.clusters.choice import Choice
from ddl_magics.notebook.completion import make_matcher
from ddl_magics.notebook.display import Cards
from ddl_magics.notebook.hints import after_cells, before_cells
from ddl_magics.notebook.magics import DistributedMagics
from ddl_magics.runs import Run
from ddl_magics.session.session import Session

_ATTRIBUTE = "_ddl_magics"

#: Minimum similarity of a misspelt magic to %%distributed, from 0 to 1.
MIN_SIMILARITY = 0.8

#: `%%distributed --help` with nothing below it: IPython refuses cell magics without a cell.
_HELP_ALONE = re.compile(r"\s*%(%(ddl_)?distributed\s.*(--help|-h)\b.*)\s*", re.DOTALL)


#: The first line of a %%distributed cell, and of a cell of any magic.
_MAGIC = re.compile(r"%%(ddl_)?distributed\b")
_ANY_MAGIC = re.compile(r"%%(\w+)")


def _transform_cell(lines: list[str]) -> list[str]:
    """Input transformer for cells that IPython would refuse with a misleading hint before the magic runs.

    A cell with only `%%distributed --help` becomes the line magic, which prints the help. A cell with nothing below the
    magic gets an empty line. Blanks before the magic are removed. A cell with code above the magic, or with a misspelt
    magic, becomes the line magic, whose error says what to do.
    """
    start = next((i for i, line in enumerate(lines) if line.strip()), None)
    if start is not None and _MAGIC.match(lines[start].lstrip()):
        lines = [lines[start].lstrip(), *lines[start + 1 :]]
    written = [line for line in lines if line.strip()]
    misspelt = _misspelt(written[0]) if written else None
    if misspelt:
        return [f"%distributed {misspelt}\n"]
    if len(written) == 1:
        match = _HELP_ALONE.fullmatch("".join(lines))
        if match:
            return [match[1]]
        return [written[0].rstrip() + "\n", "\n"] if _MAGIC.match(written[0]) else lines
    if written and not written[0].startswith("%%"):
        at = next((i for i, line in enumerate(lines) if _MAGIC.match(line)), None)
        if at is not None and _complete(lines[:at]):
            return ["%distributed\n"]
    return lines


def _misspelt(line: str) -> str | None:
    """The magic of a cell's first line, if it does not exist and resembles %%distributed: "%%distribute"."""
    match, shell = _ANY_MAGIC.match(line), get_ipython()
    if match is None or shell is None or match[1] in shell.magics_manager.magics["cell"]:
        return None
    matches = difflib.get_close_matches(match[1].lower(), ("distributed",), cutoff=MIN_SIMILARITY)
    return match[0] if matches else None


def _complete(lines: list[str]) -> bool:
    """Whether these lines are complete statements: then the next line is not inside a string."""
    try:
        ast.parse("".join("\n" if line.lstrip()[:1] in ("%", "!") else line for line in lines))
    except SyntaxError:
        return False
    return True


def load(shell: Any) -> None:
    """Register with `shell`; loading twice changes nothing."""
    if hasattr(shell, _ATTRIBUTE):
        return
    replaced = shell.magics_manager.magics["cell"].get("distributed")
    choice = Choice(shell)
    session = Session(None, choice.cluster)
    magics = DistributedMagics(shell, session, choice)
    shell.register_magics(magics)
    matcher = make_matcher(shell.user_ns, session.names)
    shell.Completer.custom_matchers.append(matcher)
    cards = Cards(shell, lambda run: run in session.live())
    shell.display_formatter.ipython_display_formatter.for_type(Run, cards.show)
    shell.input_transformers_cleanup.append(_transform_cell)
    hint = after_cells(session)
    shell.events.register("post_run_cell", hint)
    variables = before_cells(session)
    shell.events.register("pre_run_cell", variables)

    def close() -> None:
        session.close()
        choice.close()

    atexit.register(close)
    _close_before_shutdown(shell, close)
    setattr(shell, _ATTRIBUTE, (magics, matcher, hint, cards, variables))
    if replaced is not None:
        package = getattr(replaced, "__module__", "another extension").partition(".")[0]
        print(
            f"%%distributed is the magic of ddl_magics now, no longer that of {package}; %%ddl_distributed is another "
            "name for it."
        )


def _close_before_shutdown(shell: Any, close: Callable[[], None]) -> None:
    """Close before ipykernel ends the kernel's child processes: without Spark, the runs would seem to fail.

    ipykernel does so before `atexit`.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return
    shutdown = kernel.do_shutdown

    def do_shutdown(restart: bool) -> Any:
        close()
        # A kernel whose child processes end slowly is killed before `atexit`.
        shipping.clear()
        return shutdown(restart)

    kernel.do_shutdown = do_shutdown


def unload(shell: Any) -> None:
    """Remove magics and completion; runs continue until the kernel ends."""
    magics, matcher, hint, _, variables = getattr(shell, _ATTRIBUTE, (None,) * 5)
    if magics is None:
        return
    for kind in ("line", "cell"):
        for name in ("distributed", "ddl_distributed", "ddl"):
            shell.magics_manager.magics[kind].pop(name, None)
    shell.Completer.custom_matchers.remove(matcher)
    shell.display_formatter.ipython_display_formatter.pop(Run, None)
    shell.input_transformers_cleanup.remove(_transform_cell)
    shell.events.unregister("post_run_cell", hint)
    shell.events.unregister("pre_run_cell", variables)
    for configurable in (magics.defaults, magics.store):
        shell.configurables.remove(configurable)
    delattr(shell, _ATTRIBUTE)
