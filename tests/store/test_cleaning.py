"""Which stored runs are removed, and that no run is removed that somebody needs."""

import json
import os
import random
import time
from dataclasses import replace

import pytest
from support.stored import claim, dead_process, kill_owner, stored

from ddl_magics import store
from ddl_magics.runtime import events as ev
from ddl_magics.store import cleaning
from ddl_magics.store.cleaning import Policy, StoredRun

pytestmark = pytest.mark.usefixtures("data_dir")

DAY = 86400.0
ADDRESS = {"livy": "http://livy.example", "session": 1, "name": "n", "runtime": "ddl_runtime_0123456789ab"}


def run(days, size=0, state=ev.FINISHED, labels=(), place=None, **spec):
    """A stored run that began and ended so many days ago."""
    at = time.time() - days * DAY
    made = stored(state, created=at, place=place, **spec)
    made.update({"ended": at})
    made.file("model-0.keras").write_bytes(b"x" * size)
    if labels:
        made.label(labels)
    return made


def left():
    return {record.id for record in store.list_runs()}


def cleaned(**policy):
    return {each.record.id for each in cleaning.clean(Policy(**policy))}


def test_without_a_policy_everything_stays():
    run(1000)
    assert cleaned() == set() and len(left()) == 1


def test_each_rule_and_two_of_them():
    old, middle, new = (run(days).path.name for days in (40, 20, 10))
    runs = cleaning.stored_runs()

    def chosen(**policy):
        return {each.record.id for each in cleaning.choose(runs, Policy(**policy), time.time())}

    assert chosen(keep=30 * DAY) == {old} and chosen(keep=15 * DAY) == {old, middle}
    assert chosen(keep_last=1) == {old, middle} and chosen(keep_last=2) == {old}
    assert chosen(keep=15 * DAY, keep_last=2) == {old}, "each rule keeps"
    assert chosen(keep=50 * DAY, keep_last=1) == set()
    assert cleaned(keep_last=2) == {old} and left() == {middle, new}


def test_the_oldest_go_until_the_store_fits():
    oldest, old, new = (run(days, size=1_000_000).path.name for days in (3, 2, 1))
    assert cleaned(max_bytes=10_000_000) == set()
    assert cleaned(max_bytes=sum(run.bytes for run in cleaning.stored_runs())) == set()
    assert cleaned(max_bytes=2_500_000) == {oldest} and left() == {old, new}


def test_no_run_is_removed_that_lives_or_may_live_or_has_a_label_or_has_just_ended():
    living = run(99, state=ev.RUNNING)
    attachable = run(2, state=ev.LOST, place=ADDRESS)
    kill_owner(attachable)
    followed = run(99, state=ev.LOST)  # its kernel lives, and its Spark with it
    labelled, recent = run(99, labels=["baseline"]), run(0)
    kept = {each.path.name for each in (living, attachable, followed, labelled, recent)}
    lost = [run(99, state=ev.RUNNING), run(99, state=ev.LOST, place=ADDRESS)]
    for each in lost:
        kill_owner(each)
        claim(each, heartbeat=time.time() - 99 * DAY, **dead_process())
    assert cleaned(keep=0.0, keep_last=1, max_bytes=0) == {each.path.name for each in lost}
    assert left() == kept


def test_a_run_stays_as_long_as_one_that_stays_continues_from_it():
    first = run(50)
    second = run(40, resume=first.path.name)
    third = run(5, resume=second.path.name)
    other = run(60)
    assert cleaned(keep=30 * DAY, max_bytes=0) == {each.path.name for each in (other, first, second, third)}, (
        "beyond a size the chain goes from its newest"
    )
    first = run(50)
    second = run(40, resume=first.path.name)
    run(0.001, resume=second.path.name)
    assert cleaned(keep=30 * DAY, max_bytes=0) == set() and len(left()) == 3


def test_whatever_the_store_no_run_is_left_that_continues_from_a_removed_one():
    draw = random.Random(0)
    record = run(1).record()
    for number in range(300):
        runs = []  # newest first
        for days in range(100, 40, -5):
            resume = draw.choice(runs).record.id if runs and draw.random() < 0.5 else None
            labels, at = ("x",) if draw.random() < 0.1 else (), time.time() - days * DAY
            fields = {"created": at, "ended": at, "labels": labels, "spec": {**record.spec, "resume": resume}}
            runs.insert(0, StoredRun(replace(record, id=f"run-{days}", **fields), draw.randrange(10_000)))
        policy = Policy(draw.choice([None, 50 * DAY]), draw.choice([None, 4]), draw.choice([None, 30_000]))
        gone = {each.record.id for each in cleaning.choose(runs, policy, time.time())}
        kept = [each for each in runs if each.record.id not in gone]
        assert not any(each.reference in gone for each in kept), number
        assert not any(each.record.labels for each in runs if each.record.id in gone)


def test_what_cannot_be_read_and_what_was_taken_up_meanwhile_stays():
    newer = run(99)
    content = json.loads((newer.path / "run.json").read_text())
    (newer.path / "run.json").write_text(json.dumps({**content, "format": 99}))
    taken = run(99)
    chosen = cleaning.choose(cleaning.stored_runs(), Policy(keep=0.0), time.time())
    taken.take_over()
    assert [each.record.id for each in chosen] == [taken.path.name] and cleaning.remove(chosen) == []
    assert newer.path.exists() and taken.path.exists()


def test_what_an_interrupted_removal_has_left_goes_too():
    """Not what changes meanwhile, such as an import."""
    left, growing = run(99), run(99)
    hidden = [each.path.rename(each.path.with_name(f".{each.path.name}.0a1b2c")) for each in (left, growing)]
    for folder in hidden:
        for path in (folder, *folder.rglob("*")):
            os.utime(path, (0, time.time() - 2 * cleaning.LEFT_SECONDS))
    (hidden[1] / "files" / "model-0.keras").touch()
    (left.path.parent / ".clock.12345678").touch()
    cleaned(keep=DAY)
    assert [folder.exists() for folder in hidden] == [False, True]
    assert (left.path.parent / ".clock.12345678").exists()
