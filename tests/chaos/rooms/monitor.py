"""A monitor of a model in use: clocks step, records are poisoned, counts are damaged, another one wants its place."""

import atexit
import functools
import json
import time
import uuid

import numpy as np
from support import spark as spark_tests
from support.launch import Running, load_driver
from support.monitoring_logs import lines, requests, trained, write_whole

from chaos.room import Room, check
from ddl_magics.runtime.events import TERMINAL

#: Of a monitor that is to catch up, on a busy machine.
SECONDS = 240.0
HOUR = 3600.0
POISON = (
    "not json",
    "{",
    "[]",
    "null",
    '{"time": 3}',
    '{"time": NaN, "id": "a"}',
    '{"time": 1e400, "id": "b"}',
    '{"time": -1e400, "id": "c"}',
    '{"time": "x", "id": 5}',
    '{"time": 4e9, "id": "d", "latency": 1}',
    '{"time": 1e18, "id": "e", "inputs": 7}',
    '{"id": "f", "latency": "late"}',
    "\x00\x00\x00",
)


@functools.cache
def _spark():
    """A Spark of this process, for all of its faults."""
    session = spark_tests.session(1)
    atexit.register(session.stop)
    return session


@functools.cache
def _reference():
    return trained(np.random.default_rng(1))


def _begin(log, checkpoint, once=True):
    """(the monitor, "") or (None, why it is refused)."""
    asked = {"reference": _reference(), "log": str(log), "window": 60.0, "delay": "600 seconds", "every": 0.2}
    asked |= {"label_delay": "86400 seconds", "checkpoint": str(checkpoint), "model": "energy", "once": once}
    run = "monitor-" + uuid.uuid4().hex[:8]
    monitor = {**asked, "cell": "%%distributed\nmodel.fit(dataset)"}
    spec = {"run": run, "name": "watch", "cell": "", "strategy": "monitor", "workers": 0, "monitor": monitor}
    reply = json.loads(load_driver().launch(json.dumps(spec), {"spark": _spark()}))
    return (Running(run), "") if reply["ok"] else (None, reply["error"]["message"])


def _caught_up(log, checkpoint):
    """A monitor that has counted all that is in the log, or failed."""
    monitor, refused = _begin(log, checkpoint)
    check(monitor, f"refused: {refused}")
    return _ended(monitor)


def _ended(monitor):
    deadline = time.monotonic() + SECONDS
    while monitor.poll()["more"] or monitor.state not in TERMINAL:
        if time.monotonic() > deadline:
            monitor.stop()
            check(False, f"not ended within {SECONDS:g} s: {monitor.state}")
        time.sleep(0.1)
    return monitor


def _totals(monitor):
    check(monitor.state == "FINISHED", f"{monitor.state}: {monitor.events[-1].get('message')}")
    return monitor.of_kind("watch")[-1]["totals"]


def _said(monitor):
    return [event["message"] for event in monitor.of_kind("notice")]


def _folder(act):
    (act.work / "log").mkdir()
    return act.work / "log", act.work / "checkpoint"


def _records(act, count, first=0):
    """Of a server whose clock is right: the last one is of this moment."""
    made = requests(count, np.random.default_rng(act.random.randrange(1 << 30)), first=first)
    return [{**record, "time": time.time() - 0.5 * (count - number)} for number, record in enumerate(made)]


def _check_accounted(totals, written):
    counted = sum(totals[name] for name in ("requests", "double", "late", "unreadable"))
    check(counted == written, f"of {written} records {counted} are accounted for: {totals}")


def clock(act):
    """The server's clock steps by an hour: each record is counted, or told as late or unreadable."""
    log, checkpoint = _folder(act)
    records = _records(act, 120)
    step, begin = act.random.choice((-HOUR, HOUR)), act.random.randrange(20, 100)
    end = act.random.choice((len(records), act.random.randrange(begin, 120)))
    for record in records[begin:end]:
        record["time"] += step
    act.about = f"{step:+g} s from record {begin} to {end}"
    parts = act.random.choice((1, 2, 3))
    for part in range(parts):
        write_whole(log / f"{part}.jsonl", lines(records[120 // parts * part : 120 // parts * (part + 1)]))
        monitor = _caught_up(log, checkpoint)
    totals = _totals(monitor)
    _check_accounted(totals, 120)
    right = sum(not begin <= number < end for number in range(120))
    check(
        totals["requests"] >= right if step > 0 else True, f"{totals['requests']} of {right} right records are counted"
    )
    later = _records(act, 20, first=500)
    write_whole(log / "later.jsonl", lines(later))
    totals = _totals(_caught_up(log, checkpoint))
    check(totals["late"] < 120 and totals["requests"] >= 20, f"it is blind after the step: {totals}")
    missing = totals["late"] + totals["unreadable"]
    return f"{missing} late or unreadable" if missing else ""


def poisoned(act):
    log, checkpoint = _folder(act)
    records = _records(act, 60)
    poison = [act.random.choice(POISON) for _ in range(act.random.randint(1, 20))]
    for part, (first, some) in enumerate(((0, poison[::2]), (30, poison[1::2]))):
        good = lines(records[first : first + 30]).splitlines()
        mixed = good + some
        act.random.shuffle(mixed)
        write_whole(log / f"{part}.jsonl", "".join(line + "\n" for line in mixed))
        totals = _totals(_caught_up(log, checkpoint))
    check(totals["requests"] == 60, f"{totals['requests']} of 60 whole records are counted: {totals}")
    _check_accounted(totals, 60 + len(poison))
    return f"{totals['unreadable']} unreadable"


def _emptied(path, draw):
    path.write_bytes(b"")


def _cut(path, draw):
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def _zeroed(path, draw):
    path.write_bytes(bytes(path.stat().st_size))


def _changed(path, draw):
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(bytes(content))


DAMAGES = {each.__name__.strip("_"): each for each in (_emptied, _cut, _zeroed, _changed)}


def damaged(act):
    """The counts before hold, and a notice says so; or the monitor names another checkpoint."""
    log, checkpoint = _folder(act)
    for part in range(2):
        write_whole(log / f"{part}.jsonl", lines(_records(act, 30, first=100 * part)))
        totals = _totals(_caught_up(log, checkpoint))
    stored = sorted(checkpoint.glob("counts-*.json"), key=lambda path: int(path.stem[7:]))
    several = act.random.choice((1, len(stored)))
    for path in stored[-several:]:
        DAMAGES[act.kind](path, act.random)
    act.about = f"{act.kind}, {several} of {len(stored)}"
    write_whole(log / "2.jsonl", lines(_records(act, 30, first=200)))
    monitor = _caught_up(log, checkpoint)
    if several == len(stored):
        message = monitor.events[-1].get("message", "")
        check(monitor.state == "FAILED" and "start with another --checkpoint" in message, f"{monitor.state}: {message}")
        return message
    after = _totals(monitor)
    told = [text for text in _said(monitor) if f"{stored[-1].name} is damaged" in text]
    check(told, f"the damage is not told: {_said(monitor)}")
    check(30 <= after["requests"] <= totals["requests"] + 30, f"after {totals} it counts {after}")
    return told[0]


def two(act):
    """The second one is refused, and the first one counts all."""
    log, checkpoint = _folder(act)
    write_whole(log / "0.jsonl", lines(_records(act, 30)))
    first, refused = _begin(log, checkpoint, once=False)
    check(first, f"refused: {refused}")
    time.sleep(act.random.random() * 3)
    second, refused = _begin(log, checkpoint, once=act.random.random() < 0.5)
    if second is not None:
        second.stop()
    check(
        second is None and "another monitor has the checkpoint" in refused, f"the second one is not refused: {refused}"
    )
    write_whole(log / "1.jsonl", lines(_records(act, 30, first=100)))
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        first.poll()
        seen = first.of_kind("watch")
        if seen and seen[-1]["totals"]["requests"] == 60:
            break
        time.sleep(0.2)
    first.stop()
    _ended(first)
    check(first.of_kind("watch")[-1]["totals"]["requests"] == 60, f"it has {first.of_kind('watch')[-1]['totals']}")
    return refused


ROOMS = {
    "monitor: clock steps an hour": Room(clock, seconds=600.0),
    "monitor: poisoned records": Room(poisoned, seconds=600.0),
    "monitor: counts damaged": Room(damaged, tuple(DAMAGES), seconds=900.0),
    "monitor: two on one checkpoint": Room(two, seconds=600.0),
}
