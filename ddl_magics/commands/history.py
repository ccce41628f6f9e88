"""The verbs of `%ddl` for coming back to runs: tag, note, compare, reproduce, export, import."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Ready
from ddl_magics.history import comparison, differences, keeper, provenance
from ddl_magics.history.differences import Difference
from ddl_magics.history.provenance import Provenance
from ddl_magics.options.line import cell_of, masked_settings
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run
from ddl_magics.runtime.provenance import frames, values
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search import exporting
from ddl_magics.session.session import Session
from ddl_magics.session.waiting import wait_in_cell
from ddl_magics.store.labels import InvalidLabels
from ddl_magics.wording import counted

#: Of these strategies no two runs have the same numbers.
ASYNCHRONOUS = ("ps", "tf-ps")

RUN_IT, REMOVE = "--run", "--remove"


def tag(session: Session, arguments: Sequence[str]) -> str:
    """`%ddl tag RUN TAG ... [--remove]`; without a tag, those of the run."""
    words = [word for word in arguments if word != REMOVE]
    if not words or any(word.startswith("--") for word in words):
        raise UsageError(f"write: %ddl tag RUN TAG ... [{REMOVE}]")
    run, given = session.find(words[0]), words[1:]
    try:
        if REMOVE in arguments:
            unknown = [word for word in given if word not in run.tags]
            if unknown or not given:
                raise UsageError(f"{run.name} has no tag {as_word(unknown[0]) if unknown else ''}; {_tags(run)}")
            run.tags = [word for word in run.tags if word not in given]
        elif given:
            run.tags = [*run.tags, *given]
    except (InvalidLabels, OSError) as error:
        raise UsageError(f"{run.name} keeps its tags: {error}.") from None
    return _tags(run)


def _tags(run: Run) -> str:
    return f"{run.name}: {', '.join(run.tags) or 'no tags'}"


def note(session: Session, arguments: Sequence[str]) -> str:
    """`%ddl note RUN "TEXT"`; without a text, that of the run; an empty one removes it."""
    if not arguments:
        raise UsageError('write: %ddl note RUN "TEXT"')
    run = session.find(arguments[0])
    if len(arguments) > 1:
        try:
            run.note = " ".join(arguments[1:])
        except (InvalidLabels, OSError) as error:
            raise UsageError(f"{run.name} keeps its note: {error}.") from None
    return f"{run.name}: {run.note or 'no note'}"


def compare(session: Session, arguments: Sequence[str]) -> str:
    """`%ddl compare RUN RUN`: what they ran with, and their histories."""
    if len(arguments) != 2:
        raise UsageError("write: %ddl compare RUN RUN")
    return compared(*(session.find(word) for word in arguments))


def compared(before: Run, now: Run) -> str:
    """What the second of two runs ran with otherwise, and whether its histories are those of the first."""
    old, new = before.provenance, now.provenance
    found = [*_options(before.spec, now.spec), *differences.environment(old, new)]
    if new.sent:
        found += differences.variables(old.sent, new.sent)
    if now.spec.data:
        found += differences.data(now.spec.data, old.data, new.data)
    asynchronous = before.spec.strategy in ASYNCHRONOUS
    verdict = comparison.compare(before.histories, now.histories, not asynchronous)
    head = f"{now.name}, compared with {before.name}: the histories are {verdict.verdict}"
    lines = [head, *(f"  {line}" for line in verdict.lines)]
    if asynchronous:
        lines.append(f"  --strategy {before.spec.strategy} is asynchronous: no two runs of it are equal")
    return "\n".join([*lines, *(["They ran with:", *differences.lines(found)] if found else [])])


def _options(before: RunSpec, now: RunSpec) -> list[Difference]:
    """The options that differ, and the cell."""
    names = [field.name for field in dataclasses.fields(RunSpec) if field.name not in _NOT_COMPARED]
    pairs = [(name, getattr(before, name), getattr(now, name)) for name in names]
    found = [
        Difference("options", f"--{name.replace('_', '-')} {new}, was {old}") for name, old, new in pairs if old != new
    ]
    return [*found, *([Difference("code", "the cell is another")] if before.cell != now.cell else [])]


_NOT_COMPARED = frozenset(
    ("run", "name", "cell", "folder", "parent", "trial", "wait", "dry_run", "send", "checkpoints", "resume_uri", "conf")
)


class Reproduction:
    """A stored run, and what it takes to run it again here."""

    def __init__(self, session: Session, word: str) -> None:
        if session.find_search(word) is not None:
            raise UsageError(f"{as_word(word)} is a search: name one of its trials, such as {as_word(word)}_0.")
        self.run = session.find(word)
        self._session = session
        self._kept = self.run.provenance
        spec = self.run.spec
        hidden = masked_settings(spec)
        self.masked = hidden
        conf = {key: value for key, value in spec.conf.items() if key not in hidden}
        self.spec = dataclasses.replace(spec, conf=conf, name=f"{spec.name}_again", parent=None, trial=None, run="")

    @property
    def cell(self) -> str:
        """The cell with its options, for another run of another name."""
        return cell_of(self.spec, self.spec.name)

    def differences(self, namespace: Mapping[str, Any]) -> list[Difference]:
        """What is another today than it was, as far as that is known before the run."""
        kept, spec = self._kept, self.spec
        found = keeper.now(_here())
        now = Provenance(**{part: check(found.get(part)) for part, check in provenance.PARTS.items()})
        lines = list(differences.environment(kept, now))
        if self._compares_variables:
            today = values.fingerprints({name: namespace[name] for name in kept.sent if name in namespace})
            lines += differences.variables(kept.sent, today)
            if spec.data and self._compares_data:
                frame = namespace.get(spec.data)
                lines += differences.data(spec.data, kept.data, None if frame is None else frames.fingerprint(frame))
        status = self._session.cluster.status()
        if isinstance(status, Ready) and status.slots < spec.workers:
            lines.append(
                Difference("workers", f"{counted(status.slots, 'slot')}, and the run had {spec.workers} workers")
            )
        lines += [Difference("Spark", f"{key} was a secret, which is not stored: set it") for key in self.masked]
        return lines

    def report(self, found: Sequence[Difference]) -> str:
        """What differs, as text."""
        name = self.run.name
        if self._kept.problem or not self._kept:
            why = self._kept.problem or "it was stored without (--no-provenance, or an older version)"
            head = f"what {name} ran with is not known: {why}"
            return "\n".join([head, *differences.lines(found)])
        known = [counted(len(self._kept.kernel.get("packages", ())), "package") + " of the notebook"]
        unknown: list[str] = []
        known += ["code"] if self._kept.git else []
        if self._kept.sent:
            (known if self._compares_variables else unknown).append(counted(len(self._kept.sent), "variable"))
        if self._kept.data:
            (known if self._compares_data else unknown).append("data")
        head = f"{name}: differs today, of" if found else f"{name} would run as it did: nothing differs in"
        lines = [f"{head} {', '.join(known)}{':' if found else '.'}", *differences.lines(found)]
        return "\n".join(lines + [f"Not compared before the run: {', '.join(unknown)}." for _ in unknown[:1]])

    @property
    def _compares_variables(self) -> bool:
        """Whether the variables that the run gets are this kernel's."""
        return self._session.cluster.in_kernel

    @property
    def _compares_data(self) -> bool:
        """Whether --data names one of these variables."""
        return self._compares_variables and bool(self.spec.data and self.spec.data.isidentifier())


def _here() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:
        return None


def reproduce(session: Session, shell: Any, arguments: Sequence[str]) -> None:
    """`%ddl reproduce RUN [--run]`: says what differs, and inserts the cell or, with --run, runs it and compares."""
    words = [word for word in arguments if word != RUN_IT]
    if len(words) != 1:
        raise UsageError(f"write: %ddl reproduce RUN [{RUN_IT}]")
    again = Reproduction(session, words[0])
    print(again.report(again.differences(shell.user_ns)))
    before, name = again.run, again.spec.name
    if RUN_IT not in arguments:
        shell.set_next_input(again.cell, replace=False)
        print(f"The next cell runs it again as {name}; then: %ddl compare {before.name} {name}")
        return
    run = session.submit(again.spec, shell.user_ns)
    shell.user_ns[run.name] = run
    wait_in_cell(run, text=True)
    print(compared(before, run))


def export(session: Session, arguments: Sequence[str]) -> str:
    """`%ddl export RUN FILE`: a run, or a search with its trials."""
    if len(arguments) != 2:
        raise UsageError("write: %ddl export RUN FILE.zip")
    word = arguments[0]
    return exporting.export(Path(arguments[1]), word if session.find_search(word) else session.find(word).id)


def import_(arguments: Sequence[str]) -> str:
    """`%ddl import FILE`."""
    if len(arguments) != 1:
        raise UsageError("write: %ddl import FILE.zip")
    return exporting.import_(Path(arguments[0]))
