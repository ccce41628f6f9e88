"""The values of --strategy, and what they differ in."""

from __future__ import annotations

import re

#: Strategies for cells that are written for tf.distribute: TensorFlow's own processes exchange gradients and weights.
TF_ALLREDUCE, TF_PS = TF_DISTRIBUTE = ("tf-allreduce", "tf-ps")
#: Strategies that connect their ranks in a `Collective`: all ranks must run at the same time.
COLLECTIVE = frozenset(("allreduce", "average", TF_ALLREDUCE, TF_PS))
#: Strategies whose workers may come and go: --workers MIN..MAX.
ELASTIC = ("allreduce", "average", "ps")
#: Each rank trains a model of its own.
ENSEMBLE = "ensemble"
#: Strategies that restart a rank that has died while the other ranks train.
RESTARTED_ALONE = frozenset(("ps", ENSEMBLE))
#: Strategies under which a cell cannot call `ddl.allreduce` or `ddl.barrier`.
WITHOUT_CELL_COLLECTIVES = frozenset(("ps", ENSEMBLE, TF_PS))


def problem(strategy: str, cell: str) -> str | None:
    """Why the text of a cell does not suit a strategy, in one line, or None."""
    if strategy not in TF_DISTRIBUTE or re.search(r"\bstrategy\b|tf\.distribute", cell):
        return None
    return (
        "--strategy %s is for cells that are written for tf.distribute, and this one mentions neither `strategy`, "
        "a name that it is given, nor tf.distribute: build the model under strategy.scope(), or use --strategy %s, "
        "which needs no change"
    ) % (strategy, strategy.partition("-")[2])


def names_for_cell(strategy: str, data: object, validation: object) -> tuple[str, ...]:
    """The names that a cell finds defined, by --strategy, --data and --validation."""
    names = ("strategy",) if strategy in TF_DISTRIBUTE else ()
    return ("ddl",) + names + (("dataset",) if data else ()) + (("validation",) if validation else ())


def local_updates(strategy: str, rule: object) -> bool:
    """Whether each rank trains with its own optimizer on its own batches, and synchronizes with the others at times.

    Otherwise all ranks take every step together, with the same gradients. rule: the value of --rule, or None.
    """
    return strategy in ("ps", "average") or (strategy == "allreduce" and rule is not None)
