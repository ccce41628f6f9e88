"""Losses of the whole global batch, computed by ranks that have a slice of it each.

A loss that is a mean over rows is computed on the slice, as exchange.py weighs gradients by rows. One that is a sum
is scaled for that. Any other is computed on the rows of all ranks, by every rank: its targets and the model's outputs
are gathered, and the gradient flows back through the rank's own outputs alone. The sum over ranks is that of one
process.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple, Sequence

import tensorflow as tf

from ..keras_types import Tensor
from ..rank.reporter import Reporter
from ..trial import COUPLED, MEAN, SUM, Leaf, Verdict, try_loss
from .batch import LocalShare
from .gathering import gather_for_one_loss
from .traced_step import AS_DECLARED, OF_CUT, OF_LOCAL, TracedStep
from .within_step import WithinStep

_GATHERED = "the loss %s looks at the whole batch: outputs are exchanged in each step, %s"
_UNTRIED = (
    "what the loss %s does to the rows of a batch could not be tried (%s): outputs are exchanged in each step, %s"
)
_REFUSED = (
    "the loss %s is neither a mean nor a sum over the rows of a batch%s, and --gather no forbids to exchange outputs: "
    "leave the option out, or use --strategy ps"
)
_NO_ROWS = "the loss %s gets %s: it is taken for a mean over the rows of a batch"


class Arguments:
    """The arguments of a loss or a metric: nested tensors. roles: of each tensor or None in them."""

    def __init__(self, values: Sequence[Any], roles: Sequence[int]) -> None:
        self.values = values
        self._roles = roles
        self._flat = tf.nest.flatten(list(values))
        self._present = [i for i, value in enumerate(self._flat) if value is not None]

    def tensors(self) -> list[Tensor]:
        """The tensors, followed by the masks that Keras has attached to some of them."""
        present = [self._flat[i] for i in self._present]
        return present + [each._keras_mask for each in present if _has_mask(each)]

    def leaves(self) -> list[Leaf]:
        """The roles, shapes and dtypes of the tensors.

        Raises:
            ValueError: A tensor has no rows.
        """
        return [Leaf.of(self._roles[i], self._flat[i]) for i in self._present]

    def packed(self, tensors: Sequence[Tensor]) -> Any:
        """The arguments with other `tensors`, in the order of `tensors()`. Their masks may be left out."""
        flat, masks = list(self._flat), list(tensors[len(self._present) :])
        for i, tensor in zip(self._present, tensors):
            if masks and _has_mask(flat[i]):
                tensor._keras_mask = masks.pop(0)
            flat[i] = tensor
        return tf.nest.pack_sequence_as(list(self.values), flat)


def of_loss(values: Sequence[Any], roles: Sequence[int]) -> Arguments:
    """The arguments of a loss. roles: of each value with all tensors in it."""
    return Arguments(values, [role for value, role in zip(values, roles) for _ in tf.nest.flatten(value)])


def _has_mask(tensor: Tensor) -> bool:
    return getattr(tensor, "_keras_mask", None) is not None


class Loss(NamedTuple):
    """A function of a batch.

    name: for messages. owner: whose loss it is; the verdict is kept for it. kind: MEAN or SUM, if no trial is needed.
    scales: a sum may be scaled by a factor, because all of its terms are sums over rows.
    """

    function: Callable[..., Tensor]
    name: str
    owner: Any
    kind: str | None = None
    scales: bool = True


class BatchLoss:
    """Computes a rank's losses so that they and their gradients are those of the global batch.

    gather: "auto", "yes" or "no", the value of --gather.
    """

    def __init__(self, traced: TracedStep, within: WithinStep, reporter: Reporter, gather: str) -> None:
        self._traced, self._within, self._reporter, self._gather = traced, within, reporter, gather
        self._verdicts: dict[Any, tuple[Any, Verdict]] = {}
        self._reported: set[str] = set()

    def __call__(self, loss: Loss, arguments: Arguments) -> Tensor:
        """The value of `loss` of a step's arguments."""
        traced, function = self._traced, loss.function
        if traced.weighed or (traced.factor is None and (traced.share is None or traced.alone)):
            return function(*arguments.values)
        verdict = self._verdict(loss, arguments)
        with traced.state(weighed=True):
            if verdict.kind == MEAN:
                return function(*arguments.values)
            if verdict.kind == SUM and loss.scales:
                value = function(*arguments.values)
                traced.as_sum = OF_LOCAL if isinstance(traced.share, LocalShare) else OF_CUT
                if traced.declared:
                    traced.as_sum = AS_DECLARED
                    return value
                return value * tf.cast(self._within.rows_over_own(), value.dtype)
        if traced.factor is not None:
            return self._of_all_rows_in_trial(loss, arguments)
        if self._gather == "no":
            raise ValueError(_REFUSED % (loss.name, ", as far as a trial shows" if verdict.kind is None else ""))
        return self._of_all_rows(loss, arguments, verdict)

    def _verdict(self, loss: Loss, arguments: Arguments) -> Verdict:
        if loss.kind is not None and self._gather != "yes":
            return Verdict(loss.kind)
        try:
            leaves = arguments.leaves()
        except ValueError as error:
            self._reporter.notice_once("warning", _NO_ROWS % (loss.name, error))
            return Verdict(MEAN)
        if self._gather == "yes":
            return Verdict(COUPLED)
        key = (id(loss.owner), tuple(leaves))
        if key not in self._verdicts:  # the owner is kept, so that no other gets its id
            self._verdicts[key] = (loss.owner, self._try(loss, arguments, leaves))
        return self._verdicts[key][1]

    def _try(self, loss: Loss, arguments: Arguments, leaves: list[Leaf]) -> Verdict:
        def value(*tensors: Tensor) -> Tensor:
            return loss.function(*arguments.packed(tensors))

        with self._traced.state(alone=True, trial=True, factor=None):
            return try_loss(value, leaves, loss.owner)

    def _of_all_rows(self, loss: Loss, arguments: Arguments, verdict: Verdict) -> Tensor:
        tensors = arguments.tensors()
        positions = [i for i in range(len(tensors)) if i not in verdict.unused]
        used_tensors = [tensors[i] for i in positions]
        report = functools.partial(self._report, loss.name, verdict)
        gathered = gather_for_one_loss(self._within, used_tensors, report, self._traced.sums)
        for i, rows in zip(positions, gathered):
            tensors[i] = rows
        with self._traced.state(alone=True):
            return loss.function(*arguments.packed(tensors))

    def _of_all_rows_in_trial(self, loss: Loss, arguments: Arguments) -> Tensor:
        gathered = self._traced.gathering.rows(arguments.tensors())
        with self._traced.state(weighed=True, trial=False):
            return loss.function(*arguments.packed(gathered))

    def _report(self, name: str, verdict: Verdict, size: int) -> None:
        if self._gather == "yes":
            return
        amount = "%.1f MB" % (size / 1e6) if size >= 1e5 else "%.1f kB" % (size / 1e3)
        if verdict.kind is None:
            self._notice(_UNTRIED % (name, verdict.reason, amount), name)
        else:
            self._notice(_GATHERED % (name, amount), name)

    def _notice(self, message: str, name: str) -> None:
        """Once for each loss: the last batch of an epoch may have another size."""
        if name not in self._reported:
            self._reported.add(name)
            self._reporter.notice_once("info", message)
