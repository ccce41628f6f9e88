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
    "a JupyterLab and a Chromium": ("tests/browser/",),
}


def room(nodeid: str) -> str:
    """What the test is told to share, or its file."""
    path = nodeid.partition("::")[0]
    return next((name for name, paths in SHARED.items() if path.startswith(paths)), path)


def priority(item) -> int:
    """Rooms that take longest are begun first, so that no process is left with one of them at the end."""
    if room(item.nodeid) in SHARED:
        return list(SHARED).index(room(item.nodeid))
    return len(SHARED) + (item.get_closest_marker("spark") is None)


class Rooms(LoadScopeScheduling):
    """Gives whoever has nothing left the next room, in the order in which they were collected."""

    def __init__(self, config, log=None):
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return room(nodeid)
