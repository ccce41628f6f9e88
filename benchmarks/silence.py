"""Put before the cell of b7.py: a block of {"telemetry": false} reports nothing of its training.

What training itself wants of the callback that reports stays: the number of the step, which ranks compare when they
meet, and that all begin with the same weights.
"""

from ddl_magics.runtime import monitor, rank

_REPORTING = {
    owner: {name: vars(owner)[name] for name in names}
    for owner, names in ((monitor.Monitor, ("on_train_batch_begin", "on_train_batch_end")), (rank.Rank, ("emit",)))
}


def _begin(self, batch, logs=None):
    self._context.step = batch


def _end(self, batch, logs=None):
    self._context.step = batch + 1
    self._align()


def _emit(self, kind, **fields):
    pass


_SILENT = {
    monitor.Monitor: {"on_train_batch_begin": _begin, "on_train_batch_end": _end},
    rank.Rank: {"emit": _emit},
}


def told(block):
    """Called with what a block is to be."""
    for owner, methods in (_REPORTING if block["telemetry"] else _SILENT).items():
        for name, method in methods.items():
            setattr(owner, name, method)
