"""A search: its kernel is killed, the machine loses power, its journal is damaged, its disk is full."""

import dataclasses
import json
import time

from chaos.room import Room, check

TRIALS, STEPS = 4, 2
CELL = """
lr = ddl.suggest_float("lr", 1e-4, 1e-1, log=True)
units = ddl.suggest_int("units", 16, 256)
"""
RUN = "20261121-000001-aaaaaa"


def value_of(values, step=STEPS):
    """The objective of a trial with these values, as a run of it would find it."""
    return float(values["units"]) * step + float(values["lr"])


def _open(journal):
    from pathlib import Path

    from ddl_magics.options.parsing import parse
    from ddl_magics.search.plan import make_plan
    from ddl_magics.search.study import Study

    line = f"--name tuned --seed 1 --objective score:max --trials {TRIALS} --prune no"
    spec = dataclasses.replace(parse(line), cell=CELL, run=RUN)
    return Study(Path(journal), make_plan(spec))


def train(journal, most=TRIALS):
    """Train what is missing of a search, trial after trial, and print the number and the value of each that is told."""
    study = _open(journal)
    unfinished = [trial.number for trial in study.trials if not trial.state.is_finished()]
    while len(study.trials) < most or unfinished:
        if unfinished:
            number = unfinished.pop(0)
            values = study.trials[number].params
        else:
            asked = study.ask()
            number, values = asked.number, study.trials[asked.number].params
        for step in range(1, STEPS + 1):
            study.report(number, step, value_of(values, step))
        study.complete(number, [value_of(values)])
        print(json.dumps([number, value_of(values)]), flush=True)


def look(journal):
    """Print the trials: number, state, value, what it should be."""
    from ddl_magics.errors import SearchFailed

    try:
        for trial in _open(journal).trials:
            right = value_of(trial.params) if trial.params else None
            print(json.dumps([trial.number, trial.state.name, trial.value, right]))
    except SearchFailed as error:
        print(json.dumps(f"refused: {error}"))


def _check_whole(act, journal, told):
    """That a search has what it has told, and can be trained to its end."""
    found = [json.loads(line) for line in act.done(look, str(journal))]
    known = {number: value for number, _, value, _ in found}
    for number, value in told:
        check(known.get(number) == value, f"trial {number} was told with {value}, and has {known.get(number)}")
    act.done(train, str(journal))
    found = [json.loads(line) for line in act.done(look, str(journal))]
    check([row[0] for row in found] == list(range(TRIALS)), f"the trials are {[row[0] for row in found]}")
    for number, state, value, right in found:
        check(state == "COMPLETE" and value == right, f"trial {number} is {state} with {value} instead of {right}")


def broken(cut):
    def begin(act):
        journal = act.work / "study.journal"
        changes = act.changes(train, str(act.work / "other.journal"))
        lines = act.broken_off(train, str(journal), changes=changes, cut=cut)
        _check_whole(act, journal, [json.loads(line) for line in lines])
        return ""

    return begin


def killed(act):
    """At any moment, not only before a change."""
    journal = act.work / "study.journal"
    process = act.start(train, str(journal))
    first = process.stdout.readline()
    time.sleep(act.random.random() * 0.3)
    process.kill()
    _check_whole(act, journal, [json.loads(line) for line in [first, *process.stdout] if line.endswith("\n")])
    return ""


def _cut_end(journal, random):
    journal.write_bytes(journal.read_bytes()[: -random.randint(1, 60)])


def _zeros(journal, random):
    journal.write_bytes(journal.read_bytes() + bytes(random.randint(1, 4096)))


def _damaged_line(journal, random):
    lines = journal.read_bytes().splitlines(keepends=True)
    place = random.randrange(len(lines))
    line = bytearray(lines[place])
    line[random.randrange(len(line))] = random.randrange(256)
    lines[place] = bytes(line)
    journal.write_bytes(b"".join(lines))


def _lost_line(journal, random):
    lines = journal.read_bytes().splitlines(keepends=True)
    del lines[random.randrange(len(lines))]
    journal.write_bytes(b"".join(lines))


def _foreign(journal, random):
    lines = journal.read_bytes().splitlines(keepends=True)
    lines.insert(
        random.randrange(len(lines) + 1), random.choice((b"7\n", b"[]\n", b"null\n", b"{half\n", b"\xff\xfe\n"))
    )
    journal.write_bytes(b"".join(lines))


DAMAGES = {each.__name__.strip("_"): each for each in (_cut_end, _zeros, _damaged_line, _lost_line, _foreign)}


def damaged(act):
    """It is read, or refused in one line; nothing is a traceback, and no trial has the value of another."""
    journal = act.work / "study.journal"
    act.done(train, str(journal), act.random.randint(1, TRIALS))
    DAMAGES[act.kind](journal, act.random)
    act.about = act.kind
    lines, status, error = act.ended(look, str(journal))
    check(status == 0, f"it is not refused in one line: {error}")
    rows = [json.loads(line) for line in lines]
    if rows and isinstance(rows[0], str):
        check("the search cannot be" in rows[0], f"it says {rows[0]}")
        return rows[0]
    return ""


def full(act):
    disk = act.disk("small", act.random.randint(2, 12) * 4096)
    journal = disk / "study.journal"
    lines, status, error = act.ended(train, str(journal))
    told = [json.loads(line) for line in lines]
    if status == 0:
        return ""
    check("No space left on device" in error, f"it says {error}")
    larger = act.work / "study.journal"  # the disk has room again
    if journal.exists():
        larger.write_bytes(journal.read_bytes())
    _check_whole(act, larger, told)
    return error


ROOMS = {
    "search: SIGKILL at a change": Room(broken(cut=False)),
    "search: SIGKILL": Room(killed),
    "search: power cut": Room(broken(cut=True)),
    "search: journal damaged": Room(damaged, tuple(DAMAGES)),
    "search: disk full": Room(full),
}
