"""`%ddl compare` and `reproduce`: compare two runs, and run a stored run again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters import preflight
from ddl_magics.clusters.base import Ready
from ddl_magics.commands.kernel import Kernel
from ddl_magics.history import comparison, differences, keeper, provenance
from ddl_magics.history.differences import Difference
from ddl_magics.options.line import cell_of, masked_settings
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run
from ddl_magics.runtime.provenance import frames, values
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.session import origin
from ddl_magics.session.session import Session
from ddl_magics.session.waiting import wait_in_cell
from ddl_magics.wording import counted

#: Strategies of which no two runs compute the same numbers.
ASYNCHRONOUS = ("ps", "tf-ps")


def compare(kernel: Kernel, before: str, after: str) -> str:
    """Compare what two runs ran with, and their histories."""
    return compared(kernel.session.find(before), kernel.session.find(after))


def compared(before: Run, after: Run) -> str:
    """Describe what differs between two runs, and whether their histories are equal."""
    provenance_before, provenance_after = before.provenance, after.provenance
    listed = [*_options(before.spec, after.spec), *differences.environment(provenance_before, provenance_after)]
    if provenance_after.sent:
        listed += differences.variables(provenance_before.sent, provenance_after.sent)
    if after.spec.data:
        listed += differences.data(after.spec.data, provenance_before.data, provenance_after.data)
    asynchronous = before.spec.strategy in ASYNCHRONOUS
    verdict = comparison.compare(before.histories, after.histories, not asynchronous)
    head = f"{after.name}, compared with {before.name}: the histories are {verdict.verdict}"
    lines = [head, *(f"  {line}" for line in verdict.lines)]
    if asynchronous:
        lines.append(f"  --strategy {before.spec.strategy} is asynchronous: no two runs of it are equal")
    return "\n".join([*lines, *(["They ran with:", *differences.lines(listed)] if listed else [])])


def _options(before: RunSpec, after: RunSpec) -> list[Difference]:
    """The options that differ, and the cell."""
    names = [field.name for field in dataclasses.fields(RunSpec) if field.name not in _NOT_COMPARED]
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
    changed = [
        Difference("options", f"--{name.replace('_', '-')} {value_after}, was {value_before}")
        for name, value_before, value_after in pairs
        if value_before != value_after
    ]
    return [*changed, *([Difference("code", "the cell is another")] if before.cell != after.cell else [])]


_NOT_COMPARED = frozenset(
    ("run", "name", "cell", "folder", "parent", "trial", "wait", "dry_run", "send", "checkpoints", "resume_uri", "conf")
)


class Reproduction:
    """A stored run, and what it takes to run it again here."""

    def __init__(self, session: Session, name: str) -> None:
        if session.find_search(name) is not None:
            raise UsageError(f"{as_word(name)} is a search: name one of its trials, such as {as_word(name)}_0.")
        self.run = session.find(name)
        self._session = session
        self._provenance = self.run.provenance
        spec = self.run.spec
        self.masked = masked_settings(spec)
        conf = {key: value for key, value in spec.conf.items() if key not in self.masked}
        # Its seed followed from the session's random numbers, as that of the new run will.
        continued = spec.continues_streams and preflight.has_random_numbers(self._provenance.driver.get("session", ""))
        seed = None if continued else spec.seed
        self.spec = dataclasses.replace(
            spec, conf=conf, seed=seed, name=f"{spec.name}_again", parent=None, trial=None, run=""
        )

    @property
    def cell(self) -> str:
        """The cell with its options, under the name of the new run."""
        return cell_of(self.spec, self.spec.name)

    def differences(self, namespace: Mapping[str, Any]) -> list[Difference]:
        """What has changed since the run, as far as it can be compared before running again."""
        stored, spec = self._provenance, self.spec
        record = keeper.kernel_and_git(origin.folder())
        current = provenance.checked(record)
        lines = list(differences.environment(stored, current))
        if self._compares_variables:
            fingerprints = values.fingerprints({name: namespace[name] for name in stored.sent if name in namespace})
            lines += differences.variables(stored.sent, fingerprints)
            if "session" in stored.driver:
                settings = preflight.session_settings(streams=spec.seed is None)
                lines += differences.session(stored.driver["session"], settings)
            if spec.data and self._compares_data:
                frame = namespace.get(spec.data)
                lines += differences.data(spec.data, stored.data, None if frame is None else frames.fingerprint(frame))
        status = self._session.cluster.status()
        if isinstance(status, Ready) and status.slots < spec.workers:
            lines.append(
                Difference("workers", f"{counted(status.slots, 'slot')}, and the run had {spec.workers} workers")
            )
        lines += [Difference("Spark", f"{key} was a secret, which is not stored: set it") for key in self.masked]
        return lines

    def report(self, changed: Sequence[Difference]) -> str:
        """What differs, as text."""
        name = self.run.name
        if self._provenance.problem or not self._provenance:
            reason = self._provenance.problem or "it was stored without (--no-provenance, or an older version)"
            head = f"what {name} ran with is not known: {reason}"
            return "\n".join([head, *differences.lines(changed)])
        compared = [counted(len(self._provenance.kernel.get("packages", ())), "package") + " of the notebook"]
        not_compared: list[str] = []
        compared += ["code"] if self._provenance.git else []
        if self._provenance.sent:
            (compared if self._compares_variables else not_compared).append(
                counted(len(self._provenance.sent), "variable")
            )
        if self._provenance.data:
            (compared if self._compares_data else not_compared).append("data")
        head = f"{name}: differs today, of" if changed else f"{name} would run as it did: nothing differs in"
        lines = [f"{head} {', '.join(compared)}{':' if changed else '.'}", *differences.lines(changed)]
        return "\n".join(lines + [f"Not compared before the run: {', '.join(not_compared)}." for _ in not_compared[:1]])

    @property
    def _compares_variables(self) -> bool:
        """Whether the run takes its variables from this kernel."""
        return self._session.cluster.in_kernel

    @property
    def _compares_data(self) -> bool:
        """Whether --data names one of these variables."""
        return self._compares_variables and bool(self.spec.data and self.spec.data.isidentifier())


def reproduce(kernel: Kernel, run: str, rerun: bool) -> str:
    """Print what differs, and insert the cell; or run it and compare, if `rerun`."""
    reproduction = Reproduction(kernel.session, run)
    print(reproduction.report(reproduction.differences(kernel.namespace)))
    before, name = reproduction.run, reproduction.spec.name
    if not rerun:
        kernel.display.insert_cell(reproduction.cell)
        return f"The next cell runs it again as {name}; then: %ddl compare {before.name} {name}"
    after = kernel.session.submit(reproduction.spec, kernel.namespace)
    kernel.namespace[after.name] = after
    wait_in_cell(after, text=True)
    return compared(before, after)
