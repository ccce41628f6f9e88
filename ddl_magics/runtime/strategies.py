"""What the strategies differ in, for whoever starts ranks and for the ranks themselves."""

import re

#: Strategies of tf.distribute, for cells that are written for it; the processes exchange what TensorFlow has them to.
TF_ALLREDUCE, TF_PS = NATIVE = ("tf-allreduce", "tf-ps")
#: Strategies whose ranks meet in collectives: all are needed all the time.
COLLECTIVE = frozenset(("allreduce", "average", TF_ALLREDUCE, TF_PS))
#: Each rank trains a model of its own, and meets nobody.
ENSEMBLE = "ensemble"
#: A rank that has died is started again while the others go on.
RESTARTED_ALONE = frozenset(("ps", ENSEMBLE))
#: Ranks never meet each other.
APART = frozenset(("ps", ENSEMBLE, TF_PS))


def problem(strategy, cell):
    """What is wrong with a cell's text for a strategy, in one line, or None."""
    if strategy not in NATIVE or re.search(r"\bstrategy\b|tf\.distribute", cell):
        return None
    return (
        "--strategy %s is for cells that are written for tf.distribute, and this one mentions neither `strategy`, "
        "which it is given, nor tf.distribute: train under strategy.scope(), or use --strategy %s, which needs no "
        "change"
    ) % (strategy, strategy.partition("-")[2])


def given(strategy):
    """Names that the cell is given beside `names.GIVEN`."""
    return ("strategy",) if strategy in NATIVE else ()


def own_steps(strategy, rule):
    """Whether each rank trains on batches of its own, with its own optimizer, and meets the others now and then.

    Else (all-reduce of gradients) all take every step together.
    """
    return strategy in ("ps", "average") or (strategy == "allreduce" and rule is not None)
