"""Tasks of Spark with a model, which each Python worker loads once."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping

from .. import lambda_layers
from ..data import by_value, packing
from ..spark.settings import conf_of
from . import batches as arrow_batches
from . import scorer

if TYPE_CHECKING:
    from ..spark.pyspark_types import SparkContext
    from .records import Plan

#: What a partition's rows become.
Task = Callable[[Iterable[Any]], Iterator[Any]]

#: (id of the Spark application, hash of the model) -> its broadcast. Spark keeps a file of each on the driver's disk
#: until the application ends, for a DataFrame that may be scored later.
_broadcasts: dict[tuple[str, str], Any] = {}


class Tasks:
    """Makes Spark tasks of functions of self-contained modules.

    model: the bytes of a `.keras` file. custom_objects, code_python: as `lambda_layers.load` takes them. compiled:
    whether the model has its loss and metrics.
    """

    def __init__(
        self,
        sc: SparkContext,
        model: bytes,
        custom_objects: Mapping[str, Any],
        code_python: str | None = None,
        compiled: bool = False,
    ) -> None:
        digest = hashlib.sha256(model).hexdigest()
        if (sc.applicationId, digest) not in _broadcasts:
            _broadcasts[sc.applicationId, digest] = sc.broadcast(model)
        self._model, self._custom_objects = _broadcasts[sc.applicationId, digest], dict(custom_objects)
        self._compiled, self._code_python = compiled, code_python
        self._key = digest + ("compiled" if compiled else "") + (code_python or "")
        self._key += uuid.uuid4().hex if custom_objects else ""
        self._threads = int(conf_of(sc).get("spark.task.cpus") or 1)
        self._scorer = by_value.functions_of(scorer)
        self._packing = by_value.functions_of(packing)
        self._load = by_value.functions_of(lambda_layers)["load"]
        self._make_arrays = self._packing["row_arrays"]

    def __call__(self, function: Callable[..., Any], **arguments: Any) -> Task:
        """The task of a function of scorer.py, which gets rows, a function that returns the model, and arguments."""
        shipped, get, make_arrays = self._scorer[function.__name__], self.getter(), self._make_arrays

        return lambda rows: shipped(rows, get, make_arrays=make_arrays, **arguments)

    def of_batches(self, plan: Plan) -> Task:
        """The task that scores pyarrow.RecordBatches, whose columns of the plan hold numbers or arrays of them."""
        shipped, get = by_value.functions_of(arrow_batches)["score_batches"], self.getter()
        column_arrays, values = self._packing["column_arrays"], self._packing["batch_values"]
        call, checked, weights_dtype = (self._scorer[name] for name in ("call", "checked", "weights_dtype"))

        def make_arrays(batch: Any, plan: Plan) -> Any:
            inputs = plan["inputs"]
            column_values = values([batch.column(index) for index in plan["indices"]], inputs["columns"])
            arrays = column_arrays(column_values, inputs["columns"], inputs["tensors"])
            return checked(arrays, inputs, weights_dtype(get()))

        return lambda batches: shipped(batches, get, plan, make_arrays, call)

    def getter(self) -> Callable[[], Any]:
        """On an executor, a function that returns the model."""
        loaded, read_model = self._scorer["loaded"], self._scorer["read_model"]
        key, model, custom_objects = self._key, self._model, self._custom_objects
        threads, compiled, load, code_python = self._threads, self._compiled, self._load, self._code_python

        def with_objects(path: str, **options: Any) -> Any:
            return load(path, custom_objects, code_python, **options)

        return lambda: loaded(key, lambda: read_model(model.value, threads, compiled, with_objects))

    def batches(self, **arguments: Any) -> Callable[[Iterable[Any], Any], Iterator[Any]]:
        """On an executor, `scorer.labelled` with these arguments."""
        labelled, make_arrays = self._scorer["labelled"], self._make_arrays

        return lambda rows, model: labelled(rows, model, make_arrays=make_arrays, **arguments)
