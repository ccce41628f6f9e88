"""The benchmarks' own arithmetic, and that the commands can be called. What they measure is no test's business."""

import json
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import b4, b5, b7, report, training  # noqa: E402  (the folder is no part of the package)
from benchmarks.relay import Relay  # noqa: E402


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_quantiles_are_numpys(share, count):
    samples = np.random.default_rng(count).normal(size=count).tolist()
    assert report.quantile(samples, share) == pytest.approx(np.quantile(samples, share))


def test_the_interval_of_a_median_mostly_holds_the_true_one():
    draws = [np.random.default_rng(seed).normal(5.0, size=24).tolist() for seed in range(40)]
    intervals = [report.interval(samples) for samples in draws]
    held = sum(low < 5.0 < high for low, high in intervals)
    assert held >= 34, f"{held} of 40, where 38 are expected"
    assert all(low <= np.median(samples) <= high for samples, (low, high) in zip(draws, intervals, strict=True))
    assert max(high - low for low, high in intervals) < 2.0
    assert report.interval(draws[0]) == intervals[0], "the same samples give the same interval"


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
    assert training.step_seconds(ends, 0.5, 4.0) == pytest.approx(3.5 / 2.5)
    assert training.step_seconds(ends, 5.0, 6.0) == pytest.approx(5.0), "a stall longer than the block"
    with pytest.raises(ValueError, match="ended before"):
        training.step_seconds(ends, 8.0, 9.5)


def test_ages_begin_with_the_second_thing_that_was_drawn():
    screen = pytest.importorskip("benchmarks.screen", reason="wants Playwright")
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
    assert b4.bound_seconds(2_800_000, 2, False) == pytest.approx(0.050 + 0.56 / 118.75)
    assert b4.bound_seconds(2_800_000, 8, False) == pytest.approx(0.017 + 1.75 * (2.8 + 0.56) / 118.75)
    assert b4.bound_seconds(2_800_000, 8, True) == pytest.approx(0.050 + 1.75 * 0.28 / 118.75)
    assert b4.efficiencies({"2 hosts, 2.8 MB, after": [0.1]}) == {
        "2 hosts, 2.8 MB, after": [pytest.approx(b4.bound_seconds(2_800_000, 2, False) / 0.1)]
    }


def test_costs_are_those_of_neighbouring_blocks():
    on, off = [b7.Block(11.0, 20.0), b7.Block(10.0, 22.0)], [b7.Block(10.0, 20.0), b7.Block(20.0, 20.0)]
    assert b7.costs(on, off, "time") == pytest.approx([10.0, -50.0])
    assert b7.costs(on, off, "cpu") == pytest.approx([0.0, 10.0])


def test_accuracy_is_compared_with_one_process():
    """After the last epoch, as a mean over the seeds; a variant that gets there too late does not get there."""
    alone = [b5.Fit("table", [1.0, 2.0], [70.0, 80.0]), b5.Fit("table", [1.0, 2.0], [70.0, 82.0])]
    near, far = b5.Fit("table", [3.0, 6.0], [80.5, 80.6]), b5.Fit("table", [3.0, 6.0], [20.0, 80.0])
    fits = {"table, one process, 1 worker": alone, "table, adag, 8 workers": [near], "table, dynsgd, 8 workers": [far]}
    assert [(goal.measured, goal.met) for goal in b5.goals(fits)] == [(pytest.approx(-0.4), True), (-1.0, False)]
    assert b5.epochs_until(near, 80.5) == 1 and b5.epochs_until(far, 80.5) is None
    assert [line.split()[-3:] for line in b5.table(fits).splitlines()[3:]] == [["2", "3", "6"], ["-", "-", "6"]]


def test_fits_are_kept_for_the_next_time(tmp_path):
    file, epochs = tmp_path / "fits.jsonl", {"digits": 2, "table": 1}
    fits = [b5.Fit("digits", [1.0, 2.0], [70.0, 80.0]), b5.Fit("table", [1.0], [75.0])]
    assert b5.kept(file, "adag", 8, 1, epochs) == []
    b5.keep(file, "adag", 8, fits)
    assert b5.kept(file, "adag", 8, 1, epochs) == fits
    assert b5.kept(file, "adag", 4, 1, epochs) == b5.kept(file, "adag", 8, 2, epochs) == []
    assert b5.kept(file, "adag", 8, 1, {"digits": 60, "table": 1}) == []


@pytest.mark.parametrize("name", ["live", "b1", "b4", "b5", "b7"])
def test_help(name):
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"python -m benchmarks.{name}" in shown.stdout
