"""A trained model as a stage of a Spark ML pipeline. Needs pyspark, which is imported with this module."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.ml import Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from ddl_magics.clusters.hadoop_folder import HadoopFolder
from ddl_magics.clusters.scoring import predict
from ddl_magics.runtime import scratch

_MODEL = "model.keras"


def _text(name: str, description: str) -> Param[str]:
    return Param(Params._dummy(), name, description, typeConverter=TypeConverters.toString)


class KerasTransformer(Transformer, MLReadable["KerasTransformer"], MLWritable):
    """Adds the predictions of a Keras model to a DataFrame, as `ddl_magics.predict` does.

    It is saved and loaded with a pipeline: its parameters are Spark's metadata, and beside them is the `.keras` file.
    To load it, this package must be installed. Set `customObjects` again where the model has classes of its own.
    """

    predictionCol = _text("predictionCol", "the new column")
    batchSize: Param[int] = Param(
        Params._dummy(), "batchSize", "rows that the model is called with at once", typeConverter=TypeConverters.toInt
    )
    onError = _text("onError", "fail, or null for no prediction of a row without a value")
    inputs = _text("inputs", "JSON: how columns become the model's inputs, or the names of the columns")

    def __init__(
        self,
        model: bytes = b"",
        inputs: Mapping[str, Any] | Sequence[str] = (),
        *,
        output: str = "prediction",
        batch_size: int = 1024,
        on_error: str = "fail",
        custom_objects: Mapping[str, Any] | None = None,
    ) -> None:
        """model: the bytes of a `.keras` file. The rest as for `ddl_magics.predict`."""
        super().__init__()
        self.model = model
        self.customObjects = dict(custom_objects or {})
        self._set(predictionCol=output, batchSize=batch_size, onError=on_error, inputs=json.dumps(inputs))

    def _transform(self, dataset: Any) -> Any:
        with scratch.folder("transformer") as folder:
            path = Path(folder) / _MODEL
            path.write_bytes(self.model)
            return predict(
                dataset,
                path,
                features=json.loads(self.getOrDefault(self.inputs)),
                output=self.getOrDefault(self.predictionCol),
                batch_size=self.getOrDefault(self.batchSize),
                on_error=self.getOrDefault(self.onError),
                custom_objects=self.customObjects,
            )

    def write(self) -> MLWriter:
        """What Spark calls to save it."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[KerasTransformer]:
        """What Spark calls to load it."""
        return _Reader()


class _Writer(MLWriter):
    def __init__(self, instance: KerasTransformer) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        DefaultParamsWriter.saveMetadata(self._instance, path, SparkContext.getOrCreate())
        with scratch.folder("transformer") as folder:
            file = Path(folder) / _MODEL
            file.write_bytes(self._instance.model)
            HadoopFolder(path).upload(file, _MODEL)


class _Reader(MLReader[KerasTransformer]):
    def load(self, path: str) -> KerasTransformer:
        metadata = DefaultParamsReader.loadMetadata(path, SparkContext.getOrCreate())
        with scratch.folder("transformer") as folder:
            file = Path(folder) / _MODEL
            HadoopFolder(path).download(_MODEL, file)
            loaded = KerasTransformer(file.read_bytes())
        loaded._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(loaded, metadata)
        return loaded
