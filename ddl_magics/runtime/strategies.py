"""What the strategies differ in, for whoever starts ranks and for the ranks themselves."""

#: Strategies whose ranks meet in collectives: all are needed all the time.
COLLECTIVE = frozenset(("allreduce", "average"))


def own_steps(strategy, rule):
    """Whether each rank trains on batches of its own, with its own optimizer, and meets the others now and then.

    Else (all-reduce of gradients) all take every step together.
    """
    return strategy in ("ps", "average") or (strategy == "allreduce" and rule is not None)
