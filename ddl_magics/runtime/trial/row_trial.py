"""What a function does to the rows of a batch, found out by trial: a mean over rows, a sum over rows, or neither.

The function is called with made-up rows: all of them, and the parts of several cuts. A mean over rows is the mean of
its parts, weighted by their rows; a sum is their sum. The rows are of several kinds, as a function may look at the
whole batch for some values alone: one that divides by the number of rows that a mask keeps is a mean where all are
kept. So the numbers that the function itself mentions are among the values, and those by which cells mark padding.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence, Tuple

import numpy as np
import tensorflow as tf

from .comparisons import Comparisons
from .scalar_variables import ScalarVariables

MEAN, SUM, COUPLED = "mean", "sum", "coupled"

#: Rows of a trial, and the parts into which they are cut.
ROWS = 12
CUTS = ((2, 10), (5, 4, 3))

#: A function may look at the number of rows: so many are tried once, if they have no more numbers than that.
_MANY_ROWS, _MOST_NUMBERS = 60, 1_000_000

#: Sizes of axes that a tensor's shape leaves open, and of ragged ones.
_OPEN_AXIS, _RAGGED_AXIS = 5, 12

#: Values that cells mark padding with. Of the numbers that a function mentions, at most so many are tried too.
_MARKS = (0.0, -1.0, 255.0, -100.0, float("nan"))
_MOST_CONSTANTS = 8
_SMALL_INTEGER = 3

_MARKED_SHARE = 0.4

#: Differences that count as rounding, by the number of bytes of a result: over its size, where a float64 may have been
#: computed in float32, and over the size of all results, where terms cancel out.
_TOLERANCE = {8: 5e-6, 4: 2e-4, 2: 3e-2}
_CANCELLED = {8: 1e-14, 4: 4e-6, 2: 3e-2}

TARGET, OUTPUT, WEIGHT, INPUT = range(4)


class Leaf(NamedTuple):
    """A tensor among a function's arguments.

    role: TARGET, OUTPUT, WEIGHT or INPUT; shape: without the first axis, whose next `ragged_rank` axes are ragged.
    """

    role: int
    shape: tuple[int, ...]
    dtype: np.dtype
    ragged_rank: int = 0

    @classmethod
    def of(cls, role: int, tensor: Any, like: Sequence[int | None] = ()) -> Leaf:
        """ValueError for what has no rows. like: a shape that says the sizes of open axes, if it has as many axes."""
        if not isinstance(tensor, (tf.Tensor, tf.Variable)) or tensor.shape.rank in (None, 0):
            raise ValueError("a %s of shape %s" % (type(tensor).__name__, getattr(tensor, "shape", "?")))
        sizes_of_axes = like if len(like) == tensor.shape.rank else [None] * tensor.shape.rank
        sizes = [
            size_if_open if size is None else size for size, size_if_open in zip(tensor.shape[1:], sizes_of_axes[1:])
        ]
        shape = tuple(_OPEN_AXIS if size is None else int(size) for size in sizes)
        return cls(role, shape, np.dtype(tensor.dtype.as_numpy_dtype))

    @classmethod
    def of_ragged(cls, role: int, tensor: tf.RaggedTensor) -> Leaf:
        shape = tuple(_RAGGED_AXIS if size is None else int(size) for size in tensor.shape[1:])
        return cls(role, shape, np.dtype(tensor.dtype.as_numpy_dtype), tensor.ragged_rank)


class Verdict(NamedTuple):
    """kind: MEAN, SUM or COUPLED; None, with a reason, where no trial gave a number. unused: as in `GraphContents`."""

    kind: str | None
    reason: str = ""
    unused: frozenset[int] = frozenset()


#: Of a function's arguments, as arrays in their order, and of the first of their rows and their number, the values.
Evaluate = Callable[[Sequence[np.ndarray], int, int], Sequence[np.ndarray]]


def verdict(
    evaluate: Evaluate,
    leaves: Sequence[Leaf],
    constants: Sequence[float] = (),
    scalars: ScalarVariables | None = None,
    compared: Comparisons | None = None,
) -> Verdict:
    """What `evaluate` does to the rows of its arguments, which are like `leaves`.

    Args:
        constants: Values that may mark rows, as for padding.
        scalars: The scalar variables that `evaluate` reads, recorded meanwhile.
        compared: The numbers that it compares tensors with, recorded meanwhile.
    """
    fits, reason = _try(evaluate, leaves, draws_of(constants))
    if fits is None:
        return Verdict(None, reason)
    if fits and compared is not None:
        fits = _fits_with_moved_bounds(evaluate, leaves, compared, fits)
    if fits and scalars is not None:
        with scalars.changed() as any_are:
            other_fits = _try(evaluate, leaves, _KINDS)[0] if any_are else None
        fits = fits if other_fits is None else fits & other_fits
    return Verdict(COUPLED if not fits else MEAN if MEAN in fits else SUM)


def _fits_with_moved_bounds(
    evaluate: Evaluate, leaves: Sequence[Leaf], compared: Comparisons, fits: set[str]
) -> set[str]:
    """Those of `fits` that also hold with each unreached bound moved among the values."""
    for bound in compared.unreached():
        compared.begin()
        rows = next(made_up(leaves, [("numbers", ())]))
        with contextlib.suppress(Exception):  # whatever it raises for numbers that it does not expect
            _fits(evaluate, rows, evaluate(rows, 0, ROWS))
            with compared.moved_bounds([bound]):
                values = evaluate(rows, 0, ROWS)
                fits = fits & _fits(evaluate, rows, values) if finite(values) else fits
    return fits


def fitting(evaluate: Evaluate, leaves: Sequence[Leaf]) -> set[str] | None:
    """Which of MEAN and SUM describe `evaluate`; None if no draw gave a number."""
    return _try(evaluate, leaves, draws_of(()))[0]


def _try(evaluate: Evaluate, leaves: Sequence[Leaf], draws: Sequence[Draw]) -> tuple[set[str] | None, str]:
    fits, reason = {MEAN, SUM}, "it gives no number for rows that were made up"
    any_finite = False
    numbers = _MANY_ROWS * sum(int(np.prod(leaf.shape)) for leaf in leaves)
    of_many = made_up(leaves, draws[: numbers <= _MOST_NUMBERS], _MANY_ROWS)
    for rows in itertools.chain(made_up(leaves, draws), of_many):
        try:
            values = evaluate(rows, 0, len(rows[0]))
        except Exception as error:  # whatever a function raises for numbers that it does not expect
            reason = first_line(error)
            continue
        if not finite(values):
            continue
        try:
            fits_draw = _fits(evaluate, rows, values)
        except OverflowError as error:
            reason = first_line(error)
            continue
        except Exception:
            return set(), ""  # it takes the whole batch only
        any_finite, fits = True, fits & fits_draw
        if not fits:
            break
    return (fits, "") if any_finite else (None, reason)


def _fits(evaluate: Evaluate, rows: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> set[str]:
    """Which of MEAN and SUM fit the values of all cuts.

    Raises:
        OverflowError: A value is infinite.
    """
    fitting = {MEAN, SUM}
    for of_rows in CUTS:
        slices, begin = [], 0
        cut = [size * len(rows[0]) // ROWS for size in of_rows]
        for size in cut:
            slices.append(evaluate(rows, begin, size))
            begin += size
        if any(infinite(values_of_slice) for values_of_slice in slices):
            raise OverflowError("rows that were made up give infinite values")
        if not all(map(finite, slices)):  # as where a mask keeps none of a slice's rows
            return set()
        fitting &= judge(values, slices, cut)
    return fitting


def judge(
    of_batch: Sequence[np.ndarray], slices: Sequence[Sequence[np.ndarray]], sizes: Sequence[int], precision: int = 8
) -> set[str]:
    """Which of MEAN and SUM make a batch's values of those of its slices. Both do if all are zero.

    Args:
        of_batch: The values of all rows.
        slices: The values of each slice.
        sizes: The rows of each slice.
        precision: Bytes of the narrowest numbers that the values were computed with.
    """
    fitting = {MEAN, SUM}
    largest = max((_size(value) for values in (of_batch, *slices) for value in values), default=0.0)
    for values in zip(of_batch, *slices):
        of_whole, *of_parts = (np.asarray(value, np.float64) for value in values)
        if any(array.shape != of_whole.shape for array in of_parts):
            return set()
        bytes_ = min(precision, *(np.asarray(value).dtype.itemsize for value in values))
        scale = max(_size(array) for array in [of_whole, *of_parts])
        bytes_ = bytes_ if bytes_ in _TOLERANCE else 2
        bound = max(_TOLERANCE[bytes_] * scale, _CANCELLED[bytes_] * largest)
        combined = {
            MEAN: sum(size / sum(sizes) * array for size, array in zip(sizes, of_parts)),
            SUM: sum(of_parts),
        }
        fitting &= {kind for kind, value in combined.items() if _size(value - of_whole) <= bound}
    return fitting


def _size(value: np.ndarray) -> float:
    return float(np.max(np.abs(np.asarray(value, np.float64)), initial=0.0))


#: A kind of values, and numbers that mark some of the targets.
Draw = Tuple[str, Tuple[float, ...]]

_KINDS: list[Draw] = [("probabilities", ()), ("binary", ()), ("numbers", ()), ("large numbers", ()), ("uneven", ())]

#: Rows of uneven numbers are so large, as powers of 10, so that a bound lies between the means of some parts.
_EXPONENTS = (-2.0, 2.0)


def draws_of(constants: Sequence[float]) -> list[Draw]:
    """The draws to try a function with, some of them with targets that it may treat as marks."""
    marks = list(dict.fromkeys([*_MARKS, *constants]))
    return _KINDS + [(kind, (mark,)) for mark in marks for kind in ("binary", "numbers")]


def made_up(leaves: Sequence[Leaf], draws: Iterable[Draw], rows: int = ROWS) -> Iterator[list[Any]]:
    """Rows to try a function with: for each draw an array for each leaf, or a ragged tensor of rows of one length."""
    classes = max((leaf.shape[-1] for leaf in leaves if leaf.role == OUTPUT and leaf.shape), default=2)
    for number, draw in enumerate(draws):
        random = np.random.default_rng(number)
        of_leaves = [_values(random, (rows, *leaf.shape), leaf, draw, max(2, classes)) for leaf in leaves]
        yield [
            as_ragged(values, np.ones(values.shape[: 1 + leaf.ragged_rank], bool)) if leaf.ragged_rank else values
            for values, leaf in zip(of_leaves, leaves)
        ]


def as_ragged(values: np.ndarray, kept: np.ndarray) -> tf.RaggedTensor:
    """The entries of `values` that are `kept`: an array with as many axes as rows and ragged axes."""
    return tf.ragged.boolean_mask(tf.constant(values), kept)


def _values(random: np.random.Generator, shape: tuple[int, ...], leaf: Leaf, draw: Draw, classes: int) -> np.ndarray:
    kind, marks = draw
    if leaf.dtype == object:
        return np.full(shape, b"1", object)
    if leaf.role == WEIGHT:
        return (random.uniform(0.1, 2.0, shape) * (random.uniform(size=shape) < 0.8)).astype(leaf.dtype)
    values: Any
    if leaf.dtype.kind == "b":
        values = random.uniform(size=shape) < 0.5
    elif leaf.dtype.kind in "iu":
        high = classes if leaf.role == TARGET and kind != "binary" else 2
        values = random.integers(0, high, shape)
    elif kind == "binary" and leaf.role == TARGET:
        values = _one_hot(random, shape)
    elif kind in ("probabilities", "binary"):
        values = random.uniform(0.05, 0.95, shape)
        if leaf.shape and leaf.shape[-1] > 1:
            values /= values.sum(-1, keepdims=True)
    else:
        values = random.normal(size=shape) * (10.0 if kind == "large numbers" else 1.0)
        if kind == "uneven":
            values *= 10.0 ** random.uniform(*_EXPONENTS, (shape[0], *(1 for _ in shape[1:])))
    marks = tuple(mark for mark in marks if can_have(leaf.dtype, mark))
    if marks and leaf.role == TARGET:
        values = np.where(random.uniform(size=shape) < _MARKED_SHARE, random.choice(marks, shape), values)
    return np.asarray(values).astype(leaf.dtype)


def _one_hot(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros and ones; with several values in the last axis, one of them is 1."""
    if len(shape) < 2 or shape[-1] == 1:
        return random.integers(0, 2, shape)
    return np.eye(shape[-1])[random.integers(0, shape[-1], shape[:-1])]


def can_have(dtype: np.dtype, value: float) -> bool:
    """Whether an array of this type can have a value."""
    if dtype.kind in "iu":
        return float(value).is_integer() and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    return dtype.kind != "b"


def finite(values: Sequence[np.ndarray]) -> bool:
    """Whether all values are numbers."""
    return all(np.isfinite(np.asarray(value, np.float64)).all() for value in values)


def infinite(values: Sequence[np.ndarray]) -> bool:
    """Whether any number is too large for its type."""
    return any(np.isinf(np.asarray(value, np.float64)).any() for value in values)


def first_line(error: Exception) -> str:
    """An exception's kind, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, lines[0] if lines else "")


class GraphContents(NamedTuple):
    """What the graph of a function shows: the numbers that it mentions, and which of its arguments it leaves unused."""

    constants: list[float]
    unused: frozenset[int]


def look_into(function: Callable[..., Any], leaves: Sequence[Leaf]) -> GraphContents:
    """The contents of the graph of `function`, called with tensors like `leaves`; empty if it cannot be traced."""
    specs = [tf.TensorSpec([None, *leaf.shape], tf.as_dtype(leaf.dtype)) for leaf in leaves]
    try:
        graph = tf.function(function, autograph=False).get_concrete_function(*specs).graph
    except Exception:  # any error of the function: the trial reports it
        return GraphContents([], frozenset())
    definition = graph.as_graph_def()
    nodes = list(definition.node) + [node for inner in definition.library.function for node in inner.node_def]
    constants: dict[float, None] = {}
    for node in nodes:
        if node.op == "Const":
            value = _number(node.attr["value"].tensor)
            if value is not None:
                constants[value] = None
    inputs = graph.inputs[: len(leaves)]
    unused = frozenset(number for number, tensor in enumerate(inputs) if not tensor.consumers())
    return GraphContents(list(constants)[:_MOST_CONSTANTS], unused)


def _number(proto: Any) -> float | None:
    """A constant that values may be compared with; small integers number axes, and are among made-up targets."""
    array = tf.make_ndarray(proto)
    if array.size != 1 or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        return None
    value = float(array.reshape(-1)[0])
    return None if value in _MARKS or (array.dtype.kind in "iu" and abs(value) <= _SMALL_INTEGER) else value
