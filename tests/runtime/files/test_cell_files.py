"""A cell on two ranks of a real Spark: what it reads beside its notebook, and what each way of writing leaves there."""

import json
import sqlite3

from support import launch

CELL = """
import json, os, pathlib
import h5py
import keras
import numpy as np
import tensorflow as tf

weights = np.loadtxt("data.csv")
assert float(open(NOTEBOOK + "/sub/number.txt").read()) == 3.0
assert pathlib.Path("../beside.txt").read_text() == "beside"

open("open.txt", "w").write(f"rank {ddl.rank}")
open(NOTEBOOK + "/absolute.txt", "w").write(f"rank {ddl.rank}")
pathlib.Path(NOTEBOOK, "path.txt").write_text(f"rank {ddl.rank}")
with tf.io.gfile.GFile(NOTEBOOK + "/gfile.txt", "w") as file:
    file.write(f"rank {ddl.rank}")
with tf.io.gfile.GFile("old.txt", "a") as file:
    file.write(f" and rank {ddl.rank}")
assert tf.io.gfile.exists(NOTEBOOK + "/gfile.txt") and "gfile.txt" in tf.io.gfile.listdir(NOTEBOOK)
with h5py.File("old.h5", "w") as file:
    file["rank"] = ddl.rank
open("empty", "w").close()

import shutil, sqlite3, subprocess

with sqlite3.connect("rows.db") as database:
    database.execute("insert into rows values (?)", (ddl.rank,))
database.close()
covered = os.getcwd() == NOTEBOOK  # else code that is not hooked takes absolute paths literally
tf.io.write_file(NOTEBOOK + "/tf.txt" if covered else "tf.txt", f"rank {ddl.rank}")
subprocess.run("rm -rf big/*; echo rank %d >> appended.txt" % ddl.rank, shell=True, check=True)
assert os.listdir("big") == []
shutil.move("from.txt", "to.txt")
shutil.rmtree("gone")

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
callbacks = [
    keras.callbacks.CSVLogger("history.csv"),
    keras.callbacks.ModelCheckpoint("checkpoints/{epoch}.keras"),
    keras.callbacks.ModelCheckpoint(NOTEBOOK + "/absolute.weights.h5", save_weights_only=True),
    keras.callbacks.BackupAndRestore("backup"),
]
logs = keras.callbacks.TensorBoard(NOTEBOOK + "/logs").log_dir
ddl.log(apart=logs == os.path.abspath("logs"))
x = np.arange(32.0).reshape(16, 2) / 32
model.fit(x, x.sum(1), epochs=2, batch_size=16, callbacks=callbacks, verbose=0)
os.chdir(ELSEWHERE)
model.save("elsewhere.keras")
keras.models.load_model("elsewhere.keras")
model.save_weights(ELSEWHERE + "/absolute.weights.h5")
model.load_weights(ELSEWHERE + "/absolute.weights.h5")
os.chdir(NOTEBOOK)
tf.io.gfile.remove("old.h5") if ddl.rank else None
open("last.txt", "w").write(os.path.basename(os.getcwd()))

class Table:
    def _repr_html_(self):
        return f"<table>rank {ddl.rank}</table>"

display(Table())
for step in range(1000):
    print(f"\\r{step + 1} of 1000", end="")
print()
Table()
"""


def test_files_of_a_cell(spark_cluster, tmp_path):
    notebook, elsewhere = tmp_path / "notebooks", tmp_path / "elsewhere"
    for folder in (notebook / "sub", notebook / "big", notebook / "gone", elsewhere):
        folder.mkdir(parents=True)
    (notebook / "data.csv").write_text("1 2\n")
    (notebook / "sub/number.txt").write_text("3")
    (tmp_path / "beside.txt").write_text("beside")
    (notebook / "old.txt").write_text("old")
    (notebook / "old.h5").write_bytes(b"old")
    for name in ("tf.txt", "appended.txt", "from.txt", "gone/1", *(f"big/{number}" for number in range(400))):
        (notebook / name).write_text("old\n")
    with sqlite3.connect(notebook / "rows.db") as database:
        database.execute("create table rows (n)")
    database.close()
    before = {path: path.read_bytes() for path in notebook.rglob("*") if path.is_file()}
    cell = CELL.replace("NOTEBOOK", repr(str(notebook))).replace("ELSEWHERE", repr(str(elsewhere)))
    run = launch.finished(spark_cluster(2), cell, folder=str(notebook))
    removed = "removed by the cell, and kept in the notebook's folder: big/0, big/1, big/10 and 399 more"
    notices = [e["message"] for e in run.of_kind("notice")]
    assert [line for line in notices if not line.startswith("this host allows no overlay")] == [removed]

    files = {event["name"]: event for event in run.of_kind("file")}
    assert set(files) == {
        "absolute.txt",
        "absolute.weights.h5",
        "appended.txt",
        "checkpoints/1.keras",
        "checkpoints/2.keras",
        "empty",
        "gfile.txt",
        "history.csv",
        "last.txt",
        "old.h5",
        "old.txt",
        "open.txt",
        "path.txt",
        "rows.db",
        "tf.txt",
        "to.txt",
    }
    content = {name: launch.fetch(run.run, "files/" + name) for name in files if files[name]["size"]}
    assert all(len(content[name]) == files[name]["size"] for name in content) and files["empty"]["size"] == 0
    for name in ("open.txt", "absolute.txt", "path.txt", "gfile.txt", "tf.txt"):
        assert content[name] == b"rank 0"
    assert content["old.txt"] == b"old and rank 0" and content["last.txt"] == b"notebooks"
    assert content["appended.txt"] == b"old\nrank 0\n" and content["to.txt"] == b"old\n"
    (tmp_path / "rows.db").write_bytes(content["rows.db"])
    with sqlite3.connect(tmp_path / "rows.db") as database:
        assert database.execute("select n from rows").fetchall() == [(0,)]
    assert len(content["history.csv"].splitlines()) == 3

    assert [e["metrics"] for e in run.of_kind("values")] == [{"apart": 1.0}] * 2
    shown = [(e["rank"], e["mime"], e["data"]) for e in run.of_kind("picture")]
    assert shown == [(0, "text/html", "<table>rank 0</table>")] * 2, "by display, and as the last expression"

    # Nothing is in the notebook's folder yet: the notebook writes it, once the run has ended.
    assert {path: path.read_bytes() for path in notebook.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in elsewhere.iterdir()) == ["absolute.weights.h5", "elsewhere.keras"]
    assert [line for line in run.logs(0).splitlines() if " of 1000" in line] == ["1000 of 1000"]


def test_files_that_were_sent(spark_cluster, tmp_path):
    """--files where the notebook's folder is not on the workers' machines."""
    import base64
    import io
    import zipfile

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("sub/number.txt", "3")
        archive.writestr("kept.txt", "kept")
    driver, run = launch.load_driver(), "test-sent-files"
    for index in (1, 0, 1):  # a part may come twice
        part = data.getvalue()[index * 100 :][: 100 if index == 0 else None]
        about = {"run": run, "index": index, "count": 2, "data": base64.b64encode(part).decode()}
        assert json.loads(driver.upload(json.dumps(about)))["ok"]
    cell = """
number = float(open("sub/number.txt").read())
open("sub/number.txt", "w").write(str(number + ddl.rank))
1 / (not ddl.is_chief)
"""
    ended = launch.run_cell(spark_cluster(2), cell, run=run, files=["sub", "kept.txt"], folder=str(tmp_path / "gone"))
    assert ended.state == "FAILED" and "ZeroDivisionError" in ended.failure["message"]
    (file,) = ended.of_kind("file")
    assert file["name"] == "sub/number.txt" and launch.fetch(run, "files/sub/number.txt") == b"3.0", (
        "also of a failed run"
    )
