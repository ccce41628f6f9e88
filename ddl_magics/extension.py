"""`%load_ext ddl_magics`: registers magics, completion and defaults with a shell, and takes them away again."""

from __future__ import annotations

import atexit
from typing import Any

from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.completion import make_matcher
from ddl_magics.magics import VERBS, DistributedMagics
from ddl_magics.session import Session

_ATTRIBUTE = "_ddl_magics"


def load(shell: Any) -> None:
    """Register with `shell`; loading twice changes nothing."""
    if hasattr(shell, _ATTRIBUTE):
        return
    other = shell.magics_manager.magics["cell"].get("distributed")
    session = Session(EmbeddedCluster(lambda: shell.user_ns))
    magics = DistributedMagics(shell, session)
    shell.register_magics(magics)
    matcher = make_matcher(shell.user_ns, VERBS, lambda: [run.name for run in session.runs.values()])
    shell.Completer.custom_matchers.append(matcher)
    atexit.register(session.close)
    setattr(shell, _ATTRIBUTE, (magics, matcher))
    if other is not None:
        package = getattr(other, "__module__", "another extension").partition(".")[0]
        print(f"%%distributed was {package}'s and is ddl_magics' now; %%ddl_distributed is ours in any case.")


def unload(shell: Any) -> None:
    """Take magics and completion away; runs go on until the kernel ends."""
    magics, matcher = getattr(shell, _ATTRIBUTE, (None, None))
    if magics is None:
        return
    for kind in ("line", "cell"):
        for name in ("distributed", "ddl_distributed", "ddl"):
            shell.magics_manager.magics[kind].pop(name, None)
    shell.Completer.custom_matchers.remove(matcher)
    shell.configurables.remove(magics.defaults)
    delattr(shell, _ATTRIBUTE)
