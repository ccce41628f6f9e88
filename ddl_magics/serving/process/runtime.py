"""MLServer's inference runtime for exported models: Open Inference Protocol, `/invocations`, counts and the log."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from fastapi import Request
from fastapi.responses import Response
from mlserver import MLModel
from mlserver.codecs.numpy import to_datatype, to_dtype
from mlserver.errors import InferenceError
from mlserver.handlers import custom_handler
from mlserver.settings import ModelSettings
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor, RequestInput, ResponseOutput

from ddl_magics.models.signature import Tensor
from ddl_magics.serving.process.batching import Batcher
from ddl_magics.serving.process.loading import Model
from ddl_magics.serving.process.statistics import Statistics
from ddl_magics.serving.request_log import RequestLog

Arrays = dict[str, np.ndarray]

#: How long the end of a version waits for its requests.
DRAIN_SECONDS = 30.0


@dataclass
class Context:
    """State that all versions in this process share.

    Attributes:
        log: the request log, or None.
        log_inputs: whether the log has the inputs of requests.
        sample: the share of requests that are logged.
        loaded: version -> model. MLServer creates `ExportedModel` from settings alone, so it looks up its model here.
    """

    log: RequestLog | None = None
    log_inputs: bool = True
    sample: float = 1.0
    statistics: Statistics = field(default_factory=Statistics)
    loaded: dict[str, Model] = field(default_factory=dict)


CONTEXT = Context()


class ExportedModel(MLModel):
    """One version of a served model. It is ready at once: its model is already loaded."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        assert settings.parameters is not None and settings.parameters.version is not None
        self._number = settings.parameters.version
        self._model = CONTEXT.loaded[self._number]
        self._batcher = Batcher(self._model.call)
        self._running = 0
        self.inputs = [_described(tensor) for tensor in self._model.inputs]
        self.outputs = [_described(tensor) for tensor in self._model.outputs]
        self.ready = True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request of the Open Inference Protocol, over REST or gRPC."""
        outputs = await self._answer(payload.id, lambda: self._decoded(payload))
        return InferenceResponse(
            model_name=self.name,
            model_version=self._number,
            id=payload.id,
            outputs=[
                ResponseOutput(name=name, shape=list(array.shape), datatype=to_datatype(array.dtype), data=_flat(array))
                for name, array in outputs.items()
            ],
        )

    @custom_handler(rest_path="/invocations")
    async def invocations(self, request: Request) -> Response:
        """MLflow's protocol: {"inputs": tensors} or {"instances": rows}, answered by {"predictions": ...}."""
        body = await request.body()
        try:
            outputs = await self._answer(None, lambda: self._of_invocation(body))
        except InferenceError as error:
            return Response(orjson.dumps({"error": str(error)}), 400, media_type="application/json")
        single = len(self._model.outputs) == 1
        predictions = {name: array if array.dtype != object else _texts(array) for name, array in outputs.items()}
        answer = {"predictions": next(iter(predictions.values())) if single else predictions}
        text = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY, default=lambda value: value.tolist())
        return Response(text, media_type="application/json")

    async def unload(self) -> bool:
        """Wait for the requests of this version."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._running and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self._batcher.close()
        CONTEXT.loaded.pop(self._number, None)
        return True

    async def _answer(self, request: str | None, decode: Callable[[], Arrays]) -> Arrays:
        """The outputs of a request, which is counted and logged.

        Raises:
            InferenceError: one line; the inputs do not fit the model, or the model raised.
        """
        began, since = time.time(), time.perf_counter()
        arrays: Arrays = {}
        outputs: Arrays | None = None
        problem: str | None = None
        rows = 0
        self._running += 1
        try:
            arrays = decode()
            rows = len(next(iter(arrays.values())))
            outputs = await self._batcher.predict(arrays, rows)
            return outputs
        except InferenceError as error:
            problem = str(error)
            raise
        except Exception as error:  # of TensorFlow, of many kinds
            problem = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise InferenceError(f"the model cannot be called with this: {problem}") from error
        finally:
            self._running -= 1
            latency = time.perf_counter() - since
            CONTEXT.statistics.count(latency, rows, problem is not None)
            if CONTEXT.log is not None and (CONTEXT.sample >= 1 or random.random() < CONTEXT.sample):
                CONTEXT.log.write(
                    {
                        "time": began,
                        "id": request or uuid.uuid4().hex,
                        "model": self.name,
                        "version": self._number,
                        "rows": rows,
                        "inputs": {n: _texts(array) for n, array in arrays.items()} if CONTEXT.log_inputs else None,
                        "outputs": outputs and {name: _texts(array) for name, array in outputs.items()},
                        "latency": latency,
                        "error": problem,
                    }
                )

    def _decoded(self, payload: InferenceRequest) -> Arrays:
        tensors = {tensor.name: tensor for tensor in payload.inputs}
        if len(self._model.inputs) == 1 and len(tensors) == 1:  # whatever its name
            tensors = {self._model.inputs[0].name: payload.inputs[0]}
        return self._checked({name: _array(tensor) for name, tensor in tensors.items()})

    def _of_invocation(self, body: bytes) -> Arrays:
        try:
            document = orjson.loads(body)
        except ValueError as error:
            raise InferenceError(f"the body is no JSON: {error}") from None
        keys = [key for key in ("inputs", "instances") if isinstance(document, dict) and key in document]
        if len(keys) != 1:
            raise InferenceError('write {"inputs": {name: rows}}, or {"inputs": rows} for one input, or "instances"')
        values = document[keys[0]]
        if keys == ["instances"] and isinstance(values, list) and values and isinstance(values[0], Mapping):
            if any(not isinstance(row, Mapping) or row.keys() != values[0].keys() for row in values):
                raise InferenceError("each of the instances must have the same names")
            values = {name: [row[name] for row in values] for name in values[0]}
        if not isinstance(values, Mapping):
            values = {self._model.inputs[0].name: values}
        return self._checked(values)

    def _checked(self, values: Mapping[str, Any]) -> Arrays:
        """The arrays of all inputs, in the model's types."""
        names = [tensor.name for tensor in self._model.inputs]
        if set(values) != set(names):
            raise InferenceError(f"the model takes {', '.join(names)}, not {', '.join(map(str, values)) or 'nothing'}")
        arrays = {tensor.name: _as(tensor, values[tensor.name]) for tensor in self._model.inputs}
        sizes = {name: len(array) for name, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise InferenceError(f"the inputs have different numbers of rows: {sizes}")
        if not next(iter(sizes.values())):
            raise InferenceError("there are no rows")
        return arrays


def _described(tensor: Tensor) -> MetadataTensor:
    datatype = to_datatype(np.dtype(tensor.dtype))
    return MetadataTensor(name=tensor.name, datatype=datatype, shape=[-1, *(size or -1 for size in tensor.shape)])


def _array(tensor: RequestInput) -> np.ndarray:
    """The data in the declared type and shape; InferenceError where they do not fit."""
    data = getattr(tensor.data, "root", tensor.data)
    try:
        if tensor.datatype == "BYTES":
            array = np.asarray(data, object)
        else:
            array, dtype = np.asarray(data), to_dtype(tensor)
            if array.dtype.kind == "O":  # null is NaN, as MLServer has it
                array = np.asarray(data, np.float64 if dtype.kind == "f" else dtype)
            array = _fitting(array, dtype)
        shaped: np.ndarray = array.reshape(tensor.shape)
        return shaped
    except (OverflowError, TypeError, ValueError) as error:
        raise InferenceError(f"input {tensor.name}: {error}") from None


def _as(tensor: Tensor, values: Any) -> np.ndarray:
    """Convert values to the type of a tensor; InferenceError if type or shape do not fit."""
    try:
        array = np.asarray(values)
        if tensor.dtype == "object":
            array = np.asarray(values, object)
            if not all(isinstance(value, str | bytes) for value in array.ravel()):
                raise ValueError("it takes text, and no other values")
        elif array.size and (
            array.dtype.kind == "O" or (array.dtype.kind == "f" and np.dtype(tensor.dtype).kind in "iub")
        ):
            raise ValueError(f"it takes {tensor.dtype}, and no other values")
        else:
            array = _fitting(array, np.dtype(tensor.dtype))
    except (TypeError, ValueError) as error:
        raise InferenceError(f"input {tensor.name}: {error}") from None
    shape = array.shape[1:]
    fits = array.ndim == len(tensor.shape) + 1
    if not fits or any(expected not in (None, size) for expected, size in zip(tensor.shape, shape, strict=True)):
        expected = ", ".join(["rows", *("any" if size is None else str(size) for size in tensor.shape)])
        given = ", ".join(map(str, array.shape))
        raise InferenceError(f"the model takes an array of shape ({expected}) as input {tensor.name!r}, not ({given})")
    return array


def _fitting(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The array in this type; ValueError for a number that it does not hold, which NumPy would make another one."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype, copy=False)
    is_too_large: Any = False
    if dtype.kind in "iu" and array.dtype.kind == "f":  # as in runtime/data/packing.py, which is not installed here
        is_too_large = array >= float(np.iinfo(dtype).max) + 1
    if array.dtype.kind in "US":  # text of numbers
        array = array.astype(np.float64)
    changed = is_too_large | (converted != array) if dtype.kind in "iub" else np.isinf(converted) & ~np.isinf(array)
    if changed.any():
        raise ValueError(f"{array[changed][0]} is no {dtype}")
    return converted


def _texts(array: np.ndarray) -> np.ndarray:
    """The array with bytes decoded to text."""
    if array.dtype.kind != "O":
        return array
    as_text = np.frompyfunc(lambda value: value.decode(errors="replace") if isinstance(value, bytes) else value, 1, 1)
    return np.asarray(as_text(array), object)


def _flat(array: np.ndarray) -> list[Any]:
    values: list[Any] = _texts(array).ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [value if np.isfinite(value) else None for value in values]
    return values
