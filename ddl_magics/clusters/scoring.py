"""Predictions on Spark: a DataFrame in, a DataFrame out, scored where its rows are."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ddl_magics.errors import CannotExport, CannotScore
from ddl_magics.runtime import events as ev
from ddl_magics.runtime import lambda_layers
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RUN_ID, trained_models
from ddl_magics.store.files import read_bounded

if TYPE_CHECKING:
    from ddl_magics.dashboard.evaluation import Evaluation
    from ddl_magics.runtime.data.records import Inputs
    from ddl_magics.runtime.data.transform import Transform

#: The file that describes the model in the folder of an export.
DESCRIPTION = "ddl_magics.json"
#: It has an example of the model's input, such as an image.
MAX_DESCRIPTION_BYTES = 64 << 20
#: Of its texts that become paths and parts of messages.
_FORMS = {"format": re.compile("[a-z_]{1,32}"), "model": re.compile(r"([A-Za-z0-9_]+/)?[A-Za-z0-9_]+\.[a-z]+")}
#: pyspark's, which may not be installed.
DataFrame = Any


def predict(
    df: DataFrame,
    model: Any,
    *,
    features: Sequence[str] | Inputs | None = None,
    output: str = "prediction",
    batch_size: int = 1024,
    on_error: str = "fail",
    custom_objects: Mapping[str, Any] | None = None,
    transform: Transform | None = None,
    transform_batches: bool = False,
) -> DataFrame:
    """A Spark DataFrame with a model's predictions beside its columns.

    It is lazy: Spark scores the rows when they are needed, on its executors, each of which loads the model once. Only
    the first row is scored at once, which tells the types of the new columns.

    Args:
        df: a DataFrame of a Spark session in this process. Not one that streams: score the batches of `foreachBatch`.
        model: a Keras model, or the path of a `.keras` file, or of the folder of an export.
        features: the columns of the model's input, as `--features` takes them; `["image=pixels", "meta=a+b"]` for
            several inputs. An export of a run with `--data` knows them.
        output: the name of the new column. It holds a number where the model makes one a row, else an array. A model
            with several outputs adds a column `prediction_NAME` for each.
        batch_size: rows that the model is called with at once, or fewer where they are large.
        on_error: "fail" where a row has no value in a feature, or one of another shape; "null" for rows without a
            prediction instead.
        custom_objects: classes and functions that the model uses, by name.
        transform: makes the model's input of the features of a row, as the function of `--transform`.
        transform_batches: whether it takes the features of a batch instead.

    Raises:
        CannotScore: a ValueError of one line; a column is missing, or the first row cannot be scored.
    """
    from ddl_magics.runtime.data.columns import DataError
    from ddl_magics.runtime.scoring.predictor import Predictor

    model, features = _opened(model, features)
    content, function = model_content(model), _prepared(transform, transform_batches)
    try:
        predictor = Predictor(
            content,
            features,
            output=output,
            batch_rows=batch_size,
            on_error=on_error,
            **_lambda_layers(model, content, custom_objects),
            transform=function,
        )
        return predictor.predict(df)
    except DataError as error:
        raise CannotScore(str(error)) from None


def evaluate(
    df: DataFrame,
    model: Any,
    *,
    features: Sequence[str] | Inputs | None = None,
    label: str | None = None,
    weight: str | None = None,
    batch_size: int = 1024,
    custom_objects: Mapping[str, Any] | None = None,
    transform: Transform | None = None,
    transform_batches: bool = False,
) -> Evaluation:
    """A model's metrics over all rows of a Spark DataFrame: what Keras' `evaluate` says of them in one process.

    Spark's executors evaluate the rows where they are; what they add to the states of the metrics is added up. A metric
    that is not Keras' own may not add up: it is updated in one task with the outputs of all rows, which fit into its
    memory. A loss that is no mean over rows depends on the batches, as it does in Keras.

    Args:
        df: a DataFrame of a Spark session in this process.
        model: as for `predict`. Its metrics are those that it was compiled with.
        features: as for `predict`.
        label: the column of the labels, as `--label` takes it; `"y1=a,y2=b"` for several outputs.
        weight: the column of the rows' weights.
        batch_size: rows that the model is called with at once, or fewer where they are large.
        custom_objects: classes and functions that the model, its loss and its metrics use, by name.
        transform, transform_batches: as for `predict`.

    Raises:
        CannotScore: a ValueError of one line; a column is missing, or a row cannot be evaluated.
    """
    from ddl_magics.dashboard.evaluation import Evaluation
    from ddl_magics.runtime.data.columns import DataError
    from ddl_magics.runtime.scoring import evaluation

    model, features = _opened(model, features)
    if label is None:
        raise CannotScore("name the column of the labels: label='y'")
    content, function = model_content(model), _prepared(transform, transform_batches)
    try:
        evaluated = evaluation.evaluate(
            df,
            content,
            features,
            label=label,
            weight=weight,
            batch_rows=batch_size,
            **_lambda_layers(model, content, custom_objects),
            transform=function,
        )
    except DataError as error:
        raise CannotScore(str(error)) from None
    return Evaluation(evaluated)


def _prepared(function: Transform | None, by_batch: bool) -> Transform | None:
    from ddl_magics.runtime.scoring.predictor import prepared

    return None if function is None else prepared(function, by_batch)


def _opened(model: Any, features: Sequence[str] | Inputs | None) -> tuple[Any, Sequence[str] | Inputs]:
    """(model or the path of its file, features); a model may be the folder of an export."""
    if isinstance(model, str | Path) and (Path(model) / DESCRIPTION).is_file():
        model, inputs = exported(Path(model))
        features = features or inputs
    if features is None:
        raise CannotScore("name the columns of the model's input: features=['a', 'b']")
    return model, features


def exported(folder: Path) -> tuple[Path, Inputs | None]:
    """(file of the Keras model, the columns of its input if known) in the folder of an export.

    Raises:
        CannotScore: it is no export, or its format cannot be used for scoring.
    """
    try:
        description = description_of(folder)
    except CannotExport as error:
        raise CannotScore(str(error)) from None
    if not description["model"].endswith(".keras"):
        raise CannotScore(
            f"{folder} has the format {description['format']}: give an export in the format keras or mlflow"
        )
    return folder / description["model"], description["inputs"]


def description_of(folder: Path) -> dict[str, Any]:
    """The description of an export, which may be a stranger's. `run` is empty where it is the id of none.

    Raises:
        CannotExport: the folder is no export, or its description is damaged.
    """
    try:
        description: dict[str, Any] = json.loads(read_bounded(folder / DESCRIPTION, MAX_DESCRIPTION_BYTES))
        of_known_form = all(form.fullmatch(description[name]) for name, form in _FORMS.items())
        of_known_form = of_known_form and isinstance(description["versions"], dict)
        inputs = description.get("inputs")
        of_known_form = of_known_form and (inputs is None or _are_inputs(inputs))
    except OSError as error:
        if (folder / DESCRIPTION).is_file():
            raise CannotExport(f"{folder / DESCRIPTION} cannot be read: {error.strerror}") from None
        raise CannotExport(f"{folder} is no exported model: it has no {DESCRIPTION}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        of_known_form = False
    if not of_known_form:
        raise CannotExport(f"{folder / DESCRIPTION} is damaged: export the model again")
    run = str(description.get("run", ""))
    return {**description, "run": run if RUN_ID.fullmatch(run) else "", "inputs": inputs}


def _are_inputs(stored: Any) -> bool:
    """Whether a JSON value is of the form of `Inputs`. A KeyError, TypeError or AttributeError says no, too."""
    columns, tensors, features, shapes = (stored[name] for name in ("columns", "tensors", "features", "shapes"))
    window = stored.get("window", {"length": 1, "order_by": "", "group_by": []})
    return (
        all(_are(str, [column["name"], column["dtype"]]) for column in columns)
        and all(_are(int, [column["depth"], column["vector"]]) for column in columns)
        and all(_are_indices(tensor, columns) for tensor in tensors)
        and _are_indices([*features.values()] if isinstance(features, dict) else [features], tensors)
        and _are(str, stored["uses"])
        and len(stored["uses"]) == len(tensors)
        and (shapes is None or (len(shapes) == len(tensors) and all(_are(int, shape) for shape in shapes)))
        and _are(int, [window["length"]])
        and _are(str, [window["order_by"], *window["group_by"]])
    )


def _are(kind: type, values: list[Any]) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def _are_indices(values: list[Any], of: list[Any]) -> bool:
    return _are(int, values) and all(0 <= value < len(of) for value in values)


def model_content(model: Any) -> bytes:
    """The bytes of a `.keras` file. Raises `CannotScore`."""
    if isinstance(model, str | Path):
        try:
            return Path(model).read_bytes()
        except OSError as error:
            advice = "give the path of a .keras file, or the folder of an export"
            raise CannotScore(f"{model} cannot be read ({error.strerror}): {advice}") from None
    if not callable(getattr(model, "save", None)):
        kind = type(model).__qualname__
        raise CannotScore(f"a {kind} cannot score rows: give a Keras model, or the path of a .keras file")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def _lambda_layers(model: Any, content: bytes, custom_objects: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options for the Lambda layers of a model: a Keras model of this process, or a file that a run has trained."""
    python = trained_models.python_of(content) if isinstance(model, str | Path) else lambda_layers.this_python()
    return {
        "code_python": python,
        "custom_objects": lambda_layers.objects_of_notebook(content, python, custom_objects),
    }


def training_inputs(run: str, spec: RunSpec, events: Iterable[ev.RawEvent]) -> Inputs:
    """How a run made its model's inputs from a DataFrame.

    Raises:
        CannotScore: it was trained without --data.
    """
    data = list(ev.select(ev.Data, events))
    if not data:
        raise CannotScore(f"{run} was trained without --data: name the model's columns, features=['a', 'b']")
    inputs = cast("Inputs", data[-1].inputs)
    if spec.sequence_length is not None and spec.order_by is not None:
        inputs = {
            **inputs,
            "window": {
                "length": spec.sequence_length,
                "order_by": spec.order_by,
                "group_by": list(spec.group_by or ()),
                "horizon": 1 if spec.horizon is None else spec.horizon,
                "stride": spec.sequence_stride or 1,
            },
        }
    return inputs
