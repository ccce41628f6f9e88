"""A short campaign, and the arithmetic of its table."""

import json
from pathlib import Path

import pytest
from support.processes import output_of

from chaos import campaign, faults, hosts, power, record, rooms

#: Of the short campaign, in which each of its faults comes once.
PATTERN = "^(rank|supervisor|parameter server): SIGKILL|^link: (slow|cut for)|^rank: SIGSTOP, SIGCONT"
COUNT = 6


def line(fault, outcome, noticed=None):
    return {"seed": 1, "fault": fault, "outcome": outcome, "noticed": noticed}


def test_the_table_counts_each_fault(tmp_path):
    book = record.Record(tmp_path)
    for one in (line("a", "right", 1.0), line("a", "told", 3.0), line("b", "wrong"), line("b", "late")):
        book.add(one)
    rows = record.Record(tmp_path).table().splitlines()[2:]
    assert rows == ["| a | 2 | 1 | 1 | 0 | 2.0, 3.0 |", "| b | 1 | 0 | 0 | 1 |  |", "| all | 3 | 1 | 1 | 1 |  |"]
    assert (tmp_path / "table.md").read_text().splitlines()[2:] == rows
    assert record.Record(tmp_path).next_seed() == 2


def test_what_is_kept_has_no_more_than_the_table_needs(tmp_path):
    kept = tmp_path / "kept.jsonl"
    for problems in ([], ["late"]):
        book = record.Record(tmp_path / "folder", kept)
        book.add({**line("a", "wrong" if problems else "right", 1.0), "about": "rank 1", "problems": problems})
        table = book.table()
        book.keep()
        assert record.Record(tmp_path / "folder", kept).table() == table
    first, second = map(json.loads, kept.read_text().splitlines())
    assert "about" not in first and "problems" not in first and second["problems"] == ["late"]


def test_the_table_of_the_docs_is_that_of_the_record(tmp_path):
    assert record.table_of(record.PAGE.read_text()) == record.Record(tmp_path, record.KEPT).table() + "\n"


def test_faults_are_chosen_by_their_names():
    assert campaign.chosen("rank: SIGKILL") == ["rank: SIGKILL"] and campaign.chosen("") == [
        *faults.FAULTS,
        *rooms.ROOMS,
    ]
    assert campaign.chosen("^link: c") == ["link: cut for a moment", "link: cut"]


def test_seeds_in_a_row_do_each_fault_once():
    names = list(faults.FAULTS)
    assert sorted(campaign.name_of(seed, names) for seed in range(len(names))) == sorted(names)
    assert campaign.name_of(5, ["only"]) == "only"


class Always:
    """In the place of random numbers: a cut that loses all that it may, where any synchronization brings all there."""

    def random(self):
        return 0.0

    def randint(self, least, most):
        return least

    def choice(self, values):
        return values[0]


def test_a_power_cut_takes_back_what_was_not_synchronized(tmp_path):
    file, part, final, old = (str(tmp_path / name) for name in ("file", "part", "final", "old"))
    for name, content in ((file, "synchronized and more"), (final, "new"), (tmp_path / "kept", "old")):
        Path(name).write_text(content)
    before = [["created", file, False], ["synchronized", file, 12]]
    after = [["created", part, False], ["renamed", final, part, None], ["removed", old, str(tmp_path / "kept")]]
    assert power.cut(before + after, Always()) == 3
    assert Path(file).read_text() == "synchronized" and Path(old).read_text() == "old"
    assert not Path(final).exists() and not Path(part).exists()


def test_what_a_power_cut_may_not_lose_stays(tmp_path):
    final = tmp_path / "final"
    final.write_text("whole")
    part = str(tmp_path / "part")
    changes = [["created", part, False], ["synchronized", part, 5], ["renamed", str(final), part, None]]
    assert power.cut([*changes, ["synchronized", str(tmp_path), 0]], Always()) == 0
    assert final.read_text() == "whole"


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.skipif(bool(hosts.obstacle()), reason=hosts.obstacle())
def test_a_short_campaign_in_rooms(tmp_path):
    pattern = "^export: SIGKILL|^registry: power|^server: SIGKILL$|^cell|^search: journal"
    names = campaign.chosen(pattern)
    arguments = ("--seed=0", f"--count={len(names)}", "--faults", pattern, "--folder", tmp_path)
    output_of("chaos.campaign", *arguments, timeout=600)
    lines = [json.loads(each) for each in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert sorted(each["fault"] for each in lines) == sorted(names)
    assert {each["outcome"] for each in lines} <= {"right", "told"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(hosts.obstacle()), reason=hosts.obstacle())
def test_a_short_campaign(tmp_path):
    arguments = ("--seed=0", f"--count={COUNT}", "--faults", PATTERN, "--folder", tmp_path)
    output_of("chaos.campaign", *arguments, timeout=800)
    lines = [json.loads(each) for each in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert {each["fault"] for each in lines} == set(campaign.chosen(PATTERN)) and len(lines) == COUNT
    assert {each["outcome"] for each in lines} <= {"right", "told", "late"}
