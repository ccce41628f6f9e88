"""A model as a stage of a Spark pipeline: fitted, saved, loaded, on a stream's batches; dist-keras' transformers."""

import keras
import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import SQLTransformer, VectorAssembler
from pyspark.ml.regression import LinearRegression
from support.code_blocks import blocks
from support.paths import ROOT
from support.spark import cached
from support.stored import with_model

from ddl_magics import CannotScore
from ddl_magics.runtime import events as ev

pytestmark = pytest.mark.timeout(300)

ROWS = 60
NUMBERS = np.random.default_rng(1).normal(size=(ROWS, 3))


@pytest.fixture(scope="module")
def run(jupyter_data_dir):
    """A run whose columns are known from its training."""
    keras.utils.set_random_seed(2)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    columns = [{"name": name, "dtype": "f8", "depth": 0, "vector": False} for name in "abc"]
    inputs = {"columns": columns, "tensors": [[0, 1, 2]], "uses": ["floatx"], "shapes": [[3]], "features": 0}
    data = ev.make("data", ev.JOB, name="df", rows=5, validation_rows=0, inputs=inputs)
    return with_model(model, events=[data])


@pytest.fixture(scope="module")
def frame(spark_cluster):
    rows = [(i, *map(float, NUMBERS[i]), float(i % 2)) for i in range(ROWS)]
    return cached(spark_cluster(2).createDataFrame(rows, ["id", "a", "b", "c", "y"]))


def test_a_pipeline_with_the_model_is_fitted_saved_and_loaded(frame, run, tmp_path):
    """Stages before and after the model, one of which learns from its predictions."""
    stages = [
        SQLTransformer(statement="SELECT id, a * 2 AS a, b, c, y FROM __THIS__"),
        run.transformer(output="score", batch_size=7),
        VectorAssembler(inputCols=["score"], outputCol="scores"),
        LinearRegression(featuresCol="scores", labelCol="y", predictionCol="line"),
    ]
    Pipeline(stages=stages).save(f"file://{tmp_path}/unfitted")
    fitted = Pipeline.load(f"file://{tmp_path}/unfitted").fit(frame)
    fitted.save(f"file://{tmp_path}/fitted")
    loaded = PipelineModel.load(f"file://{tmp_path}/fitted")
    assert [stage.uid for stage in loaded.stages] == [stage.uid for stage in fitted.stages]
    found = {row["id"]: row["score"] for row in loaded.transform(frame).collect()}
    theirs = run.model().predict(NUMBERS * [2, 1, 1], verbose=0)[:, 0]
    np.testing.assert_allclose([found[i] for i in range(ROWS)], theirs, rtol=1e-5, atol=1e-6)

    files = [path.name for path in tmp_path.glob("fitted/stages/1_*/*.keras")]
    assert files == ["model.keras"], "the model is a file that Keras can read"
    with pytest.raises(CannotScore, match="b: df has no such column"):
        loaded.stages[1].transform(frame.drop("b"))
    copied = loaded.stages[1].copy({loaded.stages[1].predictionCol: "other"})
    assert copied.transform(frame).columns[-1] == "other"

    # What comes with a stream is scored batch by batch.
    frame.coalesce(1).write.parquet(f"{tmp_path}/arriving")
    arrived = frame.sparkSession.readStream.schema(frame.schema).parquet(f"{tmp_path}/arriving")
    scored = arrived.writeStream.foreachBatch(
        lambda batch, number: loaded.transform(batch).write.mode("append").parquet(f"{tmp_path}/scored")
    )
    query = scored.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(60), query.status
    kept = {row["id"]: row["score"] for row in frame.sparkSession.read.parquet(f"{tmp_path}/scored").collect()}
    np.testing.assert_allclose([kept[i] for i in range(ROWS)], theirs, rtol=1e-5, atol=1e-6)
    with pytest.raises(CannotScore, match="df streams: score each batch"):
        loaded.stages[1].transform(arrived)


def test_an_export_knows_its_columns(frame, run, tmp_path):
    from ddl_magics import predict

    scored = predict(frame, run.export(tmp_path / "line", "keras"))
    assert scored.columns == ["id", "a", "b", "c", "y", "prediction"]
    with pytest.raises(CannotScore, match="has the format saved_model: give an export in the format keras or mlflow"):
        predict(frame, run.export(tmp_path / "served", "saved_model"))


@pytest.mark.slow
def test_what_the_docs_say_for_the_transformers_of_dist_keras(frame):
    page = ROOT / "docs" / "coming-from.md"
    names = {}
    exec(next(block.code for block in blocks(page) if "MulticlassClassificationEvaluator(" in block.code), names)
    first, second, third = names["table"].orderBy("kind").collect()
    assert [row["bright"] for row in (first, second, third)] == pytest.approx([-0.6, -0.2, 1.0])
    assert [row["pixel_again"] for row in (first, second, third)] == pytest.approx([51, 102, 255])
    assert [row["is_spam"] for row in (first, second, third)] == [1, 0, 1]
    columns = np.array([row["dense"] for row in (first, second, third)])
    np.testing.assert_allclose([columns.mean(axis=0), columns.std(axis=0, ddof=1)], [[0, 0], [1, 1]], atol=1e-9)
    assert [row["one_hot"] for row in (first, second, third)] == np.eye(3, dtype=int).tolist()
    assert [row["index"] for row in (first, second, third)] == [2, 1, 1]
    assert [row["sure"] for row in (first, second, third)] == [2, 0, 1]
    assert names["accuracy"] == pytest.approx(1 / 3)
    table = page.read_text().partition("### dist-keras: transformers and evaluators")[2].partition("```")[0]
    assert table.count("\n| `") == 9
