"""Which tests run in one process, one after the other, where `pytest -n` has several processes.

Those of a file, which share what its fixtures set up; and those of several files that share a server.
"""

from xdist.scheduler import LoadScopeScheduling

#: Beginnings of paths, by what their tests share.
SHARED = {
    "a Livy": (
        "tests/livy/",
        "tests/clusters/test_every_cluster.py",
        "tests/clusters/test_livy_",
        "tests/project/test_hdinsight_notebook.py",
        "tests/server/test_stop.py",
    ),
    "a YARN": ("tests/yarn/",),
    "a JupyterLab and a Chromium": ("tests/browser/",),
}


def room(nodeid: str) -> str:
    """What the test is told to share, or its file."""
    path = nodeid.partition("::")[0]
    return next((name for name, paths in SHARED.items() if path.startswith(paths)), path)


#: The first room, and beginnings of the paths of the last ones.
FIRST = "a Livy"
LAST = (
    "tests/browser/",
    "tests/runtime/driver/test_failures.py",
    "tests/runtime/driver/test_live_ports.py",
    "tests/runtime/driver/test_retry.py",
    "tests/runtime/driver/test_stalls.py",
)


def priority(item) -> int:
    """Puts the rooms that keep the processor busy first, and those that often wait last."""
    if room(item.nodeid) == FIRST:
        return 0
    if item.nodeid.startswith(LAST):
        return 3
    return 1 if item.get_closest_marker("spark") or item.get_closest_marker("ranks") else 2


class Rooms(LoadScopeScheduling):
    """Gives a process that has nothing left a room: every other process the next, and the others the last.

    So one that waits for a page, a file or a clock runs beside a Spark, and the longest rooms are begun at once.
    """

    def __init__(self, config, log=None):
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return room(nodeid)

    def _assign_work_unit(self, node) -> None:
        if self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
