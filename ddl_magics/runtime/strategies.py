"""What the strategies differ in, for whoever starts ranks and for the ranks themselves."""

#: Strategies whose ranks meet in collectives: all are needed all the time.
COLLECTIVE = frozenset(("allreduce", "average"))
#: Each rank trains a model of its own, and meets nobody.
ENSEMBLE = "ensemble"
#: A rank that has died is started again while the others go on.
RESTARTED_ALONE = frozenset(("ps", ENSEMBLE))
#: Ranks never meet each other.
APART = frozenset(("ps", ENSEMBLE))


def own_steps(strategy, rule):
    """Whether each rank trains on batches of its own, with its own optimizer, and meets the others now and then.

    Else (all-reduce of gradients) all take every step together.
    """
    return strategy in ("ps", "average") or (strategy == "allreduce" and rule is not None)
