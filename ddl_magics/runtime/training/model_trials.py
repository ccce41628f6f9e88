"""What trials find out about a step and its model: tried once for each kind of batch, and refused where it must be."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..keras_types import Batch
from ..trial import cell_code
from .step_states import ModelStep
from .step_trial import BY_LENGTHS, Shares
from .step_weighing import Kinds

_COUPLED_ROWS = (
    "the model %r couples the rows of a batch: its output for a row depends on other rows, and each worker gets a part "
    "of a batch; gather the rows that its layer looks at with ddl.all_gather(tensor), or use --strategy ps"
)
_LENGTHS = (
    "the model %r takes a length from the rows of a batch, as of the longest, and each worker gets a part of them: fix "
    "the length, or cut and pad in the dataset, whose batches are whole, or take that of all rows, by to_tensor() of a "
    "ragged tensor, tf.sequence_mask(lengths) or tf.reduce_max(ddl.all_gather(lengths)); or use --strategy ps"
)
_NUMPY = (
    "%s computes with NumPy: the trial with made-up rows does not see bounds there, such as that of "
    "np.maximum(rows, 1000); use TensorFlow's functions for them"
)


class ModelTrials:
    """The trials of one step of a model."""

    def __init__(self, step: ModelStep, is_of_cell: bool, replaces_step: bool) -> None:
        """
        Args:
            is_of_cell: The step, its loss or its metrics are code of the cell.
            replaces_step: The step itself is.
        """
        self._context, self._model, self._function, self._name = step.context, step.model, step.function, step.name
        self._is_of_cell = is_of_cell
        self._kinds: dict[str, Kinds] = {}
        self._is_model_untried = step.context.config.reduces_gradients and not replaces_step

    def kinds(self, batch: Batch) -> Kinds | None:
        """What the step does to rows like those of `batch`.

        Returns:
            None for a step of Keras, whose losses are tried one by one.
        """
        if not self._context.config.reduces_gradients or not self._needs_trial():
            return None
        key = str(tf.nest.map_structure(_dtype_and_shape, batch))
        if key not in self._kinds:
            if tf.executing_eagerly() and cell_code.uses_numpy(self._function):
                self._context.rank.reporter.notice_once("warning", _NUMPY % self._name)
            self._kinds[key] = self._context.trial(self._model, self._function, batch, self._shares(batch))
        return self._kinds[key]

    def _needs_trial(self) -> bool:
        optimizer = getattr(self._model, "optimizer", None)
        return self._is_of_cell or cell_code.adds_losses(self._model) or cell_code.makes_gradients(optimizer)

    def refuse_coupled_rows(self, batch: Batch) -> None:
        """Try the model once, before the first step of a fit.

        Raises:
            ValueError: Its output for a row depends on other rows.
        """
        model = self._model
        has_layers = any(True for _ in model._flatten_layers(include_self=False))
        if not self._is_model_untried or (has_layers and not model.built):
            return
        self._is_model_untried = False
        if not cell_code.has_code_of_the_cell(model):
            return
        coupled_by = self._context.trial.couples_rows(model, batch, self._shares(batch))
        if coupled_by:
            raise ValueError((_LENGTHS if coupled_by == BY_LENGTHS else _COUPLED_ROWS) % type(model).__name__)

    def _shares(self, batch: Batch) -> Shares:
        fit, size, rows = self._context.calls.fit, self._context.config.size, _static_rows(batch)
        if fit is None:
            return Shares(rows, size, rows * size)
        return Shares(rows, size, rows * size or fit.batch, fit.shapes)


def _dtype_and_shape(tensor: Any) -> Any:
    return None if tensor is None else (tensor.dtype, tensor.shape[1:])


def _static_rows(batch: Batch) -> int:
    """The rows that every batch of a rank has; 0 where their number may differ."""
    tensor_with_rows = next(
        (tensor for tensor in tf.nest.flatten(batch) if tf.is_tensor(tensor) and tensor.shape.rank), None
    )
    return 0 if tensor_with_rows is None else int(tensor_with_rows.shape[0] or 0)
