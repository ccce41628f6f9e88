"""How fast a monitor catches up with a log, and what it finds: rows per second, detection, false alarms.

    python -m benchmarks.monitoring [--quick] [--others PYTHON]

A log of requests with 31 features and one output is caught up with by `%ddl monitor` on a local-cluster of two
executors with a core each, from nothing; and by Evidently's drift report on pandas, which reads the same files with
json.loads, in an environment of its own (`make evidently-env`). Both see a log of ten rows a request. The rows per
second are those of the wall clock, without the start of Spark and the imports of Evidently.

Then windows of 5,000 rows: 100 without a drift, and 100 with a drift of half a standard deviation in one feature.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .harness import command, report

ROOT = Path(__file__).resolve().parents[1]
OTHERS_PYTHON = ROOT / ".venv-evidently" / "bin" / "python"
CHILD = ROOT / "benchmarks" / "child_processes" / "evidently_drift.py"
ROWS, QUICK_ROWS = 1_000_000, 20_000
PER_REQUEST, PER_FILE = 10, 25_000
FEATURES, REFERENCE_ROWS = 31, 20_000
WINDOW_ROWS, WINDOWS = 5_000, 100
SHIFT = 0.5
BEGIN = 1_763_000_000.0
GOAL = 5.0


def reference_of(rows: Any) -> dict[str, Any]:
    """As a run keeps it. rows: (rows, features)."""
    from ddl_magics.runtime.monitoring import reference, watched

    names = [f"f{k}" for k in range(FEATURES)]
    tensor = watched.of_input("features", "f", (FEATURES,), False, False)
    assert tensor is not None
    output = watched.of_output("y", (1,))
    parts = [*rows.T, rows.sum(axis=1)]
    features = [
        reference.merged(name, [reference.sketch(values, 401)], False)
        for name, values in zip([*names, "output"], parts, strict=True)
    ]
    inputs = [watched.with_columns(tensor, names)]
    return {"v": 1, "run": "r", "rows": len(rows), "inputs": inputs, "outputs": [output], "features": features}


def write_log(folder: Path, rows: int, random: Any) -> None:
    """Requests of `PER_REQUEST` rows, a hundred a second."""
    for first in range(0, rows, PER_FILE):
        values = random.normal(size=(min(PER_FILE, rows - first), FEATURES)).astype("float32")
        with (folder / f"m-1-host-1-{first}.jsonl").open("w") as file:
            for at in range(0, len(values), PER_REQUEST):
                part, number = values[at : at + PER_REQUEST], (first + at) // PER_REQUEST
                record = {
                    "time": BEGIN + number / 100,
                    "id": f"request-{number}",
                    "model": "m",
                    "version": "1",
                    "rows": len(part),
                    "inputs": {"features": part.tolist()},
                    "outputs": {"y": part.sum(axis=1, keepdims=True).tolist()},
                    "latency": 0.005,
                    "error": None,
                }
                file.write(json.dumps(record) + "\n")


def cluster() -> Any:
    """Two executors with a core each, as Java runs them by default: the tests' have its fast compiler alone."""
    from pyspark.sql import SparkSession
    from support import spark  # type: ignore[import-untyped,unused-ignore]

    spark.prepare_environment()
    builder = SparkSession.builder.master("local-cluster[2,1,2048]").appName("ddl_magics benchmark")
    for name, value in (("spark.ui.enabled", "false"), ("spark.driver.host", "127.0.0.1")):
        builder = builder.config(name, value)
    session = spark.start(builder)
    session.sparkContext.setLogLevel("ERROR")
    return session


def ours(spark: Any, reference: dict[str, Any], log: Path, checkpoint: Path, run: str) -> tuple[int, float]:
    """(rows counted, seconds) of a monitor that catches up with the log."""
    from ddl_magics.clusters.shipping import load_driver
    from ddl_magics.runtime.events import TERMINAL

    asked = {
        "reference": reference,
        "log": str(log),
        "window": 60.0,
        "delay": "600 seconds",
        "once": True,
        "checkpoint": str(checkpoint),
    }
    spec = {"run": run, "name": run, "cell": "", "strategy": "monitor", "workers": 0, "monitor": asked}
    driver, begun = load_driver(), time.perf_counter()
    reply = json.loads(driver.launch(json.dumps(spec), {"spark": spark}))
    assert reply["ok"], reply
    events: list[dict[str, Any]] = []
    while True:
        reply = json.loads(driver.poll(json.dumps({"run": run, "after": len(events)})))
        events += reply["events"]
        if reply["state"] in TERMINAL and not reply["more"]:
            break
        time.sleep(0.1)
    took = time.perf_counter() - begun
    assert reply["state"] == "FINISHED", events[-1]
    return [event for event in events if event["kind"] == "watch"][-1]["totals"]["rows"], took


def found_in_windows(reference: dict[str, Any], random: Any, windows: int) -> tuple[int, int, int]:
    """(windows without a drift in which there is an alarm; those with one in which it is found; or another is)."""
    import numpy as np

    from ddl_magics.runtime.monitoring import drift

    def moved(rows: Any) -> list[int]:
        found = []
        for index, values in enumerate(rows.T):
            feature = reference["features"][index]
            bins = np.searchsorted(feature["edges"], values, side="right")
            counts = np.bincount(bins, minlength=len(feature["counts"])).tolist()
            compared = drift.compare(feature["counts"], counts)
            if compared is not None and compared.level != "none":
                found.append(index)
        return found

    false = detected = others = 0
    for number in range(windows):
        rows = random.normal(size=(WINDOW_ROWS, FEATURES))
        false += bool(moved(rows))
        rows[:, number % FEATURES] += SHIFT
        found = moved(rows)
        detected += number % FEATURES in found
        others += any(index != number % FEATURES for index in found)
    return false, detected, others


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    import numpy as np

    parser = command.parser("monitoring", __doc__, "few rows")
    parser.add_argument("--others", default=str(OTHERS_PYTHON), metavar="PYTHON", help="that has Evidently")
    options = parser.parse_args(arguments)
    before = report.machine()
    random = np.random.default_rng(0)
    sample = random.normal(size=(REFERENCE_ROWS, FEATURES))
    reference, rows = reference_of(sample), QUICK_ROWS if options.quick else ROWS
    samples: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        log, few = home / "log", home / "few"
        log.mkdir()
        few.mkdir()
        write_log(log, rows, random)
        write_log(few, QUICK_ROWS, random)
        print(f"{rows:,} rows are logged", file=sys.stderr, flush=True)
        spark = cluster()
        try:
            ours(spark, reference, few, home / "warm", "warm-up")
            counted, took = ours(spark, reference, log, home / "checkpoint", "measured")
        finally:
            spark.stop()
        assert counted == rows, f"{counted} of {rows} rows were counted"
        samples["ours"] = [rows / took / 1e3]
        print(f"ours: {took:.1f} s", file=sys.stderr, flush=True)
        if Path(options.others).exists():
            table = home / "reference.csv"
            names = ",".join([*(f"f{k}" for k in range(FEATURES)), "output"])
            values = np.concatenate([sample, sample.sum(axis=1, keepdims=True)], axis=1)
            np.savetxt(table, values, delimiter=",", header=names, comments="")
            line = [options.others, str(CHILD), str(log), str(table)]
            said = subprocess.run(line, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            other = json.loads(said)
            samples["Evidently"] = [other["rows"] / other["seconds"] / 1e3]
            samples["Evidently, without reading the log"] = [other["rows"] / (other["seconds"] - other["read"]) / 1e3]
        else:
            print("Evidently was not measured: run `make evidently-env`, or give --others PYTHON", file=sys.stderr)
    print(report.spread(samples, "k rows/s"), "\n")
    windows = 10 if options.quick else WINDOWS
    false, detected, others = found_in_windows(reference, random, windows)
    print(f"of {windows} windows of {WINDOW_ROWS:,} rows: {false} alarms without a drift; with one of {SHIFT} standard")
    print(f"deviations in one feature, {detected} found it, and {others} had an alarm of another feature\n")
    goals = [
        report.at_most("windows without a drift that alarm", false + others, 0),
        report.at_least("windows with a drift that is found", detected, windows),
    ]
    if "Evidently" in samples:
        ratio = samples["ours"][0] / samples["Evidently"][0]
        goals.append(report.at_least("ours over Evidently, rows/s", ratio, GOAL))
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
