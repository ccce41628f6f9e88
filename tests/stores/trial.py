"""Files of a store become --data, in a Spark with these settings: `python -m stores.trial URI SETTINGS`.

Prints a JSON object of what each run was given and said. Its own process, as Java has its classes from the beginning.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from support import launch, spark, starts

import ddl_magics
from ddl_magics.models.registry import Registry

ROWS = 300
CELL = """
import keras
for x in [float(x) for batch, labels in dataset for x in batch]:
    ddl.log(row=x)
model = keras.Sequential([keras.Input(()), keras.layers.Reshape((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset, epochs=1, verbose=0)
"""


def main():
    uri, settings = sys.argv[1], json.loads(sys.argv[2])
    starts.make_cheap()
    session = spark.session(2, **settings)
    frame = session.range(0, ROWS, 1, 3).selectExpr("cast(id * 0.5 as float) x", "id % 2 y")
    frame.write.parquet(f"{uri}/rows.parquet")
    frame.write.csv(f"{uri}/rows.csv", header=True)
    written = ddl_magics.write_tfrecord(frame, f"{uri}/rows.tfrecord", compression="gzip")
    said = {"written": written, "runs": {}, "out": []}
    for name in ("rows.parquet/*.parquet", "rows.tfrecord/*.tfrecord.gz", "rows.csv"):
        out = f"{uri}/out-{name[5]}"
        ended = launch.run_cell(session, CELL, data=f"{uri}/{name}", features=["x"], label="y", out=out)
        said["runs"][name] = {
            "state": ended.state,
            "message": ended.message,
            "rows": sorted(event["metrics"]["row"] for event in ended.of_kind("values") if "row" in event["metrics"]),
            "notices": [event["message"] for event in ended.of_kind("notice")],
        }
        said["out"].append(_names(session, out))
    checkpoints, registry = f"{uri}/checkpoints", Registry(f"{uri}/registry")
    data = {"data": f"{uri}/rows.parquet/*.parquet", "features": ["x"], "label": "y"}
    ended = launch.run_cell(session, CELL, checkpoint=checkpoints, **data)
    said["checkpoints"] = _names(session, f"{checkpoints}/*"), ended.state
    for content in ("first", "second"):
        registry.add("digits", lambda folder, content=content: (folder / "model").write_text(content), alias=content)
    with tempfile.TemporaryDirectory() as folder:
        fetched = registry.fetch("digits", "first", Path(folder))
        said["registry"] = registry.aliases("digits"), (fetched / "model").read_text()
    print("\n" + json.dumps(said))
    sys.stdout.flush()
    session.stop()
    os._exit(0)


def _names(session, folder):
    """The names of the files in it."""
    files = session.read.format("binaryFile").load(folder).select("path").collect()
    return sorted(file[0].rpartition("/")[2] for file in files)


if __name__ == "__main__":
    main()
