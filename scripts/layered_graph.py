"""A graph without circles laid out in layers, arrows pointing down: the method of Sugiyama, Tagawa and Toda (1981).

Nodes are strings. An arrow that passes a layer occupies a lane there; a lane is the tuple (arrow, layer).
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

Arrow = tuple[str, str]
Lane = tuple[Arrow, int]
Item = str | Lane
Layers = list[list[Item]]
Step = tuple[Item, Item]

SWEEPS = 24  # over all layers, for few crossings
ROUNDS = 300  # over all layers, for straight arrows
STRAIGHT = 30  # how much more a lane keeps to the lane above and below it than to a node


def reduced(imports: Mapping[str, set[str]]) -> list[Arrow]:
    """The arrows (above, below) from which all others follow.

    Args:
        imports: {node: set of the nodes below that it points to}.
    """

    def reachable(node: str) -> set[str]:
        return imports[node].union(*map(reachable, imports[node]))

    return [
        (above, below)
        for above in imports
        for below in sorted(imports[above])
        if not any(below in reachable(other) for other in imports[above])
    ]


def layered(nodes: Sequence[str], arrows: Sequence[Arrow]) -> tuple[Layers, list[Step]]:
    """(layers, steps): each node one layer below the lowest node that points to it, in an order with few crossings.

    Args:
        nodes: in an order in which all arrows point from earlier to later ones.
        arrows: pairs of nodes, as of `reduced`.

    Returns:
        The nodes and lanes of each layer from left to right, and the pieces of all arrows from one layer to the next.
    """
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node] = max((depth[above] + 1 for above, below in arrows if below == node), default=0)
    layers: Layers = [[node for node in nodes if depth[node] == number] for number in range(max(depth.values()) + 1)]
    steps: list[Step] = []
    for above, below in arrows:
        lanes: list[Lane] = [((above, below), number) for number in range(depth[above] + 1, depth[below])]
        for lane in lanes:
            layers[lane[1]].append(lane)
        way: list[Item] = [above, *lanes, below]
        steps += itertools.pairwise(way)
    return _with_few_crossings(layers, steps), steps


def _with_few_crossings(layers: Layers, steps: Sequence[Step]) -> Layers:
    """The best of some sweeps, down and up in turn, that sort each layer by the mean place of its neighbours."""
    best = layers
    for sweep in range(SWEEPS):
        layers = [list(layer) for layer in layers]
        upper, lower = (0, 1) if sweep % 2 == 0 else (1, 0)
        numbers = list(range(len(layers)))[:: 1 if sweep % 2 == 0 else -1]
        for before, here in itertools.pairwise(numbers):
            place = {item: number for number, item in enumerate(layers[before])}
            own = {item: number for number, item in enumerate(layers[here])}
            neighbours = {item: [step[upper] for step in steps if step[lower] == item] for item in own}
            mean = {item: _mean([place[other] for other in there] or [own[item]]) for item, there in neighbours.items()}
            layers[here].sort(key=mean.__getitem__)
        best = min(best, layers, key=lambda found: _crossings(found, steps))
    return best


def _crossings(layers: Layers, steps: Sequence[Step]) -> int:
    place = {item: (number, index) for number, layer in enumerate(layers) for index, item in enumerate(layer)}
    ends = [(*place[above], place[below][1]) for above, below in steps]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for one, other in itertools.combinations(ends, 2)
    )


def columns(
    layers: Layers, steps: Sequence[Step], widths: Mapping[Item, int], gap: float, left: float, right: float
) -> dict[Item, int]:
    """{node or lane: x of its middle}: near to its neighbours, nothing nearer than `gap` to what stands beside it.

    Args:
        layers, steps: as of `layered`.
        widths: {node or lane: its width}.
        gap, left, right: in the unit of the widths; nothing stands outside of left and right.
    """
    middle = {item: (left + right) / 2 for layer in layers for item in layer}
    for _ in range(ROUNDS):
        for layer in layers:
            wanted = [_mean([*_neighbours(item, steps, middle)] or [middle[item]]) for item in layer]
            middle.update(zip(layer, _spread(layer, wanted, widths, gap, left, right), strict=True))
    narrow = [item for item in middle if widths[item] < right - left]
    leftmost = min(middle[item] - widths[item] / 2 for item in narrow)
    rightmost = max(middle[item] + widths[item] / 2 for item in narrow)
    return {item: round(x + (left + right - leftmost - rightmost) / 2) for item, x in middle.items()}


def _neighbours(item: Item, steps: Sequence[Step], middle: Mapping[Item, float]) -> Iterator[float]:
    """Where the neighbours of a node or lane stand; of a lane the other lanes count more, as bends are ugly there."""
    for above, below in steps:
        if item in (above, below):
            both_lanes = isinstance(above, tuple) and isinstance(below, tuple)
            yield from [middle[below if item == above else above]] * (STRAIGHT if both_lanes else 1)


def _spread(
    layer: Sequence[Item],
    wanted: Sequence[float],
    widths: Mapping[Item, int],
    gap: float,
    left: float,
    right: float,
) -> list[float]:
    """The places nearest to the wanted ones, by least squares, at which nothing overlaps (pool adjacent violators)."""
    offsets = [0.0]
    for one, other in itertools.pairwise(layer):
        offsets.append(offsets[-1] + (widths[one] + widths[other]) / 2 + gap)
    blocks: list[list[float]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        blocks.append([want - offset])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    lowest, highest = left + widths[layer[0]] / 2, right - widths[layer[-1]] / 2 - offsets[-1]
    shifts = [min(max(_mean(block), lowest), highest) for block in blocks for _ in block]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
