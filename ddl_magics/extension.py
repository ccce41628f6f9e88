"""`%load_ext ddl_magics`: registers magics, completion and defaults with a shell, and takes them away again."""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable
from typing import Any

from ddl_magics.clusters import shipping
from ddl_magics.clusters.choice import Choice
from ddl_magics.completion import make_matcher
from ddl_magics.magics import VERBS, DistributedMagics
from ddl_magics.session import Session

_ATTRIBUTE = "_ddl_magics"


#: `%%distributed --help` and nothing below: IPython refuses cell magics without a cell.
_HELP_ALONE = re.compile(r"\s*%(%(ddl_)?distributed\s.*(--help|-h)\b.*)\s*", re.DOTALL)


def _help_as_line(lines: list[str]) -> list[str]:
    """An input transformer of IPython's: asks the line magic for the help that a lone first line wants."""
    alone = _HELP_ALONE.fullmatch("".join(lines)) if sum(bool(line.strip()) for line in lines) == 1 else None
    return [alone[1]] if alone else lines


def load(shell: Any) -> None:
    """Register with `shell`; loading twice changes nothing."""
    if hasattr(shell, _ATTRIBUTE):
        return
    other = shell.magics_manager.magics["cell"].get("distributed")
    choice = Choice(shell)
    session = Session(None, choice.cluster)
    magics = DistributedMagics(shell, session, choice)
    shell.register_magics(magics)
    matcher = make_matcher(shell.user_ns, VERBS, lambda: [run.name for run in session.runs.values()])
    shell.Completer.custom_matchers.append(matcher)
    shell.input_transformers_cleanup.append(_help_as_line)

    def close() -> None:
        session.close()
        choice.close()

    atexit.register(close)
    _close_before_shutdown(shell, close)
    setattr(shell, _ATTRIBUTE, (magics, matcher))
    if other is not None:
        package = getattr(other, "__module__", "another extension").partition(".")[0]
        print(f"%%distributed was {package}'s and is ddl_magics' now; %%ddl_distributed is ours in any case.")


def _close_before_shutdown(shell: Any, close: Callable[[], None]) -> None:
    """ipykernel ends the kernel's child processes, Spark among them, before `atexit`: its runs would seem to fail."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return
    shutdown = kernel.do_shutdown

    def do_shutdown(restart: bool) -> Any:
        close()
        # A kernel whose children take their time is killed before `atexit`.
        shipping.clear()
        return shutdown(restart)

    kernel.do_shutdown = do_shutdown


def unload(shell: Any) -> None:
    """Take magics and completion away; runs go on until the kernel ends."""
    magics, matcher = getattr(shell, _ATTRIBUTE, (None, None))
    if magics is None:
        return
    for kind in ("line", "cell"):
        for name in ("distributed", "ddl_distributed", "ddl"):
            shell.magics_manager.magics[kind].pop(name, None)
    shell.Completer.custom_matchers.remove(matcher)
    shell.input_transformers_cleanup.remove(_help_as_line)
    shell.configurables.remove(magics.defaults)
    delattr(shell, _ATTRIBUTE)
