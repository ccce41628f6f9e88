"""The variables of cells that have ended, in the notebook: set between two cells, and at `run.wait()`.

Never while a cell runs that does not wait for it: its variables would change below it. With Livy the driver sets them
in the session, in the thread that follows the run: `runs.follower`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, MutableMapping
from typing import Any

from ddl_magics.clusters.base import BroughtBack
from ddl_magics.clusters.cluster import Cluster
from ddl_magics.runs import Run
from ddl_magics.runs.variables import has_variables, told
from ddl_magics.runtime import events as ev

_WORD = re.compile(r"[^\W\d]\w*")


class NotebookVariables:
    """Of one notebook. Its methods are called in the thread that executes cells; in others they do nothing."""

    def __init__(self) -> None:
        self._awaited: dict[str, tuple[Run, Cluster, MutableMapping[str, Any]]] = {}
        self._mentioned: Collection[str] = ()
        #: Name -> why it has not come from the cell that assigns it; of the newest run.
        self.absent: dict[str, str] = {}

    def wait_for(self, run: Run, cluster: Cluster, namespace: MutableMapping[str, Any]) -> None:
        """`run` will bring variables to `namespace`."""
        self._awaited[run.id] = (run, cluster, namespace)
        run.at_wait = lambda: self._bring(run.id, waited=True)

    def before_cell(self, source: str) -> None:
        """A cell is about to be executed: set what runs have brought that have ended meanwhile."""
        self._mentioned = frozenset(_WORD.findall(source))
        for run in list(self._awaited):
            self._bring(run, waited=False)

    def _bring(self, run_id: str, waited: bool) -> None:
        """waited: the cell waits for the run, and plain cells do not say what they assign."""
        entry = self._awaited.get(run_id)
        if entry is None or threading.current_thread() is not threading.main_thread():
            return
        run, cluster, namespace = entry
        if not run.settled(0.0):
            return
        if run.state not in (ev.FINISHED, ev.STOPPED) or not has_variables(run.events):
            del self._awaited[run_id]
            return
        brought = cluster.place(run_id, run.artifacts, self._mentioned, namespace)
        if not brought.waiting:
            del self._awaited[run_id]
        self._note(run.name, brought)
        for line in told(run.name, brought, waited):
            print(f"{run.name}  {line}")

    def _note(self, run: str, brought: BroughtBack) -> None:
        for name in (*brought.placed, *brought.waiting):
            self.absent.pop(name, None)
        for name, why in brought.absent.items():
            self.absent[name] = f"{name} of {run} is not in the notebook: {why}."
