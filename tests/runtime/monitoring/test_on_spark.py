"""A monitor on a real Spark: folders and topics of a real Kafka, each record counted once whatever breaks meanwhile."""

import json
import time
import uuid

import numpy as np
import pytest
from kafka import rig
from support.launch import Running, fetch, finished, load_driver
from support.monitoring_logs import ROWS, expected_counts, lines, requests, trained, write_whole
from support.until import until

from ddl_magics.runtime.events import TERMINAL

pytestmark = [pytest.mark.timeout(300), pytest.mark.spark]


@pytest.fixture(scope="module")
def reference():
    return trained(np.random.default_rng(1))


@pytest.fixture(scope="module")
def kafka():
    broker = rig.start()
    yield broker
    broker.stop()


class Monitored(Running):
    """A monitor in progress."""

    @property
    def watch(self):
        return next(reversed(self.of_kind("watch")), None)

    @property
    def totals(self):
        return self.watch["totals"] if self.watch else {"requests": 0}

    @property
    def notices(self):
        return [event["message"] for event in self.of_kind("notice")]

    def thing(self, name):
        return next(thing for thing in self.watch["things"] if thing["name"] == name)

    def running(self):
        until(lambda: not self.poll()["more"] and self.state == "RUNNING", 120)
        return self

    def ended(self, state="FINISHED"):
        until(lambda: not self.poll()["more"] and self.state in TERMINAL, 120)
        assert self.state == state, self.events[-1]
        return self


def begin(spark, reference, log, checkpoint, namespace=None, **asked):
    """Start a monitor through the driver's API."""
    run = "monitor-" + uuid.uuid4().hex[:8]
    given = {
        "reference": reference,
        "log": str(log),
        "window": 60.0,
        "delay": "600 seconds",
        "label_delay": "86400 seconds",
        "every": 0.2,
        "checkpoint": str(checkpoint),
        "model": "energy",
        "cell": "%%distributed\nmodel.fit(dataset)",
    }
    spec = {"run": run, "name": "watch", "cell": "", "strategy": "monitor", "workers": 0, "monitor": given | asked}
    reply = json.loads(load_driver().launch(json.dumps(spec), {**(namespace or {}), "spark": spark}))
    assert reply["ok"], reply
    return Monitored(run)


def test_a_log_is_caught_up_with_and_each_record_counted_once(spark_cluster, reference, tmp_path):
    spark, random, log = spark_cluster(2), np.random.default_rng(2), tmp_path / "log"
    log.mkdir()
    first = list(requests(700, random))
    write_whole(log / "a.jsonl", lines(first))
    monitor = begin(spark, reference, log, tmp_path / "checkpoint", once=True).ended()
    assert monitor.totals["requests"] == 700
    assert monitor.totals["rows"] == 7000
    assert {thing["level"] for thing in monitor.watch["things"]} == {"none"}
    assert not monitor.notices
    # The newest windows with 5,000 rows or more: 500 requests, and what fills their first window.
    begins = first[-1]["time"] // 60 * 60
    newest = [record for record in first if record["time"] // 60 * 60 >= begins - 240]
    for name, thing in zip(("load", "heat", "wind"), range(3), strict=True):
        assert monitor.thing(name)["now"] == expected_counts(newest, reference["features"][thing], thing)
    assert monitor.watch["rows"] == len(newest) * ROWS
    lines_ = monitor.watch["lines"]
    assert lines_["rate"][1] == pytest.approx(2.0)
    assert lines_["p50"][1] == pytest.approx(0.004, rel=0.2)
    assert lines_["p99"][1] == pytest.approx(0.02, rel=0.2)

    # Again: what was counted, again in another file; a drift of half a standard deviation; damage; an error; one late.
    shifted = list(requests(500, random, shift=0.5, first=700))
    failed = {**shifted[-1], "id": "failed", "inputs": None, "outputs": None, "error": "no such input"}
    late = {**first[0], "id": "late", "time": first[0]["time"] - 7200}
    damage = 'not json\n{"time": 3}\n'
    times = ("NaN", "1e400", "-1e400", "-5", "4e9", str(time.time() + 3600), "1e18")
    damage += "".join(f'{{"time": {moment}, "id": "{moment}", "latency": 1}}\n' for moment in times)
    write_whole(log / "b.jsonl", lines(first[-100:]) + lines(shifted) + lines([failed, late]) + damage)
    monitor = begin(spark, reference, log, tmp_path / "checkpoint", once=True).ended()
    totals = monitor.totals
    assert (totals["requests"], totals["errors"], totals["unreadable"]) == (1201, 1, 2 + len(times))
    assert (totals["double"], totals["late"]) == (100, 1)
    assert monitor.thing("heat")["level"] != "none"
    assert monitor.thing("heat")["psi"] == pytest.approx(0.24, abs=0.06)
    assert monitor.thing("load")["level"] == monitor.thing("wind")["level"] == "none"
    assert [text for text in monitor.notices if text.startswith("heat has moved")]
    assert "continues after 700 requests" in monitor.notices[0]

    # What cannot be read has not moved the watermark to its time, nor to this time, years after these requests.
    write_whole(log / "c.jsonl", lines(requests(10, random, first=1200)))
    totals = begin(spark, reference, log, tmp_path / "checkpoint", once=True).ended().totals
    assert (totals["requests"], totals["unreadable"], totals["late"]) == (1211, 2 + len(times), 1)
    # A host whose clock is ahead, within what is taken: its record makes most of the next ones late, which is said.
    now = time.time()
    ahead, *others = ({**record, "time": now - 3600} for record in requests(21, random, first=1300))
    write_whole(log / "d.jsonl", lines([{**ahead, "time": now}]))
    begin(spark, reference, log, tmp_path / "checkpoint", once=True).ended()
    write_whole(log / "e.jsonl", lines(others))
    monitor = begin(spark, reference, log, tmp_path / "checkpoint", once=True).ended()
    assert monitor.totals["late"] == 21
    assert [text for text in monitor.notices if text.startswith("20 of 20 records of a batch are older")]

    # A power cut has emptied the newest file of counts: the one before it holds, and a notice says so.
    stored = sorted((tmp_path / "checkpoint").glob("counts-*.json"), key=lambda path: int(path.stem[7:]))
    stored[-1].write_bytes(b"")
    monitor = begin(spark, reference, log, tmp_path / "checkpoint").running()
    assert [text for text in monitor.notices if f"{stored[-1].name} is damaged" in text]
    # While it watches, another one is refused the checkpoint.
    with pytest.raises(AssertionError, match="another monitor has the checkpoint"):
        begin(spark, reference, log, tmp_path / "checkpoint")
    monitor.stop()
    assert monitor.ended("STOPPED").totals["requests"] == 1212
    for path in (tmp_path / "checkpoint").glob("counts-*.json"):
        path.write_text('{"batch": 3')
    monitor = begin(spark, reference, log, tmp_path / "checkpoint", once=True).ended("FAILED")
    assert "is damaged" in monitor.events[-1]["message"] and "another --checkpoint" in monitor.events[-1]["message"]


CELL = """
import keras
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
model.fit(dataset, validation_data=validation, epochs=1, verbose=0)
"""


def test_a_run_with_data_keeps_how_it_is_distributed(spark_cluster):
    spark, random = spark_cluster(2), np.random.default_rng(7)
    rows = [(float(a), float(b), float(a + b)) for a, b in random.normal(size=(3000, 2))]
    frame = spark.createDataFrame(rows, ["load", "heat", "demand"])
    how = {"data": "frame", "features": ["load", "heat"], "label": "demand", "batch_size": 64, "validation": 0.2}
    ended = finished(spark, CELL, {"frame": frame}, **how)
    kept = json.loads(fetch(ended.run, "reference.json"))
    assert [feature["name"] for feature in kept["features"]] == ["load", "heat", "output"]
    assert [sum(feature["counts"]) for feature in kept["features"]] == [2400, 2400, 300]
    training = np.array(rows)[:, 0]
    np.testing.assert_allclose(kept["features"][0]["edges"], np.quantile(training, np.linspace(0.1, 0.9, 9)), atol=0.08)
    assert not ended.of_kind("reference"), "it is in no log of events"


def test_labels_tell_the_error_and_when_to_train_again(spark_cluster, reference, tmp_path):
    spark, log, labels = spark_cluster(2), tmp_path / "log", tmp_path / "labels"
    log.mkdir()
    labels.mkdir()
    records = list(requests(300, np.random.default_rng(3), shift=2.0))
    write_whole(log / "a.jsonl", lines(records))
    true = [
        {"id": r["id"], "label": [out + 3.0 for (out,) in r["outputs"]["demand"]], "time": r["time"] + 60}
        for r in records[:200]
    ]
    write_whole(labels / "a.jsonl", lines(true) + lines(true[:50]))
    error = {"kind": "absolute", "name": "MAE", "before": 1.0}
    monitor = begin(spark, reference, log, tmp_path / "checkpoint", labels=str(labels), error=error, once=True).ended()
    found = monitor.watch["error"]
    assert (found["rows"], found["before"]) == (2000, 1.0)
    assert found["mean"] == pytest.approx(3.0)
    reasons = monitor.watch["advice"]["reasons"]
    assert reasons[0].startswith("heat has drifted from the training data")
    assert reasons[-1] == "the error rose from 1 to 3 (MAE)"
    assert monitor.watch["advice"]["cell"].startswith("%%distributed")
    assert any(text.startswith("train again: ") for text in monitor.notices)

    frame = spark.createDataFrame([(r["id"], float(r["outputs"]["demand"][0][0])) for r in records], ["id", "label"])
    monitor = begin(
        spark, reference, log, tmp_path / "other", {"truth": frame}, labels="truth", error=error, once=True
    ).ended()
    assert monitor.watch["error"]["rows"] == 300
    assert monitor.watch["error"]["mean"] == pytest.approx(0.0, abs=1e-9)


def test_no_record_of_kafka_is_lost_or_counted_twice(spark_cluster, reference, kafka, tmp_path):
    """The broker is killed and comes back; the stream crashes; another monitor begins from the checkpoint."""
    from ddl_magics.serving.request_log import open_log

    spark, random = spark_cluster(2), np.random.default_rng(4)
    uri = f"kafka://{kafka.address}/requests"
    log = open_log(uri)
    for record in requests(100, random):
        log.write(record)
    until(lambda: _produced(log) == 0)
    monitor = begin(spark, reference, uri, tmp_path / "checkpoint")
    monitor.until(lambda run: run.totals["requests"] == 100)

    kafka.kill()
    for record in requests(100, random, first=100):
        log.write(record)
    kafka.start_again()
    monitor.until(lambda run: run.totals["requests"] == 200, 120)

    job = load_driver().registry.get(monitor.run)
    crashes = iter(["before", "after"])
    write = job._counts._file.write

    def crash(state):
        """The worst moments: the counts are not stored yet, or they are, and Spark does not know."""
        when = next(crashes, "")
        if when != "before":
            write(state)
        if when:
            raise RuntimeError(f"a crash {when} the counts are stored")

    job._counts._file.write = crash
    for record in requests(100, random, first=200):
        log.write(record)
    log.close()
    assert log.dropped == 0
    monitor.until(lambda run: run.totals["requests"] == 300, 120)
    assert not list(crashes), "the stream has crashed at both moments"
    assert any("a crash before the counts are stored; it is started again" in text for text in monitor.notices)
    load_driver().stop(json.dumps({"run": monitor.run}))
    monitor.ended("STOPPED")
    again = begin(spark, reference, uri, tmp_path / "checkpoint", once=True).ended()
    assert (again.totals["requests"], again.totals["rows"]) == (300, 3000)
    assert again.totals["unreadable"] == again.totals["late"] == 0


def _produced(log):
    return log._waiting.qsize() + log._writer.flush(0)
