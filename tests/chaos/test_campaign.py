"""A short campaign, and the arithmetic of its table."""

import json

import pytest
from support.processes import output_of

from chaos import campaign, faults, hosts, record

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
    assert faults.chosen("rank: SIGKILL") == ["rank: SIGKILL"] and faults.chosen("") == list(faults.FAULTS)
    assert faults.chosen("^link: c") == ["link: cut for a moment", "link: cut"]


def test_seeds_in_a_row_do_each_fault_once():
    names = list(faults.FAULTS)
    assert sorted(campaign.name_of(seed, names) for seed in range(len(names))) == sorted(names)
    assert campaign.name_of(5, ["only"]) == "only"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(hosts.obstacle()), reason=hosts.obstacle())
def test_a_short_campaign(tmp_path):
    arguments = ("--seed=0", f"--count={COUNT}", "--faults", PATTERN, "--folder", tmp_path)
    output_of("chaos.campaign", *arguments, timeout=800)
    lines = [json.loads(each) for each in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert {each["fault"] for each in lines} == set(faults.chosen(PATTERN)) and len(lines) == COUNT
    assert {each["outcome"] for each in lines} <= {"right", "told", "late"}
