"""Scaling reports over runs whose times follow a known law: what is read, what is printed, what is predicted."""

import dataclasses
import math

import numpy as np
import pytest
from IPython.core.error import UsageError

from ddl_magics.commands.table import BY_VERB
from ddl_magics.errors import NoPrediction
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import events as ev
from ddl_magics.scaling import ScalingReport, model, request
from ddl_magics.scaling.measurement import MeasuredRun, Step, measured_run

BATCH, ROWS, PARAMETERS = 512, 51_200, 2_500_000
FIXED, BY_ROW, LATENCY, BYTE = 0.004, 2e-4, 1e-4, 2e-9


def truth(workers, batch=BATCH):
    """The step on hosts of their own, by the law that the model has, too."""
    compute = FIXED + BY_ROW * batch / workers
    rounds, moved = model.ring(workers, 4 * PARAMETERS)
    whole = LATENCY * rounds + BYTE * moved
    seen = model.visible(whole, compute, 4 * PARAMETERS)
    return Step(batch / workers, compute, seen, 0.02 * model.slowest(workers) * compute, 0.001, whole - seen)


def run(workers, seed=0, noise=0.01, strategy="allreduce", **changes):
    random = np.random.default_rng(100 * workers + seed)
    step = truth(workers)

    def noisy():
        factors = 1 + noise * random.normal(size=5)
        times = (step.compute, step.exchange, step.waiting, step.feeding, step.hidden)
        return Step(step.rows, *(float(t * f) for t, f in zip(times, factors, strict=True)))

    values = {"parameters": PARAMETERS, "hosts": workers, "metrics": {"loss": 0.5 + seed / 10}, **changes}
    steps = values.pop("steps", None) or tuple(noisy() for _ in range(8))
    return MeasuredRun(f"{workers}-{seed}", strategy, workers, seed, 12.0, ROWS, 0.05, steps, **values)


def report(*numbers, seeds=1, **changes):
    made = ScalingReport("digits")
    made.runs += [run(workers, seed, **changes) for seed in range(seeds) for workers in numbers]
    return made


def expected_rate(workers, batch=BATCH):
    return ROWS / (ROWS / batch * truth(workers, batch).seconds + 0.05)


def test_what_a_run_has_measured():
    def steps(rank, epoch, **fields):
        times = {"count": 10, "rows": 320, "seconds": 1.0, "compute": 0.6, "wait": 0.3, "copy": 0.1, "wire": 0.05}
        times["hidden"] = 0.4
        return ev.make("steps", rank, fit=0, epoch=epoch, step=0, metrics={}, **{**times, **fields})

    events = [
        *(ev.make("worker", rank, host="h", pid=1, device="CPU", state="training", cores=4) for rank in (0, 1)),
        {**ev.make("fit", 0, fit=0, model="m", epochs=3, steps=10, parameters=1000), "time": 100.0},
        *(steps(rank, 0, seconds=9.0, compute=8.6) for rank in (0, 1)),  # compiles
        ev.make("epoch", 0, fit=0, epoch=0, metrics={"loss": 2.0}, seconds=9.5),
        *({**steps(rank, 1), "time": 111.0} for rank in (0, 1)),
        {**ev.make("sample", 0, cpu=150.0, memory=1, gpus=None), "time": 110.5},
        {**ev.make("epoch", 0, fit=0, epoch=1, metrics={"loss": 1.0, "bad": None}, seconds=1.5), "time": 111.5},
        {**ev.make("fit_end", 0, fit=0, stopped=False), "time": 112.0},
    ]
    found = measured_run(parse("--workers 2 --seed 7"), events)
    spent = dataclasses.astuple(found.step)
    assert spent == pytest.approx((32, 0.06, 0.015, 0.015, 0.01, 0.04)), "of the second epoch"
    assert (found.rows, found.rest, found.seconds) == (640, pytest.approx(0.5), 12.0)
    assert (found.parameters, found.hosts, found.cores, found.busy) == (1000, 1, 4, 1.5)
    assert found.rate == pytest.approx(640 / 1.5) and dict(found.metrics) == {"loss": 1.0}
    only = [event for event in events if event.get("epoch", 0) == 0]
    assert measured_run(parse("--workers 2"), only).step.compute == pytest.approx(0.86), "all that there is"
    assert measured_run(parse(""), []) is None


def test_the_table_of_a_paper():
    made = report(1, 2, 4, seeds=3)
    one, two, four = made.rows
    assert (one.speedup, one.efficiency) == (1.0, 1.0) and one.runs == 3
    assert two.speedup == pytest.approx(expected_rate(2) / expected_rate(1), rel=0.02)
    assert four.efficiency == pytest.approx(four.speedup / 4) and sum(four.parts.values()) == pytest.approx(1)
    assert four.metrics["loss"] == pytest.approx((0.6, 0.1))
    table = made.table
    assert list(table["workers"]) == [1, 2, 4] and {"exchange", "loss", "loss_dev"} <= set(table.columns)
    printed = str(made).splitlines()
    assert printed[0].split()[:7] == ["strategy", "workers", "runs", "time", "samples/s", "speed-up", "efficiency"]
    assert len(printed) == 4 and "0.6 ± 0.1" in printed[3]
    figure = made.figure()
    assert [trace.name for trace in figure.data][:2] == ["ideal", "allreduce"]
    assert sum(trace.x[2] for trace in figure.data[2:]) == pytest.approx(100), "a bar is an epoch"


def test_numbers_that_were_not_run_are_predicted_from_one_and_two():
    made = report(1, 2, seeds=2)
    for prediction in made.predict([2, 4, 8]).rows:
        expected = expected_rate(prediction.workers)
        assert prediction.rate.value == pytest.approx(expected, rel=0.1)
        assert prediction.rate.low <= expected <= prediction.rate.high
        assert prediction.batch == BATCH and prediction.seconds.value == pytest.approx(ROWS / prediction.rate.value)
    widths = [each.rate.high / each.rate.low for each in made.predict([2, 8]).rows]
    assert widths[1] > widths[0], "the farther, the less sure"
    faster = made.predict(8, gbit=100).rows[0]
    assert faster.rate.value > 1.1 * made.predict(8).rows[0].rate.value
    assert "samples/s" in str(made.predict(4)) and made.predict(4).table["workers"][0] == 4


def test_an_epoch_of_other_rows_is_predicted():
    """What is done once an epoch counts less in a longer one; and a batch may be larger."""
    made = report(1, 2)
    as_measured, longer = made.predict(2).rows[0], made.predict(2, rows=100 * ROWS).rows[0]
    assert longer.seconds.value == pytest.approx(100 * (as_measured.seconds.value - 0.05) + 0.05)
    assert longer.rate.value > as_measured.rate.value
    assert made.predict(2, batch=2 * ROWS, rows=100 * ROWS).rows[0].batch == 2 * ROWS


def test_a_batch_that_is_too_small_is_said():
    made = report(1, 2, 4)
    assert made.predict(8, batch=4096).warnings == ()
    (line,) = made.predict([4, 16], batch=32).warnings
    assert line.startswith("warning: 16 workers would be slower than") and "on exchange" in line
    enough = int(line.split("batch of about ")[1].split()[0])
    assert made.predict(16, batch=enough).warnings == () and made.predict(16, batch=enough // 2).warnings
    slow = report(1, 2)
    slow.runs[1] = dataclasses.replace(slow.runs[1], steps=(Step(127.9, 0.05, 0.3, 0.0, 0.0),))
    assert "allreduce with 2 workers is slower than with 1" in str(slow)
    assert "50 ms on 128 rows, and spends 300 ms on exchange: a larger batch" in str(slow)
    slow.runs[1] = dataclasses.replace(slow.runs[1], steps=(Step(128, 0.05, 0.0, 0.0, 0.3),))
    assert "300 ms on feeding: batches come late" in str(slow)


def test_what_the_bounds_do_not_tell_is_said():
    assert report(1, 2, seeds=2).predict([4, 8]).notes == ()
    once = report(1, 2)
    once.runs[1] = dataclasses.replace(once.runs[1], steps=once.runs[1].steps[:2])
    notes = "\n".join(once.predict([16]).notes)
    for said in ("16 workers are far from the 2", "too short to tell", "measure with --seeds 3"):
        assert said in notes
    assert "too short to tell" in str(once.predict(4))
    for unknown in (report(1, 2, seeds=2, parameters=0), report(1, 2, seeds=2, strategy="ps")):
        assert "gbit changes nothing" in unknown.predict(4, gbit=1).notes[0]


def test_bounds_have_what_one_number_of_workers_and_the_runs_leave_open():
    """An exchange with a server may grow with the workers, or not; and runs differ by more than their steps."""
    served = ScalingReport("digits")
    for number, exchange in ((1, 0.0), (2, 0.05)):
        served.runs.append(run(number, strategy="ps", steps=8 * (Step(64, 0.01, exchange, 0.0, 0.0),)))
    (rate,) = (row.rate for row in served.predict(8).rows)
    least, most = (ROWS / (ROWS / 8 / 64 * (0.01 + factor * 0.05) + 0.05) for factor in (7, 1))
    assert 0.99 * least <= rate.low < 1.2 * least and 0.7 * most < rate.high <= 1.01 * most, (
        "the exchange of 2, or 7 times that"
    )
    made = report(1, 2, seeds=3)
    before = made.predict(2).rows[0].rate
    slow = {name: 1.3 * getattr(made.runs[1].step, name) for name in ("compute", "exchange", "waiting", "feeding")}
    made.runs[1] = dataclasses.replace(made.runs[1], steps=8 * (dataclasses.replace(made.runs[1].step, **slow),))
    after = made.predict(2).rows[0].rate
    assert after.high - after.low > 5 * (before.high - before.low)


def test_workers_of_one_host_share_its_cores():
    crowded = [
        dataclasses.replace(run(n, noise=0), hosts=1, cores=2, busy=2.0, steps=(Step(BATCH / n, 0.06, 0.0, 0.0, 0.0),))
        for n in (1, 2)
    ]
    made = ScalingReport("digits")
    made.runs += crowded
    same, apart = made.predict(4).rows[0], made.predict(4, per_host=1).rows[0]
    assert same.speedup == pytest.approx(1, rel=0.1), "no core is left"
    assert apart.speedup > 3


def test_other_strategies_and_too_little_to_predict():
    made = report(1, 2, strategy="ps", steps=8 * (Step(BATCH, 0.06, 0.001, 0.0, 0.0),))
    assert made.predict(4).rows[0].batch == 4 * BATCH and made.predict(4, batch=64).rows[0].batch == 256, (
        "each worker has its own"
    )
    with pytest.raises(NoPrediction, match="two numbers of workers"):
        report(2).predict(4)
    for asked in ({"workers": 0}, {"workers": []}, {"workers": 8, "batch": 7}, {"workers": 2, "batch": 10**6}):
        with pytest.raises(NoPrediction, match=r"name numbers of workers above 0|cannot share a batch"):
            report(1, 2).predict(**asked)
    with pytest.raises(NoPrediction, match="needs runs of average with two"):
        report(1, 2).predict(4, strategy="average")
    assert math.isnan(report(2).rows[0].rate_dev) and "±" not in str(report(2))


def variants(spec, line):
    """The runs that `%ddl scale digits` makes with these words."""
    values = BY_VERB["scale"].read(["digits", *line.split()])
    names = ("workers", "strategy", "seeds", "epochs", "global_batch")
    return list(request.variants(spec, *(values[name] for name in names)))


def test_the_runs_of_a_line():
    spec = dataclasses.replace(parse("--workers 2 --name digits --seed 5 --compression bf16 --out /o"), run="r1")
    made = variants(spec, "--workers 4,1 --strategy=allreduce,ps --seeds 2 --epochs 3")
    assert [(s.strategy, s.workers, s.seed) for s in made[:5]] == [
        ("allreduce", 4, 5),
        ("allreduce", 1, 5),
        ("ps", 4, 5),
        ("ps", 1, 5),
        ("allreduce", 4, 6),
    ]
    assert {(s.parent, s.epochs, s.out) for s in made} == {("r1", 3, None)} and len({s.name for s in made}) == 8
    assert (made[0].compression, made[0].rule) == ("bf16", None)
    assert (made[2].compression, made[2].rule, made[2].window, made[2].ps) == (None, "adag", 4, 1)


def test_a_global_batch_is_divided_where_each_worker_has_its_own():
    spec = dataclasses.replace(parse("--workers 2 --name digits --data rows --batch-size 32"), run="r1")
    runs = variants(spec, "--workers=1,4 --strategy=allreduce,ps,average --global-batch")
    assert {made.strategy: made.rule for made in runs} == {"allreduce": None, "ps": "adag:rate=1", "average": None}
    batches = {(made.strategy, made.workers): made.batch_size for made in runs}
    assert batches["allreduce", 4] == 32, "divided by the run itself"
    assert {batches["ps", 1], batches["average", 1]} == {32} and {batches["ps", 4], batches["average", 4]} == {8}
    elastic = dataclasses.replace(spec, rule="easgd", window=2)
    (made,) = variants(elastic, "--workers=4 --global-batch")
    assert (made.rule, made.batch_size) == ("easgd:rate=1", 8)
    own = dataclasses.replace(spec, strategy="ps", rule="adag:rate=1.5", ps=1)
    assert [made.rule for made in variants(own, "--workers=4 --global-batch")] == ["adag:rate=1.5"]

    three = "--workers=3 --strategy=ps --global-batch"
    with pytest.raises(UsageError, match=r"3 workers cannot share a batch of 32 rows equally: .* --batch-size 33, or"):
        variants(spec, three)
    with pytest.raises(UsageError, match="--global-batch needs a run with --data"):
        variants(dataclasses.replace(spec, data=None, batch_size=None), three)


def test_runs_that_share_a_batch_are_predicted_with_it():
    shared = [run(n, strategy="ps", steps=8 * (Step(BATCH / n, 0.06 / n, 0.001, 0.0, 0.0),)) for n in (1, 2)]
    made = ScalingReport("digits")
    made.runs += shared
    assert made.predict(4).rows[0].batch == BATCH and made.predict(4, batch=64).rows[0].batch == 64


def test_a_rule_of_all_reduce_shares_no_batch():
    """With easgd, each worker has batches of its own: more workers take more rows in a step."""
    made = ScalingReport("digits")
    for workers in (1, 2, 4):
        steps = tuple(dataclasses.replace(truth(workers), rows=256) for _ in range(4))
        made.runs.append(run(workers, rule="easgd", steps=steps))
    assert made.predict(workers=[8]).rows[0].batch == 8 * 256
