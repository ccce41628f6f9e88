"""What a view knows of a run after some events, by value."""

import math

import pytest
from support.synthetic import Synthetic

from ddl_magics.dashboard.charts import charts
from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.loglines import LogTail, clean
from ddl_magics.dashboard.progress import Pace, Progress
from ddl_magics.dashboard.workers import Worker
from ddl_magics.runtime import events as ev


def played(run: Synthetic, *parts) -> History:
    history = History(run.workers)
    for part in parts:
        history.feed(part)
    return history


def test_steps_add_up_and_the_last_values_are_those_of_the_job():
    run = Synthetic(2, epochs=3, steps=25, bucket=10)
    history = played(run, run.begin(), run.train(), run.end())
    assert [worker.steps for worker in history.workers.values()] == [75, 75]
    assert sum(history.series["metric:loss"].counts) == 75
    assert sum(history.series["metric:val_loss"].counts) == 3
    assert history.series["metric:loss"].x[-1] == 75
    assert history.series["metric:val_loss"].x == [25, 50, 75]
    assert history.latest["loss"] == pytest.approx(run.metrics(1.0)["loss"])
    assert history.metrics() == ["loss", "accuracy"]
    assert history.state["state"] == "FINISHED" and history.over
    assert history.progress.fraction() == 1.0


def test_samples_per_second_of_the_job_are_the_sum_of_the_workers():
    run = Synthetic(3, epochs=3, steps=25, bucket=10, slow={1: 3.0})
    history = History(3)
    for event in [*run.begin(), *run.train(), *run.end()]:
        history.feed([event])
        rates = [worker.rate for worker in history.workers.values() if worker.steps]
        if rates:
            assert history.rate == pytest.approx(sum(rates))
    assert history.peak >= history.rate > 0


def test_time_in_collectives_is_told_apart_where_a_run_says_it():
    fields = {"fit": 0, "epoch": 0, "step": 0, "count": 1, "rows": 8, "seconds": 1.0, "metrics": {}}
    worker = Worker(0)
    worker.add_steps(ev.parse(ev.make("steps", 0, **fields, compute=0.5, wait=0.5, copy=0.1, wire=0.25)))
    assert (worker.waiting, worker.network, worker.summing) == pytest.approx((0.15, 0.25, 0.1))
    older = Worker(0)
    older.add_steps(ev.parse(ev.make("steps", 0, **fields, compute=0.5, wait=0.5)))
    assert (older.waiting, older.network, older.summing) == (0.5, 0.0, 0.0)
    assert math.isnan(older.data)


def test_waiting_for_data_is_a_part_of_the_step_time_and_a_line():
    history = History(2)
    fields = {"fit": 0, "epoch": 0, "count": 1, "rows": 8, "seconds": 1.0, "compute": 0.5, "wait": 0.25, "metrics": {}}
    for step in range(3):
        for rank, data in ((0, 0.25), (1, 0.0)):
            event = ev.make("steps", rank, **fields, step=step, **({"data": data} if data else {}))
            history.feed([{**event, "time": 1.0 + step}])
    waits, other = history.workers[0], history.workers[1]
    assert (waits.data, waits.waiting) == pytest.approx((0.25, 0.25)) and math.isnan(other.data)
    assert list(history.series["data:0"].y) == pytest.approx([0.25, 0.25]) and "data:1" not in history.series


def test_who_computes_longer_waits_less():
    run = Synthetic(2, epochs=1, steps=1000, slow={1: 2.0})
    history = played(run, run.begin(), run.train())
    fast, slow = history.workers[0], history.workers[1]
    assert slow.compute == pytest.approx(2 * fast.compute, rel=0.1)
    assert fast.waiting > 0.4 and slow.waiting < 0.1
    assert fast.rate == pytest.approx(slow.rate)


def steps(rank, epoch, step, count=5, rows=20, attempt=1):
    fields = {"fit": 0, "epoch": epoch, "step": step, "count": count, "rows": rows, "seconds": 0.1, "metrics": {}}
    return {**ev.make("steps", rank, compute=0.1, wait=0.0, **fields), "attempt": attempt}


def test_samples_are_those_of_all_ranks_and_count_once_after_a_restart():
    history = History(2)
    history.feed([ev.make("fit", 0, fit=0, model="m", epochs=2, steps=10)])
    history.feed([steps(rank, 0, step) for step in (0, 5) for rank in range(2)])
    history.feed([steps(rank, 0, step, attempt=2) for step in (5,) for rank in range(2)])
    history.feed([steps(rank, 1, 0, attempt=2) for rank in range(2)])
    history.feed([ev.make("state", ev.JOB, state=ev.FINISHED, message="")])
    line = history.series["samples"]
    assert (line.x[0], line.y[0]) == (0, 0) and (line.x[-1], line.y[-1]) == (15, 120)


def test_a_run_that_reports_no_steps_has_no_samples():
    history = History(1)
    history.feed([ev.make("values", 0, metrics={"loss": 1.0}, step=0)])
    history.feed([ev.make("state", ev.JOB, state=ev.FINISHED, message="")])
    assert "samples" not in history.series


def test_the_rate_is_that_of_the_whole_job():
    run = Synthetic(4, epochs=1, steps=1000, step_seconds=0.02)
    history = played(run, run.begin(), run.train())
    # 256 rows in 20 ms, with up to 2 % of noise in the time.
    assert history.rate == pytest.approx(256 / 0.02, rel=0.03)


#: Rank 0 dies at 30 % of the training, and rank 3 joins at 60 %.
GROUPS = {0.3: [1, 2], 0.6: [1, 2, 3]}


def test_workers_come_and_go():
    run = Synthetic(3, epochs=4, steps=100, gpus=0, groups=GROUPS)
    history = played(run, run.begin(), run.train(0.5))
    assert {rank: worker.info()["state"] for rank, worker in history.workers.items()} == {
        0: "left",
        1: "training",
        2: "training",
    }
    assert history.rate == pytest.approx(sum(history.workers[rank].rate for rank in (1, 2)))
    history.feed([*run.train(), *run.end()])
    line = history.series["workers"]
    assert list(dict.fromkeys(line.y)) == [3.0, 2.0] and line.y[-1] == 3.0 and line.y.count(2.0) > 2
    lost = line.x[line.y.index(2.0)]
    joined = line.x[line.y.index(2.0) + line.y.count(2.0)]
    assert history.series["cpu:0"].x[-1] < lost and history.series["cpu:3"].x[0] >= joined
    assert history.progress.fraction() == 1.0, "the lowest of those that are left has told it"
    assert math.isnan(history.series["0:loss"].y[-1]) and history.series["3:loss"].y[-1] < 1.0
    said = [text for rank, _, text in history.logs.newest(100) if rank == ev.JOB]
    assert [text[:6] for text in said] == ["rank 0", "rank 3"] and said[1].endswith("has joined; running on 3 workers")


def test_a_rank_that_has_left_may_come_back_in_another_attempt():
    run = Synthetic(3, epochs=4, steps=100, gpus=0, groups=GROUPS)
    history = played(run, run.begin(), run.train(0.5))
    points = len(history.series["workers"])
    history.feed([run.state(ev.WAITING), *run.train(0.55)])
    assert len(history.series["workers"]) == points, "between attempts nobody trains"
    history.feed([run.make("worker", 0, host="wn3-hdi", pid=1, device="CPU", state="starting")])
    assert history.workers[0].info()["state"] == "starting"
    history.feed([run.state(ev.RUNNING), run.make("group", members=[0, 1, 2])])
    assert not any(worker.has_left for worker in history.workers.values())


def test_how_many_executors_the_session_holds():
    run = Synthetic(2, epochs=1, steps=10)
    history = played(run, run.begin())
    assert history.executors is None
    history.feed([run.make("held", executors=5)])
    assert history.executors == 5


def test_a_run_whose_workers_stay_has_no_line_of_them():
    run = Synthetic(2, epochs=1, steps=100)
    assert "workers" not in played(run, run.begin(), run.train()).series


def test_without_a_gpu_there_is_no_number_and_no_line():
    run = Synthetic(2, epochs=2, steps=100, gpus=0)
    history = played(run, run.begin(), run.train())
    assert all(math.isnan(worker.gpu) and math.isnan(worker.gpu_memory) for worker in history.workers.values())
    assert not [key for key in history.series if key.startswith("gpu:")]
    assert [key for key in history.series if key.startswith("cpu:")] == ["cpu:0", "cpu:1"]


def test_many_ranks_make_three_lines_not_a_line_each():
    run = Synthetic(64, epochs=1, steps=200)
    history = played(run, run.begin(), run.train())
    assert [key for key in history.series if key.startswith("gpu:")] == ["gpu:low", "gpu:median", "gpu:high"]
    low, middle, high = (history.series[f"gpu:{which}"].y[-1] for which in ("low", "median", "high"))
    assert low <= middle <= high


def test_a_second_fit_goes_on_to_the_right():
    run = Synthetic(1, epochs=2, steps=10)
    history = played(run, run.begin(), run.train())
    history.feed([run.make("fit", 0, fit=1, model="sequential", epochs=4, steps=10)])
    again = Synthetic(1, epochs=4, steps=10)
    history.feed(dict(event, fit=1) if "fit" in event else event for event in again.train())
    assert history.progress.fit == 1 and history.progress.epochs == 4
    assert history.series["metric:loss"].x[-1] == 60
    assert history.series["epoch"].y[-1] == 6
    loss = charts(history)[0]
    assert loss.x_title == "epochs" and loss.lines[0].x[-1] == 6


def test_an_epoch_of_unknown_length_is_learnt_from_the_first():
    run = Synthetic(1, epochs=4, steps=50)
    begin = [dict(event, steps=None) if event["kind"] == "fit" else event for event in run.begin()]
    history = played(run, begin, run.train(0.2))
    assert history.progress.steps is None and history.progress.fraction() == 0
    history = played(run, begin, Synthetic(1, epochs=4, steps=50).train(0.6))
    assert history.progress.steps == 50
    assert history.progress.fraction() == pytest.approx(0.6)


def test_null_and_infinite_metrics_are_not_numbers_to_show():
    run = Synthetic(1)
    history = played(run, run.begin())
    fields = {"fit": 0, "epoch": 0, "count": 1, "rows": 8, "seconds": 0.1, "compute": 0.1, "wait": 0.0}
    for step, value in enumerate((1.0, None, float("inf"))):
        history.feed([run.make("steps", 0, step=step, metrics={"loss": value}, **fields)])
    assert history.latest == {"loss": 1.0}
    assert sum(history.series["metric:loss"].counts) == 3


def test_values_of_a_loop_without_fit_get_a_line():
    run = Synthetic(1)
    history = History(1)
    history.feed(run.make("values", 0, metrics={"reward": float(i)}, step=10 * i) for i in range(3))
    assert history.series["metric:reward"].x == history.series["seconds"].x == [0, 10, 20]
    assert history.metrics() == ["reward"]


def test_steps_are_known_by_their_time():
    run = Synthetic(2, epochs=3, steps=2000)
    history = played(run, run.begin(), run.train())
    steps, seconds = history.series["seconds"].x, history.series["seconds"].y
    assert steps[-1] == 6000 and seconds[-1] == pytest.approx(history.seconds(run.time))
    half = next(k for k, step in enumerate(steps) if step >= 3000)
    assert seconds[half] == pytest.approx(steps[half] * run.step_seconds, rel=0.03)


def test_unknown_kinds_change_nothing():
    history = History(1)
    history.feed([{"kind": "surprise", "rank": 0, "time": 1.0}])
    assert not history.series and not history.workers


def test_the_remaining_time_follows_the_pace_of_the_last_part():
    pace = Pace()
    for second in range(101):
        pace.add(second, second / 200)
    assert pace.end() == pytest.approx(200)
    for second in range(101, 301):
        pace.add(second, 0.5 + (second - 100) / 1000)
    assert pace.end() == pytest.approx(600)


def test_nothing_is_said_about_the_end_before_there_is_a_pace():
    pace = Pace()
    assert pace.end() is None
    pace.add(1.0, 0.1)
    pace.add(2.0, 0.1)
    assert pace.end() is None
    assert Progress().fraction() == 0


def test_log_lines_are_what_a_terminal_would_have_left():
    assert clean("\x1b[31mred\x1b[0m") == "red"
    assert clean("1/10 loss 3\r10/10 loss 2") == "10/10 loss 2"
    assert clean("a\x08\x00b\tc") == "ab\tc"
    assert len(clean("x" * 5000)) == 400


def test_a_talkative_rank_does_not_push_out_the_others():
    tail = LogTail(2)
    tail.add(1, "err", "the one line of rank 1\n")
    for i in range(10_000):
        tail.add(0, "out", f"line {i}\n")
    lines = tail.newest(tail.added)
    assert lines[0].text == "the one line of rank 1"
    assert lines[-1].text == "line 9999" and len(lines) <= 2 * tail.limit


def test_long_names_and_states_of_a_later_version():
    history = History(2)
    history.feed(
        [
            ev.make("worker", 0, host="h" * 9000, pid=1, device="d\0", state="training"),
            ev.make("epoch", 0, fit=0, epoch=0, metrics={"m" * 9000: 1.0}, seconds=1.0),
            ev.make("state", ev.JOB, state="PAUSED", message=""),
        ]
    )
    assert len(history.workers[0].host) == 100 and history.workers[0].device == "d"
    assert [len(name) for name in history.latest] == [100] and history.state["state"] == ev.QUEUED


def test_a_lost_run_that_is_attached_again_has_not_ended():
    history = History(2)
    for number, state in enumerate((ev.RUNNING, ev.LOST, ev.RUNNING)):
        history.feed([{**ev.make("state", ev.JOB, state=state, message=""), "seq": number + 1, "time": float(number)}])
        assert (history.ended is not None) == (state == ev.LOST)


def test_a_rank_keeps_the_memory_that_it_had_when_its_process_ends():
    run = Synthetic(1, epochs=1, steps=1)
    sizes = [700_000_000, 900_000_000, 800_000_000, 0]
    samples = [run.make("sample", 0, cpu=90.0 if size else 0.0, memory=size, gpus=None) for size in sizes]
    (worker,) = played(run, run.begin(), samples).workers.values()
    assert (worker.cpu, worker.memory, worker.memory_peak) == (90.0, 800_000_000, 900_000_000)
