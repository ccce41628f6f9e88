"""What an evaluation on Spark has found: metrics, and tables and figures made of counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ddl_magics.dashboard.svg import COLOURS
from ddl_magics.dashboard.text import number
from ddl_magics.errors import NotInEvaluation
from ddl_magics.wording import counted, nearest

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SIZE = 460
#: So many classes have their numbers in the cells of the confusion matrix.
_WITH_NUMBERS = 20


class Evaluation(Mapping[str, Any]):
    """The metrics of a model over the rows of a DataFrame, by name, as Keras' `evaluate(return_dict=True)` has them.

    Where an output of the model has labels of its own, there are also errors, a confusion matrix and ROC curves.
    `output` names one of several outputs. A row counts once there, whatever its weight.

    Attributes:
        rows: how many rows there were.
    """

    def __init__(self, counts: Mapping[str, Any]) -> None:
        self.rows: int = counts["rows"]
        self._metrics: dict[str, Any] = dict(counts["metrics"])
        self._outputs: dict[str, Any] = dict(counts["outputs"])
        self._notices: list[str] = list(counts.get("notices", ()))

    def __getitem__(self, name: str) -> Any:
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def __repr__(self) -> str:
        metrics_text = [f"{name} {number(value)}" for name, value in self.items() if isinstance(value, int | float)]
        metrics = ", ".join(metrics_text) or "no metrics: the model was not compiled"
        return f"<Evaluation of {counted(self.rows, 'row')}: {'; '.join([metrics, *self._notices])}>"

    def errors(self, output: str = "") -> dict[str, float]:
        """`mae`, `rmse` and, of the values whose label is not 0, `mape` in percent.

        Raises:
            NotInEvaluation: a LookupError; the labels have another shape than the output.
        """
        sums = self._of(output)["errors"]
        if sums is None:
            raise NotInEvaluation("there are no errors: the labels have another shape than the model's output")
        values, absolute, squared, present, relative = sums
        mape = 100 * relative / present if present else float("nan")
        return {"mae": absolute / values, "rmse": float(np.sqrt(squared / values)), "mape": mape}

    def confusion(self, output: str = "") -> np.ndarray[Any, Any]:
        """How many rows of each class (first axis) were taken for each class: int64 of shape (classes, classes).

        A row is taken for the class with the largest value, and where there is one value a row, for 1 above 0.5.

        Raises:
            NotInEvaluation: the labels are no classes.
        """
        counts = self._of(output)
        if counts["confusion"] is None:
            raise NotInEvaluation(
                "there is no confusion matrix: the labels are no classes, or single values are not within 0 and 1"
            )
        matrix = np.zeros(counts["classes"] ** 2, np.int64)
        for cell, rows in counts["confusion"].items():
            matrix[int(cell)] = rows
        return matrix.reshape(counts["classes"], counts["classes"])

    def roc(self, output: str = "") -> dict[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Class -> (false positive rates, true positive rates), from 0 to 1, at a thousand thresholds.

        With one value a row there is the class 1 alone. A class that has all rows, or none, is left out.

        Raises:
            NotInEvaluation: the outputs are no probabilities, or the labels no classes.
        """
        scores = self._of(output)["scores"]
        if scores is None:
            raise NotInEvaluation(
                "there is no ROC curve: the outputs are not within 0 and 1, or the labels are no classes, or too many"
            )
        curves = {}
        for index, (negatives, positives) in enumerate(np.asarray(scores)):
            if negatives.sum() and positives.sum():
                rates = [np.concatenate([[0], np.cumsum(rows[::-1])]) / rows.sum() for rows in (negatives, positives)]
                curves[1 if len(scores) == 1 else index] = (rates[0], rates[1])
        return curves

    def confusion_figure(self, output: str = "") -> go.Figure:
        """The confusion matrix, as parts of each class' rows. Raises as `confusion`."""
        import plotly.graph_objects as go

        matrix = self.confusion(output)
        classes = [str(index) for index in range(len(matrix))]
        shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        heat = go.Heatmap(
            z=shares,
            x=classes,
            y=classes,
            zmin=0,
            zmax=1,
            colorscale="Blues",
            text=matrix,
            texttemplate="%{text}" if len(matrix) <= _WITH_NUMBERS else None,
            hovertemplate="%{text} rows of class %{y}, taken for %{x}<extra></extra>",
        )
        layout = _layout("predicted class", "class")
        layout["xaxis"].update(type="category")
        layout["yaxis"].update(type="category", autorange="reversed")
        return go.Figure(heat, layout)

    def roc_figure(self, output: str = "") -> go.Figure:
        """The ROC curve of each class against the others, with the area below it. Raises as `roc`."""
        import plotly.graph_objects as go

        curves = self.roc(output)
        figure = go.Figure(layout=_layout("false positive rate", "true positive rate"))
        figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": "#9aa3ad", "dash": "dot"}, showlegend=False)
        for position, (index, (false, true)) in enumerate(curves.items()):
            area = float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))
            colour = COLOURS[position % len(COLOURS)]
            figure.add_scatter(
                x=false, y=true, mode="lines", name=f"class {index}, area {area:.4f}", line={"color": colour}
            )
        figure.update_layout(showlegend=True)
        return figure

    def _of(self, output: str) -> Any:
        if output in self._outputs:
            return self._outputs[output]
        if not output and len(self._outputs) == 1:
            return next(iter(self._outputs.values()))
        if not self._outputs:
            raise NotInEvaluation("no output of the model has labels of its own")
        if not output:
            raise NotInEvaluation(f"the model has several outputs: name one of {', '.join(self._outputs)}")
        raise NotInEvaluation(f"the model has no output {output} with labels.{nearest(output, list(self._outputs))}")


def _layout(across: str, up: str) -> dict[str, Any]:
    return {
        "template": "plotly_white",
        "width": _SIZE,
        "height": _SIZE,
        "margin": {"l": 60, "r": 20, "t": 30, "b": 60},
        "xaxis": {"title": {"text": across}},
        "yaxis": {"title": {"text": up}},
        "legend": {"x": 0.98, "y": 0.04, "xanchor": "right", "yanchor": "bottom"},
    }
