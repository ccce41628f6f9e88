"""`%ddl check`: whether runs can be executed, and on what."""

from __future__ import annotations

from ddl_magics import store
from ddl_magics._version import __version__
from ddl_magics.commands.kernel import Kernel


def check(kernel: Kernel) -> str:
    """A line for each check; nothing is started."""
    findings = kernel.session.cluster.findings()
    lines = [("ddl_magics", __version__), *findings, ("runs", str(store.runs_folder()))]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {finding}" for name, finding in lines)
