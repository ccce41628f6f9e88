"""A loss that `compile` was given, as a rank computes it in a step."""

from __future__ import annotations

from typing import Any

from ..gradients.batch_loss import BatchLoss, Loss, of_loss
from ..gradients.masked_loss import MEANS
from ..keras_types import Tensor, is_along_rows
from ..trial import COUPLED, MEAN, OUTPUT, SUM, TARGET, WEIGHT

#: Functions of Keras that look at the whole batch.
_COUPLING = ("circle", "dice", "tversky")


class CompiledLoss:
    """Takes the place of a loss object among a model's; in all but its call it is that object."""

    def __init__(self, loss: Any, batch_loss: BatchLoss) -> None:
        self._loss, self._batch_loss = loss, batch_loss

    def __getattr__(self, name: str) -> Any:
        if name in ("_loss", "_batch_loss"):  # of a copy in the making
            raise AttributeError(name)
        return getattr(self._loss, name)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        arguments = of_loss((y_true, y_pred, sample_weight), (TARGET, OUTPUT, WEIGHT))
        name = repr(str(getattr(self._loss, "name", type(self._loss).__name__)))
        loss = Loss(self._loss, name, self._loss, self._kind_if_of_keras(y_pred, sample_weight))
        return self._batch_loss(loss, arguments)

    def _kind_if_of_keras(self, y_pred: Any, sample_weight: Any) -> str | None:
        """What Keras' own losses do to rows; None for another."""
        loss = self._loss
        function, arguments = getattr(loss, "fn", None), getattr(loss, "_fn_kwargs", {})
        modules = [type(loss).__module__] + ([function.__module__] if function is not None else [])
        if not all(module.startswith("keras.src.losses") for module in modules):
            return None
        if getattr(function, "__name__", "") in _COUPLING or is_along_rows(arguments.get("axis")):
            return None
        if loss.reduction in MEANS:
            return MEAN
        if loss.reduction == "sum":
            return SUM
        weighed = sample_weight is not None or getattr(y_pred, "_keras_mask", None) is not None
        return COUPLED if weighed or loss.reduction != "mean_with_sample_weight" else MEAN
