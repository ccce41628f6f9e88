"""The arithmetic of the benchmarks, and that their commands can be called."""

import importlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
from support.paths import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks import (
    SHORT_NAMES,
    accuracy,
    compare_commits,
    first_gain,
    memory,
    multi_host_step,
    resnet50,
    telemetry_cost,
)
from benchmarks.harness import peak_memory, report, watched_training
from benchmarks.harness.json_process import JsonProcess, ask, close
from benchmarks.harness.peak_memory import Peaks
from benchmarks.harness.relay import Relay
from benchmarks.harness.rounds import rotated


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_quantiles_are_numpys(share, count):
    samples = np.random.default_rng(count).normal(size=count).tolist()
    assert report.quantile(samples, share) == pytest.approx(np.quantile(samples, share))


def test_the_interval_of_a_median_mostly_holds_the_true_one():
    draws = [np.random.default_rng(seed).normal(5.0, size=24).tolist() for seed in range(40)]
    intervals = [report.median_interval(samples) for samples in draws]
    held = sum(low < 5.0 < high for low, high in intervals)
    assert held >= 34, f"{held} of 40, where 38 are expected"
    assert all(low <= np.median(samples) <= high for samples, (low, high) in zip(draws, intervals, strict=True))
    assert max(high - low for low, high in intervals) < 2.0
    assert report.median_interval(draws[0]) == intervals[0], "the same samples give the same interval"


def test_goals_are_met_at_their_bound():
    assert report.at_most("a", 1.5, 1.5).met and not report.at_most("a", 1.51, 1.5).met
    assert report.at_least("b", 4.0, 4.0).met and not report.at_least("b", 3.99, 4.0).met


def test_the_last_line_is_json_with_every_sample_and_goal(capsys):
    report.finish({"one": [1.0, 2.5], "other": [3.0]}, [report.at_most("p95, s", 2.0, 1.5)], pairs=2)
    *told, last = capsys.readouterr().out.splitlines()
    assert told == ["NOT MET: p95, s: 2, goal 1.5"]
    record = json.loads(last)
    assert record["samples"] == {"one": [1.0, 2.5], "other": [3.0]}
    assert record["goals"] == [["p95, s", 2.0, 1.5, False]] and record["pairs"] == 2
    assert "cores" in record["machine"]


def test_the_table_of_spread():
    lines = report.spread({"long name": [1.0, 2.0, 3.0], "b": [1234.5]}, "s").splitlines()
    assert lines[0].split() == ["samples", "median", "s", "p5", "p95", "largest"]
    assert lines[2].split() == ["long", "name", "3", "2", "1.1", "2.9", "3"]
    assert lines[3].split() == ["b", "1", "1234", "1234", "1234", "1234"]
    assert len({len(line) for line in lines}) == 1


def test_the_mean_step_time_counts_steps_by_their_share():
    ends = [0.0, 1.0, 2.0, 4.0, 9.0]
    assert watched_training.step_seconds(ends, 0.5, 4.0) == pytest.approx(3.5 / 2.5)
    assert watched_training.step_seconds(ends, 5.0, 6.0) == pytest.approx(5.0), "a stall longer than the block"
    with pytest.raises(ValueError, match="ended before"):
        watched_training.step_seconds(ends, 8.0, 9.5)


def test_ages_begin_with_the_second_thing_that_was_drawn():
    screen = pytest.importorskip("benchmarks.harness.live_screen", reason="wants Playwright")
    made = [(1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0), (5, 4.0)]
    drawn = [(1, 1.5), (3, 2.5), (4, 3.25)]
    assert screen.ages(made, drawn) == [1.5, 0.5, 0.25]


def test_the_relay_counts_what_goes_through():
    class Hello(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "5000")
            self.end_headers()
            self.wfile.write(b"x" * 5000)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    begin = time.time()
    with Relay(f"http://127.0.0.1:{server.server_port}") as relay:
        for _ in range(3):
            with urllib.request.urlopen(f"{relay.url}/path") as reply:
                assert len(reply.read()) == 5000
        seen = relay.between(begin, time.time())
    server.shutdown()
    server.server_close()
    assert [line for block in seen for line in block.requests] == ["GET /path"] * 3
    assert 15_000 < sum(block.down for block in seen) < 16_500
    assert 150 < sum(block.up for block in seen) < 1_500


def test_the_bound_of_a_step_between_hosts():
    """50 ms of computing; a line carries 118.75 MB/s; 2.8 MB are sent in five buckets, the last of 0.56 MB."""
    assert multi_host_step.bound_seconds(2_800_000, 2, False) == pytest.approx(0.050 + 0.56 / 118.75)
    assert multi_host_step.bound_seconds(2_800_000, 8, False) == pytest.approx(0.017 + 1.75 * (2.8 + 0.56) / 118.75)
    assert multi_host_step.bound_seconds(2_800_000, 8, True) == pytest.approx(0.050 + 1.75 * 0.28 / 118.75)
    assert multi_host_step.efficiencies({"2 hosts, 2.8 MB, after": [0.1]}) == {
        "2 hosts, 2.8 MB, after": [pytest.approx(multi_host_step.bound_seconds(2_800_000, 2, False) / 0.1)]
    }


def test_costs_are_those_of_neighbouring_blocks():
    block = telemetry_cost.Block
    on, off = [block(11.0, 20.0, 0.1), block(10.0, 22.0, 0.1)], [block(10.0, 20.0, 0.0), block(20.0, 20.0, 0.0)]
    assert telemetry_cost.costs(on, off, "time") == pytest.approx([10.0, -50.0])
    assert telemetry_cost.costs(on, off, "cpu") == pytest.approx([0.0, 10.0])


def test_accuracy_is_compared_with_one_process():
    """After the last epoch, as a mean over the seeds; a variant that gets there too late does not get there."""
    alone = [accuracy.Fit("table", [1.0, 2.0], [70.0, 80.0]), accuracy.Fit("table", [1.0, 2.0], [70.0, 82.0])]
    near, far = accuracy.Fit("table", [3.0, 6.0], [80.5, 80.6]), accuracy.Fit("table", [3.0, 6.0], [20.0, 80.0])
    fits = {"table, one process, 1 worker": alone, "table, adag, 8 workers": [near], "table, dynsgd, 8 workers": [far]}
    assert [(goal.measured, goal.met) for goal in accuracy.goals(fits)] == [(pytest.approx(-0.4), True), (-1.0, False)]
    assert accuracy.epochs_until(near, 80.5) == 1 and accuracy.epochs_until(far, 80.5) is None
    assert [line.split()[-3:] for line in accuracy.table(fits).splitlines()[3:]] == [["2", "3", "6"], ["-", "-", "6"]]


def test_images_are_counted_as_horovods_script_counts_them():
    """A sample is an iteration; the interval is 1.96 standard deviations of the samples, as numpy.std has it."""
    assert resnet50.rates([2.0, 4.0], {"batch": 32, "batches": 10}) == [160.0, 80.0]
    assert resnet50.interval([2.0, 4.0]) == pytest.approx(1.96)
    four = resnet50.variant(4, resnet50.BF16)
    assert resnet50.workers_of(four) == 4 and resnet50.workers_of(resnet50.variant(1, resnet50.ALONE)) == 1
    shown = resnet50.table({resnet50.ALONE: [9.0, 11.0], four: [4.0, 6.0]}).splitlines()
    assert shown[2].split() == ["one", "worker", "2", "10.00", "±", "1.96", "10.00", "±", "1.96", "100%"]
    assert shown[3].split()[3:] == ["2", "5.00", "±", "1.96", "20.00", "±", "7.84", "50%"]


def test_a_prediction_needs_two_numbers_of_workers():
    assert resnet50.what_if({}, 32).startswith("no prediction: a prediction needs runs with two numbers of workers")


def test_fits_are_kept_for_the_next_time(tmp_path):
    file, epochs = tmp_path / "fits.jsonl", {"digits": 2, "table": 1}
    fits = [accuracy.Fit("digits", [1.0, 2.0], [70.0, 80.0]), accuracy.Fit("table", [1.0], [75.0])]
    assert accuracy.kept(file, "adag", 8, 1, epochs) == []
    accuracy.keep(file, "adag", 8, fits)
    assert accuracy.kept(file, "adag", 8, 1, epochs) == fits
    assert accuracy.kept(file, "adag", 4, 1, epochs) == accuracy.kept(file, "adag", 8, 2, epochs) == []
    assert accuracy.kept(file, "adag", 8, 1, {"digits": 60, "table": 1}) == []


def test_each_round_begins_with_another_variant():
    assert [rotated("abc", number) for number in (0, 1, 5)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    assert rotated({"a": 1, "b": 2}, -1) == ["b", "a"]


def _child(code):
    return JsonProcess([sys.executable, "-c", code])


def test_child_processes_answer_each_message():
    echo = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    children = [_child(echo), _child(echo)]
    assert ask(children, {"a": [1, None]}) == [{"a": [1, None]}] * 2
    close(children)


def test_a_child_process_that_ends_is_named():
    child = _child("import sys; sys.stdin.readline(); sys.exit(3)")
    with pytest.raises(SystemExit, match="exit status 3"):
        ask([child], {})
    with pytest.raises(SystemExit, match="exit status 3"):
        child.send("x" * 100_000)


def test_commits_are_compared_by_the_medians_of_all_pairs():
    pairs = [compare_commits.Pair([2.0, 4.0], [1.0]), compare_commits.Pair([6.0], [2.0, 3.0])]
    assert compare_commits.medians(pairs) == (4.0, 2.0)
    assert compare_commits.ratio(pairs) == 2.0
    here, there = compare_commits.Side("here", ROOT), compare_commits.Side("there", ROOT)
    shown = compare_commits.table({"a b": pairs}, here, there).splitlines()
    assert shown[2].split()[:6] == ["a", "b", "2", "4", "2", "2"]


def test_a_commit_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"compare_commits: .*nowhere.*: name a commit"):
        compare_commits.extract("nowhere", tmp_path)


def test_the_pages_have_a_place_for_the_figures_of_the_first_hour():
    for page in first_gain.PAGES:
        assert len(first_gain.FIGURES.findall(page.read_text())) == 1, page.name
    seconds = {"plain fit": [3.0, 8.0, 4.0], "average": [2.0, 4.0, 1.0]}
    assert first_gain.ratio(seconds, "average", "plain fit") == 2.0


COMMANDS = [*SHORT_NAMES, "live", "panel", "long_run", "compare_commits", "resnet50", "first_gain"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        importlib.import_module(f"benchmarks.{name}").main(["--help"])
    assert f"python -m benchmarks.{SHORT_NAMES.get(name, name)}" in capsys.readouterr().out


def test_a_short_name_is_a_command():
    command = [sys.executable, "-m", "benchmarks.b4", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "python -m benchmarks.multi_host_step" in shown.stdout


@pytest.mark.slow  # with smaller budgets and fewer workers: runs/test_bounds.py
@pytest.mark.timeout(900)
def test_memory_and_disk_of_a_simulated_day_of_256_workers_are_bounded(data_dir, capsys):
    importlib.import_module("benchmarks.long_run").main(["--quick"])
    goals = json.loads(capsys.readouterr().out.splitlines()[-1])["goals"]
    assert len(goals) == 5 and all(met for *_, met in goals), goals


def test_peaks_are_of_the_largest_process_of_a_name():
    peaks = Peaks(dict)
    peaks.note({1: ("rank 0", 5), 2: ("supervisor", 2), 3: ("supervisor", 3)})
    peaks.note({1: ("rank 0", 9), 2: ("supervisor", 0)})
    assert (peaks.first, peaks.most) == ({"rank 0": 5, "supervisor": 2}, {"rank 0": 9, "supervisor": 3})
    assert peak_memory.parsed("Pss:   99 kB\nPss_Anon:  7 kB\nPss_File:  9 kB\nPss_Shmem:  5 kB\n") == 12 * 1024
    assert peak_memory.pss(os.getpid()) > 1 << 20 and peak_memory.pss(2**30) == 0


def test_the_goals_of_memory_count_copies_of_the_model():
    measured = {"rank 0": 115.0, "rank 1": 90.0, "plain Keras": 100.0}
    measured |= {
        "driver, Python": 80.0,
        "driver, Python before": 20.0,
        "driver, JVM": 300.0,
        "driver, JVM before": 190.0,
    }
    goals = memory.goals("case", measured, 100)
    assert [(round(goal.measured, 2), goal.met) for goal in goals] == [(1.15, True), (0.6, True), (1.1, False)]
    assert len(memory.goals("case", measured, 10)) == 1, "a JVM grows by more for no reason"
    assert "batch_size=8," in memory.cell(10, "adam", 4) and "random((48, 64))" in memory.cell(10, "adam", 4)
