"""What a step does to the rows of a batch, found out by trial before the first update.

The step runs in a sandbox on made-up rows: on all rows, then on the slices of several cuts. The gradients of its
updates are recorded, not applied. Keras' layers are called as in inference, and the same rows get the same random
numbers; where this is impossible, the cell's layers are called as in inference, too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, Tuple, TypeVar

import numpy as np
import tensorflow as tf

from ..gradients.exchange import is_sparse
from ..keras_types import Batch, Model
from ..trial import (
    COUPLED,
    INPUT,
    MEAN,
    SUM,
    TARGET,
    WEIGHT,
    Leaf,
    Sandbox,
    SimulatedGather,
    cell_code,
    row_lengths,
    row_trial,
)
from ..trial.model_attributes import other_numbers
from ..trial.python_state import Changes, PythonState, differing
from ..trial.scalar_variables import STEPS, ScalarVariables
from ..trial.undone_assignments import undone_assignments
from .logs import flat_logs
from .step_weighing import CLIPS, MAKES_GRADIENTS, OUTPUTS, SLOPES, TAKES_LENGTHS, Kinds, StepWeighing

#: A step is tried with so many rows, cut like this in one draw after the other, until so many draws give numbers; with
#: more rows where none does.
_ROWS, _CUTS = 6, ((2, 4), (3, 3), (4, 2), (3, 3))
_MORE_ROWS = 36
_ENOUGH_DRAWS = 4

#: It is also tried with as many rows as a batch has, if these have no more numbers, cut into so many slices at most.
_MOST_OF_BATCH, _MOST_PARTS = 1_000_000, 4

#: By what the outputs of a model for a row depend on other rows: by what they are, or by their lengths alone.
BY_ROWS, BY_LENGTHS = "rows", "lengths"

#: The values that a step records, and the kinds that fit them, by (category, number).
Noted = Dict[Tuple[str, Any], List[np.ndarray]]
Fitting = Dict[Tuple[str, Any], Set[str]]

Result = TypeVar("Result")

#: Gradients of more numbers are compared by so many sums of them.
_MOST_NUMBERS = 1 << 14
_SIGNS = 1009


class _WholeOnly(Exception):
    """A step fails on a slice of a batch."""


class _WithoutRows(Exception):
    """A tensor of the batch has no rows."""


class Shares(NamedTuple):
    """How ranks split a batch.

    Attributes:
        rows: Rows of a rank's share; 0 if shares differ.
        size: The number of ranks.
        batch: Rows of a global batch; 0 if unknown.
        shapes: Of the batch's tensors, as far as they are known.
    """

    rows: int
    size: int
    batch: int = 0
    shapes: Sequence[tuple[int, ...]] = ()


class StepTrial:
    """Tries steps and models. layer_class: Keras' class of layers."""

    def __init__(self, weighing: StepWeighing, layer_class: Any) -> None:
        self._weighing, self._layer_class = weighing, layer_class

    def __call__(self, model: Model, step: Callable[[Batch], Any], batch: Batch, shares: Shares) -> Kinds:
        """Try `step` of `model` with rows like those of `batch`. shares: how ranks split a batch."""

        def find_out(run: _Run) -> Kinds:
            kinds = _as_one_sum(run, _with_sums_apart(run, _try(run)))
            return kinds._replace(in_python=() if kinds.gathers else tuple(sorted(run.from_rows)))

        try:
            kinds = self._find_out(model, step, batch, shares, find_out)
        except _WithoutRows as error:
            return Kinds({}, {}, "it gets %s" % error)
        own_gradients = cell_code.makes_gradients(model.optimizer)
        return kinds._replace(hint=MAKES_GRADIENTS if own_gradients else CLIPS if cell_code.clips(step) else kinds.hint)

    def couples_rows(self, model: Model, batch: Batch, shares: Shares) -> str:
        """How outputs of `model` for a row depend on others: BY_ROWS, BY_LENGTHS, or "" where no trial shows that."""
        inputs = batch[0] if isinstance(batch, tuple) else batch

        def forward(tensors: Batch) -> None:
            with tf.GradientTape() as tape:
                total = self._weighing.note_outputs(model(tensors[0], training=True))
            with contextlib.suppress(LookupError):  # of an operation that has no gradient
                self._weighing.note_slopes(tape.gradient(total, model.trainable_variables))

        try:
            return self._find_out(model, forward, (inputs,), shares, _coupled_by)
        except _WithoutRows:
            return ""

    def _find_out(
        self,
        model: Model,
        step: Callable[[Batch], Any],
        batch: Batch,
        shares: Shares,
        find_out: Callable[[_Run], Result],
    ) -> Result:
        """Call `find_out` in training; in inference if noise in training could look like coupled rows."""
        run = _Run(model, step, batch, shares, self._weighing)
        with run.sandbox.entered_with(self._layer_class, training=True):
            result = find_out(run)
        if not run.sandbox.noise.unaligned and not getattr(result, "reason", ""):
            return result
        run = _Run(model, step, batch, shares, self._weighing)
        with run.sandbox.entered_with(self._layer_class, training=False):
            return find_out(run)


class _Run:
    """Runs a step on slices of the rows of a trial, and returns the recorded values as arrays."""

    def __init__(
        self, model: Model, step: Callable[[Batch], Any], batch: Batch, shares: Shares, weighing: StepWeighing
    ) -> None:
        """
        Raises:
            _WithoutRows: A tensor of the batch has no rows.
        """
        self.model, self._step, self._batch, self._weighing = model, step, batch, weighing
        self._flat = tf.nest.flatten(batch)
        inputs = tf.nest.flatten(getattr(model, "inputs", None) or [])
        self.leaves = _leaves(batch, self._flat, shares.shapes or [tuple(tensor.shape) for tensor in inputs])
        self.rows, self.shares = _ROWS, shares
        of_metrics = {id(variable) for metric in model.metrics for variable in _of_tensorflow(metric.variables)}
        self.sandbox = Sandbox(_ROWS, [step, model], ScalarVariables(_of_tensorflow(_variables(model)), of_metrics))
        numbers = shares.batch * sum(int(np.prod(leaf.shape)) for leaf in self.leaves)
        self.batch = shares.batch if shares.batch > 1 and numbers <= _MOST_OF_BATCH else 0
        self.added: dict[int, str] = {}
        self.names: dict[tuple[str, Any], str] = {}
        self.gathering, self.gathers = SimulatedGather(), False
        self.from_rows: set[str] = set()  # what an eager step sets in Python from its rows
        self._changes: dict[PythonState, Changes] = {}
        self._apart = PythonState(losses_and_metrics(model)) if tf.executing_eagerly() else None
        self.judge = functools.partial(row_trial.judge, precision=_precision(model))

    @contextlib.contextmanager
    def more_rows(self, rows: int) -> Iterator[None]:
        """Some steps need more rows: those that take the largest ten losses, for example."""
        before, self.rows = self.rows, rows
        try:
            yield
        finally:
            self.rows = before

    def __call__(self, rows: Sequence[np.ndarray], begin: int, size: int) -> Noted:
        self.sandbox.noise.begin_call(begin, size, self.rows)
        self.gathering.begin_call(begin, self.rows / size)
        slices = [leaf[begin : begin + size] for leaf in rows]
        tensors = iter([part if isinstance(part, tf.RaggedTensor) else tf.constant(part) for part in slices])
        flat = [None if tensor is None else next(tensors) for tensor in self._flat]
        batch = tf.nest.pack_sequence_as(self._batch, flat)
        slice_state = {"factor": self.rows / size, "added": self.added, "gathers": False}
        state = self._weighing.traced.state(alone=True, trial=True, gathering=self.gathering, **slice_state)
        with state, undone_assignments(), self.sandbox.python.restored():  # the next run begins alike
            logs, notes = self._weighing.noting(lambda: self._step(batch))
            self.gathers |= self._weighing.traced.gathers
            if self._apart is not None:
                changes = self.sandbox.python.changes(self._apart)
                self.from_rows |= differing(self._changes.setdefault(self.sandbox.python, changes), changes)
        values = dict(notes.values)
        values.update(self._logged(logs))
        self.names = notes.names
        return {key: _arrays(value) for key, value in values.items()}

    def of_all(self, cut: Sequence[int]) -> list[int]:
        """`cut`, made for `_ROWS` rows, scaled to the rows of this trial."""
        *leading, _ = (max(1, size * self.rows // _ROWS) for size in cut)
        return [*leading, self.rows - sum(leading)]

    def _logged(self, logs: Any) -> dict[tuple[str, Any], Any]:
        """The scalars that a step returns, except results of metrics."""
        if not isinstance(logs, dict):
            return {}
        flat = flat_logs(logs)
        if set(flat) <= set(self.model.get_metrics_result()):
            return {}
        return {("log", name): value for name, value in flat.items() if np.ndim(value) == 0}


def _try(run: _Run) -> Kinds:
    kinds = _try_rows(run)
    for rows in (_MORE_ROWS, run.batch):
        if kinds.reason and not kinds.whole_only and rows:
            with run.more_rows(rows):
                kinds = _try_rows(run)
    return kinds


def _try_rows(run: _Run) -> Kinds:
    fitting: Fitting = {}
    draws, reason = 0, "it gives no number for rows that were made up"
    last_rows: Sequence[np.ndarray] = ()
    for rows in row_trial.made_up(run.leaves, _draws(run.sandbox.comparisons.numbers), run.rows):
        try:
            values = run(rows, 0, run.rows)
            repeated = values if draws else run(rows, 0, run.rows)
        except Exception as error:  # whatever a step raises for numbers that it does not expect
            reason = row_trial.first_line(error)
            continue
        if not all(row_trial.finite(arrays) for arrays in values.values()):
            continue
        if any(MEAN not in run.judge(arrays, [repeated.get(key, [])], [1]) for key, arrays in values.items()):
            return Kinds({}, {}, "what it draws at random differs from call to call")
        try:
            _narrow(fitting, _cut(run, rows, values, run.of_all(_CUTS[draws])))
        except _WholeOnly as error:
            return Kinds({}, {}, str(error), whole_only=True)
        except OverflowError as error:
            reason = row_trial.first_line(error)
            continue
        draws, last_rows = draws + 1, rows
        if draws == _ENOUGH_DRAWS:
            break
    if draws:
        _narrow(fitting, _cut_with_other_scalars(run, last_rows))
        _narrow(fitting, _cut_with_moved_bounds(run, last_rows))
        _narrow(fitting, _cut_as_by_ranks(run))
    fits_of_one_length = {key for key, fits in fitting.items() if key[0] == "update" and fits}
    if draws:
        _narrow(fitting, _cut_with_lengths(run))
    takes_lengths = any(not fitting[key] for key in fits_of_one_length)
    kinds = {key: COUPLED if not fits else MEAN if MEAN in fits else SUM for key, fits in fitting.items()}
    return Kinds(kinds, run.names, "" if draws else reason, run.gathers, hint=TAKES_LENGTHS if takes_lengths else "")


def _draws(compared: Sequence[float]) -> Iterator[row_trial.Draw]:
    """compared: numbers by which the step knows rows that it treats in a way of their own, from the first draw on."""
    yield "binary", ()
    yield "uneven", tuple(compared)
    yield "numbers", (-1.0, *compared)
    yield "numbers", (0.0,)
    yield "binary", tuple(compared)
    yield "probabilities", ()
    yield "numbers", ()


def _narrow(fitting: Fitting, fits: Fitting) -> None:
    for key, kinds in fits.items():
        fitting[key] = fitting.get(key, {MEAN, SUM}) & kinds


def _cut_with_other_scalars(run: _Run, rows: Sequence[np.ndarray]) -> Fitting:
    """`_cut` with other values in the scalar variables that the step reads: counters both even and odd.

    In eager steps also in attributes of the model, which each step reads again.
    """
    fitting: Fitting = {}
    if getattr(run.model, "run_eagerly", False):
        with other_numbers(run.model) as any_are, run.sandbox.python_as_now():
            _narrow(fitting, _cut_again(run, rows, run.of_all(_CUTS[0])) or {} if any_are else {})
    for steps in (STEPS, STEPS + 1):
        with run.sandbox.scalars.changed(steps) as any_are:
            _narrow(fitting, _cut_again(run, rows, run.of_all(_CUTS[0])) or {} if any_are else {})
    return fitting


def _cut_with_moved_bounds(run: _Run, rows: Sequence[np.ndarray]) -> Fitting:
    """`_cut` with bounds that no value has reached moved among the values: all at once, else one by one."""
    bounds, cut = run.sandbox.comparisons.unreached(), run.of_all(_CUTS[0])
    if not bounds:
        return {}
    run.sandbox.comparisons.begin()
    _cut_again(run, rows, cut)
    with run.sandbox.comparisons.moved_bounds(bounds):
        fits_together = _cut_again(run, rows, cut)
    fitting: Fitting = fits_together or {}
    for bound in bounds if fits_together is None else ():
        with run.sandbox.comparisons.moved_bounds([bound]):
            _narrow(fitting, _cut_again(run, rows, cut) or {})
    return fitting


def _cut_as_by_ranks(run: _Run) -> Fitting:
    """`_cut` of a whole batch into the ranks' shares: a step may depend on these numbers of rows."""
    share, size = run.shares.rows, run.shares.size
    numbers = share * size * sum(int(np.prod(leaf.shape)) for leaf in run.leaves)
    if share == 0 or size == 1 or numbers > _MOST_OF_BATCH:
        return {}
    with run.more_rows(share * size):
        made_up = row_trial.made_up(run.leaves, [("numbers", tuple(run.sandbox.comparisons.numbers))], run.rows)
        cut = [share] * size if size <= _MOST_PARTS else [share, share * (size - 1)]
        return _cut_again(run, next(made_up), cut) or {}


def _cut_with_lengths(run: _Run) -> Fitting:
    """`_cut` of rows of different lengths."""
    fitting: Fitting = {}
    for padding in row_lengths.paddings_of(run.sandbox.comparisons.numbers):
        of_lengths = (
            _cut_again(run, rows, run.of_all(_CUTS[0])) for rows in row_lengths.made_up(run.leaves, run.rows, padding)
        )
        _narrow(fitting, next((fits for fits in of_lengths if fits is not None), {}))
    return fitting


def _cut_again(run: _Run, rows: Sequence[np.ndarray], cut: Sequence[int]) -> Fitting | None:
    """`_cut`; None if the step fails on these rows or gives values that are not finite."""
    try:
        values = run(rows, 0, run.rows)
        return _cut(run, rows, values, cut) if all(row_trial.finite(arrays) for arrays in values.values()) else None
    except Exception:  # whatever a step raises for numbers that it does not expect
        return None


def _with_sums_apart(run: _Run, kinds: Kinds) -> Kinds:
    """Retry, assuming that losses which layers add are sums beside a loss that is a mean over rows."""
    sums = [key for key, kind in kinds.kinds.items() if key[0] == "added" and kind == SUM]
    if not sums or set(kinds.of("update").values()) <= {MEAN}:
        return kinds
    run.added = {number: SUM for _, number in sums}
    apart = _try(run)
    if COUPLED in apart.kinds.values() and COUPLED not in kinds.kinds.values():  # all of the step is a sum, with them
        return kinds._replace(kinds={**kinds.kinds, **dict.fromkeys(sums, MEAN)})
    return apart._replace(kinds={**apart.kinds, **dict.fromkeys(sums, SUM)})


def _as_one_sum(run: _Run, kinds: Kinds) -> Kinds:
    """Retry, assuming that the gathered loss is one term of a sum over rows."""
    if not run.gathering.is_used or COUPLED not in kinds.of("update").values():
        return kinds
    run.gathering.sums, run.added = True, {}
    as_sum = _try(run)
    if set(as_sum.of("update").values()) != {SUM}:
        return kinds
    unscaled = {key: MEAN for key, kind in as_sum.kinds.items() if key[0] == "added" and kind == SUM}
    return as_sum._replace(kinds={**as_sum.kinds, **unscaled})


def _coupled_by(run: _Run) -> str:
    """BY_ROWS or BY_LENGTHS if outputs, or their gradients, are not means over rows in any draw; else "".

    One draw is not enough: a choice between equal values may differ from call to call. A model may also accept batches
    of one size only. Rows that are coupled, but not if they are of the same length, are so by their lengths.
    """
    coupled = _coupled_draws(run)
    if not coupled and run.batch:
        with run.more_rows(run.batch):
            coupled = _coupled_draws(run)
    if run.gathers:
        return ""
    if coupled and all(coupled):
        return BY_LENGTHS if _are_coupled_by_length(run, alike=True) is False else BY_ROWS
    return BY_LENGTHS if _are_coupled_by_length(run) else ""


def _coupled_draws(run: _Run) -> list[bool]:
    """For each draw that gives numbers, whether rows are coupled."""
    draws: list[row_trial.Draw] = [("binary", ()), ("numbers", ())]
    made_up = zip(row_trial.made_up(run.leaves, draws, run.rows), _CUTS)
    return [coupled for coupled in (_are_coupled(run, rows, cut) for rows, cut in made_up) if coupled is not None]


def _are_coupled_by_length(run: _Run, alike: bool = False) -> bool | None:
    """Whether rows of different lengths are coupled in both of two cuts; None where they give no numbers.

    alike: rows of the same length instead.
    """
    results = []
    for padding in row_lengths.paddings_of([] if alike else run.sandbox.comparisons.numbers):
        for rows in row_lengths.made_up(run.leaves, run.rows, padding, alike):
            coupled = _are_coupled(run, rows, _CUTS[0])
            if coupled is not None:
                results.append(coupled and bool(_are_coupled(run, rows, _CUTS[1])))
                break
    return any(results) if results else None


def _are_coupled(run: _Run, rows: Sequence[Any], cut: Sequence[int]) -> bool | None:
    """Whether these rows are coupled; None where they give no numbers, or different ones in two calls."""
    try:
        values = run(rows, 0, run.rows)
        fits = _cut(run, rows, values, run.of_all(cut))
        judged = [key for key in values if key[0] in (OUTPUTS, SLOPES)]
        if not all(row_trial.finite(values[key]) for key in judged):
            return None
        if all(MEAN in fits[key] for key in judged):
            return False
        repetition = run(rows, 0, run.rows)
    except _WholeOnly:
        return True
    except Exception:  # whatever a model raises for numbers that it does not expect
        return None
    is_repeated = all(MEAN in run.judge(values[key], [repetition[key]], [1]) for key in judged)
    return True if is_repeated else None


def _cut(run: _Run, rows: Sequence[np.ndarray], values: Noted, cut: Sequence[int]) -> Fitting:
    """The kinds that fit the values of a cut.

    Raises:
        _WholeOnly: The step fails on a slice.
        OverflowError: A value of a slice is infinite.
    """
    begins = [int(begin) for begin in np.cumsum((0, *cut[:-1]))]
    run.gathering.cut(begins)
    try:
        slices = [run(rows, begin, size) for begin, size in zip(begins, cut)]
        if run.gathering.is_used:
            slices = [run(rows, begin, size) for begin, size in zip(begins, cut)]
    except Exception as error:
        raise _WholeOnly(row_trial.first_line(error)) from None
    if any(row_trial.infinite(arrays) for values_of_slice in slices for arrays in values_of_slice.values()):
        raise OverflowError("rows that were made up give infinite values")
    fitting = {}
    for key, value in values.items():
        of_parts = [values_of_slice.get(key, []) for values_of_slice in slices]
        alike = all(len(arrays) == len(value) and row_trial.finite(arrays) for arrays in of_parts)
        fitting[key] = run.judge(value, of_parts, cut) if alike else set()
    return fitting


def _leaves(batch: Batch, flat: list[Any], shapes: Sequence[Sequence[int | None]]) -> list[Leaf]:
    """The roles, shapes and dtypes of the tensors of a batch.

    Args:
        shapes: Of the first tensors, with sizes of axes that the batch leaves open.

    Raises:
        _WithoutRows: A tensor has no rows.
    """
    roles: list[int] = []
    for number, component in enumerate(batch if isinstance(batch, tuple) else (batch,)):
        roles += [(INPUT, TARGET, WEIGHT)[min(number, 2)]] * len(tf.nest.flatten(component))
    try:
        specs = zip(roles, flat, itertools.chain(shapes, itertools.repeat(())))
        return [
            Leaf.of_ragged(role, component)
            if isinstance(component, tf.RaggedTensor)
            else Leaf.of(role, component, shape)
            for role, component, shape in specs
            if component is not None
        ]
    except ValueError as error:
        raise _WithoutRows(str(error)) from None


def losses_and_metrics(model: Model) -> list[Any]:
    """What a model was compiled with, and its other metrics: their state in Python is tried with themselves."""
    # Keras 3's `compiled_loss` is a method, through which all of the model would be reached.
    compiled_losses = [vars(model).get(name) for name in ("_compile_loss", "compiled_loss")]
    return [*compiled_losses, *model.metrics]


def _precision(model: Model) -> int:
    """The bytes of a number in a model's computations: 2 in half precision, else 8, whatever they are."""
    computes = {str(getattr(layer, "compute_dtype", "")) for layer in model._flatten_layers()}
    return 2 if computes & {"float16", "bfloat16"} else 8


def _variables(model: Model) -> list[Any]:
    """Variables of a model other than weights: some reads of them pass by TensorFlow's operation that is recorded."""
    variables = [getattr(getattr(model, "optimizer", None), "iterations", None)]
    for layer in model._flatten_layers():
        for name in ("_non_trainable_variables", "_non_trainable_weights"):
            variables += getattr(layer, name, ())
        variables += [value for value in vars(layer).values() if isinstance(value, tf.Variable)]
    return [variable for variable in variables if hasattr(variable, "dtype")]  # vocabularies of Keras 2 have none


def _of_tensorflow(variables: Iterable[Any]) -> list[Any]:
    """TensorFlow's variables inside of Keras 3's, which have none until they are built."""
    tensors = (getattr(variable, "_value", variable) for variable in variables)
    return [variable for variable in tensors if variable is not None]


def _arrays(value: Any) -> list[np.ndarray]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [_compressed(item) for item in values if item is not None]


def _compressed(value: Any) -> np.ndarray:
    """`value` as an array. A large one is compressed, linearly, to sums with random signs."""
    if is_sparse(value):
        signs = np.random.default_rng(1).choice((-1, 1), _SIGNS)[np.asarray(value.indices) % _SIGNS]
        values = np.asarray(value.values)
        return np.tensordot(signs.astype(values.dtype), values, 1)
    array = np.asarray(tf.convert_to_tensor(value))
    if array.size <= _MOST_NUMBERS:
        return array
    flat = np.pad(array.reshape(-1), (0, -array.size % _MOST_NUMBERS)).reshape(-1, _MOST_NUMBERS)
    signs = np.random.default_rng(2).choice((-1, 1), len(flat))
    return np.tensordot(signs.astype(array.dtype), flat, 1)
