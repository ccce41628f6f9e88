"""Weighs added losses, averages, and the gradients of the cell's own step, as the trial of the step has shown.

The compiled loss of a step of Keras is weighed in gradients/batch_loss.py.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import tensorflow as tf

from ..gradients.exchange import scaled
from ..gradients.traced_step import TracedStep
from ..gradients.within_step import WithinStep
from ..keras_types import Gradient, Tensor
from ..rank.reporter import Reporter
from ..trial import COUPLED, MEAN, SUM

_REFUSED = (
    "the loss of %s is neither a mean nor a sum over the rows of a batch, so that workers cannot put it together: "
    "gather the rows that it looks at with ddl.all_gather(tensor), or use --strategy ps"
)
CLIPS = "; it clips gradients, each worker's by themselves: give the optimizer global_clipnorm or clipnorm instead"
MAKES_GRADIENTS = "; its optimizer makes gradients, each worker its own: change them in apply_gradients instead"
TAKES_LENGTHS = "; it takes a length from its rows: fix it, or cut and pad in the dataset, whose batches are whole"
_ADDED = (
    "the loss that the layer %r adds is neither a mean nor a sum over the rows of a batch, so that workers cannot put "
    "it together: gather the rows that it looks at with ddl.all_gather(tensor), or use --strategy ps"
)
_UNSEEN = "the loss that the layer %r adds in training alone could not be tried: it is taken for a mean over rows"
_UNSEEN_UPDATE = (
    "an update that %s makes now and then could not be tried: its loss is taken for a mean over the rows of a batch"
)
_WHOLE_ONLY = (
    "%s fails on a part of a batch (%s): workers split each batch along its first axis. If that axis is not rows, use "
    "--strategy ps, whose workers take whole batches, or mark a dataset of each worker's own with ddl.local(...)"
)
_IN_PYTHON = (
    "%s sets %r in Python from the rows of a batch, and each worker has a part of them, so that its value is not the "
    "one of one process: set it from ddl.all_gather(tensor), which has the rows of all workers"
)
_INEXACT = "%r of %s is neither a mean nor a sum over the rows of a batch: it is the mean of the workers' values"
_UNTRIED = "what %s does to the rows of a batch could not be tried (%s): its loss is taken for a mean over rows"

#: Categories of recorded values: means over a model's outputs and over their squares, and the gradients of these.
OUTPUTS, SLOPES = "outputs", "slopes"


class Notes:
    """Values that a step has recorded in its trial, by (category, number), and names of some."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, Any], Any] = {}
        self.names: dict[tuple[str, Any], str] = {}
        self._counts: dict[str, int] = {}

    def note(self, category: str, value: Any, name: str = "") -> int:
        """Record a value. Returns its number in its category."""
        number = self._counts.get(category, 0)
        self._counts[category] = number + 1
        self.values[category, number], self.names[category, number] = value, name
        return number


class Kinds(NamedTuple):
    """The result of a trial: a kind for each recorded value, and names of some.

    Attributes:
        kinds: MEAN, SUM or COUPLED, by (category, number).
        names: For messages.
        reason: Why the trial has no result, if it has none.
        gathers: The step itself gathers the rows of all ranks.
        whole_only: The step fails on a slice of a batch.
        hint: Added to the message that refuses the step.
        in_python: Names of what the step sets in Python from its rows.
    """

    kinds: dict[tuple[str, Any], str]
    names: dict[tuple[str, Any], str]
    reason: str = ""
    gathers: bool = False
    whole_only: bool = False
    hint: str = ""
    in_python: tuple[str, ...] = ()

    def of(self, category: str) -> dict[Any, str]:
        """{number or name: kind} of a category."""
        return {number: kind for (noted, number), kind in self.kinds.items() if noted == category}


class StepWeighing:
    """Weighs the values of the step that is being traced, or records them in its trial.

    traced: the step that is being traced. summed_logs: names of the returned values that are sums over rows, for
    training steps (True) and test steps (False).
    """

    def __init__(self, traced: TracedStep, within: WithinStep, reporter: Reporter) -> None:
        self.traced, self._within, self._reporter = traced, within, reporter
        self._notes: Notes | None = None
        self._kinds: Kinds | None = None
        self._counts: dict[str, int] = {}
        self._name = ""  # of the step
        self.summed_logs: dict[bool, frozenset[str]] = {}

    @property
    def tries(self) -> bool:
        """Whether a step is being tried."""
        return self._notes is not None

    def noting(self, step: Callable[[], Any]) -> tuple[Any, Notes]:
        """Run `step` and record its values. Returns its result and the records."""
        self._notes = notes = Notes()
        try:
            return step(), notes
        finally:
            self._notes = None

    @contextlib.contextmanager
    def step(self, kinds: Kinds | None, name: str, training: bool) -> Iterator[None]:
        """A step is being traced.

        Args:
            kinds: What its trial found; None for Keras' own train_step and losses.
            name: Of the step, for messages.

        Raises:
            ValueError: The ranks cannot put the step's losses together.
        """
        try:
            self._begin(kinds, name, training)
            yield
        finally:
            self._kinds = None

    def _begin(self, kinds: Kinds | None, name: str, training: bool) -> None:
        self._kinds, self._counts, self._name = kinds, {}, name
        self.traced.sums = False
        if kinds is None:
            return
        if kinds.whole_only:
            raise ValueError(_WHOLE_ONLY % (name, kinds.reason))
        if kinds.reason:
            self._reporter.notice_once("warning", _UNTRIED % (name, kinds.reason))
        for in_python in kinds.in_python:
            self._reporter.notice_once("warning", _IN_PYTHON % (name, in_python))
        self._refuse(kinds, name)
        updates = kinds.of("update").values()
        self.traced.sums = bool(updates) and all(kind == SUM for kind in updates)
        self.summed_logs[training] = frozenset(name for name, kind in kinds.of("log").items() if kind == SUM)

    def _refuse(self, kinds: Kinds, name: str) -> None:
        if kinds.gathers:
            return
        for number, kind in kinds.of("added").items():
            if kind == COUPLED:
                raise ValueError(_ADDED % kinds.names["added", number])
        if COUPLED in kinds.of("update").values():
            raise ValueError(_REFUSED % name + kinds.hint)
        for category in ("averaged", "weights", "log"):
            for number, kind in kinds.of(category).items():
                if kind == COUPLED:
                    self._reporter.notice_once(
                        "warning", _INEXACT % (kinds.names.get((category, number), number), name)
                    )

    def note_update(self, gradients: Sequence[Gradient]) -> None:
        """Record the gradients that an optimizer gets in a trial."""
        assert self._notes is not None
        self._notes.note("update", list(gradients))

    def note_outputs(self, outputs: Any) -> Tensor:
        """Record the outputs of a model in its trial. Returns the sum of the recorded values."""
        assert self._notes is not None
        tensors = [tensor for tensor in tf.nest.flatten(outputs) if tf.is_tensor(tensor) and tensor.dtype.is_floating]
        means = [tf.reduce_mean(power) for tensor in tensors for power in (tensor, tensor * tensor)]
        self._notes.note(OUTPUTS, means)
        return tf.add_n([tf.cast(mean, tf.float64) for mean in means] or [tf.zeros([], tf.float64)])

    def note_slopes(self, gradients: Sequence[Gradient]) -> None:
        """Record the gradients of a model's outputs in its trial; none of them if one is not finite."""
        assert self._notes is not None
        values = [getattr(gradient, "values", gradient) for gradient in gradients if gradient is not None]
        finite = all(bool(tf.reduce_all(tf.math.is_finite(value))) for value in values)
        self._notes.note(SLOPES, list(gradients) if finite else [])

    def added(self, layer: str, loss: Tensor) -> Tensor:
        """Weigh a loss that a layer adds, as a term of the job's loss."""
        if self._notes is not None:
            kind = self.traced.added.get(self._notes.note("added", tf.reduce_sum(loss), layer))
        else:
            kind = self._kind("added", unseen=_UNSEEN % layer)
        return loss * tf.cast(self._within.rows_over_own(), loss.dtype) if kind == SUM else loss

    def averaged(self, metric: str, value: Any, weight: Any = None) -> tuple[Any, Any]:
        """Weigh a scalar that a train_step averages, or sums, over batches, as one over the global batches.

        Args:
            weight: A scalar; None is 1.

        Returns:
            (value, weight) for the update of the average.
        """
        if self._notes is not None:
            self._notes.note("averaged", value, metric)
            self._notes.note("weights", 1.0 if weight is None else weight, metric)
            return value, weight
        kind, of_weight = self._kind("averaged"), self._kind("weights")
        if kind is None:
            return value, weight
        ratio = self._within.rows_over_own()
        if kind == SUM:
            value = _float64(value) * ratio
        weight = _float64(1.0 if weight is None else weight)
        return value, weight if of_weight == SUM else weight / ratio

    def weighed(self, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        """Scale the gradients of an update to those of a mean over rows, which exchange.py expects."""
        if self._kind("update", unseen=_UNSEEN_UPDATE % self._name) != SUM:
            return gradients
        ratio = self._within.rows_over_own()
        return [scaled(gradient, ratio) for gradient in gradients]

    def _kind(self, category: str, unseen: str = "") -> str | None:
        """The kind of the next value of a category; None without a trial. unseen: warns of a value that it lacks."""
        if self._kinds is None or self.traced.share is None:
            return None
        number = self._counts.get(category, 0)
        self._counts[category] = number + 1
        if unseen and (category, number) not in self._kinds.kinds and not self._kinds.reason:
            self._reporter.notice_once("warning", unseen)
        return self._kinds.kinds.get((category, number), MEAN)


def _float64(scalar: Any) -> Tensor:
    return tf.cast(scalar, tf.float64)
