"""The language in which runs are searched: `state:failed val_accuracy>0.9 tag:paper lr<0.01`.

All terms must match. A word is searched in name, title, tags, note, state, notebook, cluster and id. FIELD:TEXT
searches one field, NAME<NUMBER and the like compare a metric, a parameter or an option, and a term after "-" must not
match. Quotes join words to one term. The panel, `%ddl runs` and the command line share this parser.
"""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddl_magics.dashboard.state_words import state_word
from ddl_magics.history import provenance
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunRecord, SearchRecord
from ddl_magics.wording import MAX_QUOTED, nearest, quoted

MAX_CHARACTERS = 1000

#: A term: an optional "-", then text up to a blank outside of quotes.
_TERM = re.compile(r"""(?:"[^"]*"?|[^\s"])+""")
_FIELD = re.compile(r"(?P<field>[A-Za-z_]+):(?P<text>.*)", re.DOTALL)
_COMPARED = re.compile(r"(?P<name>[^\s<>=!:\"]+)(?P<sign><=|>=|==|!=|=|<|>)(?P<value>.*)", re.DOTALL)
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}

Matches = Callable[[RunRecord], bool]


class QueryError(ValueError):
    """A query that cannot be understood: one line that says what to write."""


@dataclass(frozen=True)
class Query:
    """Terms that a run must match, all of them. compared: the names whose values they compare."""

    terms: tuple[Matches, ...] = ()
    compared: tuple[str, ...] = ()

    def matches(self, record: RunRecord) -> bool:
        return all(term(record) for term in self.terms)


def parse(text: str) -> Query:
    """The query of a text.

    Raises:
        QueryError: it has an unknown field, or a comparison without a number.
    """
    return parse_words(split(text))


def split(text: str) -> list[str]:
    """The terms of a query's text; a text that is too long is one term."""
    return [match.group() for match in _TERM.finditer(text)] if len(text) <= MAX_CHARACTERS else [text]


def parse_words(words: Sequence[str]) -> Query:
    """The query of terms that a shell has split. Raises QueryError as `parse` does."""
    if sum(map(len, words)) > MAX_CHARACTERS:
        raise QueryError(f"a query has at most {MAX_CHARACTERS} characters")
    matches = tuple(_term(term) for term in words)
    return Query(matches, tuple(name for name in map(_compared_name, words) if name))


def unknown_name(query: Query, records: Sequence[RunRecord]) -> str | None:
    """What is wrong with the first compared name that none of these runs has a value of, in a sentence; or None."""
    names = {"epochs", "seconds", "created", "ended"}.union(*map(_valued, records))
    name = next((name for name in query.compared if name not in names), None)
    return name and f"no run has a metric or an option {name}.{nearest(name, names)}"


def _valued(record: RunRecord) -> set[str]:
    return {*(record.progress.get("metrics") or ()), *record.spec, *(record.spec.get("set") or ())}


def of_search(record: SearchRecord) -> RunRecord:
    """A search as a run, whose metric is the best value so far."""
    best = record.progress.get("best")
    return RunRecord(
        id=record.id,
        name=record.name,
        created=record.created,
        spec=record.spec,
        cluster=record.cluster,
        notebook=record.notebook,
        state=record.state,
        failure={"message": record.message} if record.message else None,
        ended=record.ended,
        progress={} if best is None else {"metrics": {record.metric: best}},
        folder=record.folder,
    )


def _term(text: str) -> Matches:
    plain = text.lstrip("-") or text[-1:]
    if (len(text) - len(plain)) % 2:
        inner = _term(plain)
        return lambda record: not inner(record)
    text = plain
    if (field := _FIELD.fullmatch(text)) is not None:
        return _in_field(field["field"].lower(), field["text"].replace('"', ""))
    if not text.startswith('"') and (compared := _COMPARED.fullmatch(text)) is not None:
        return _comparison(compared["name"], compared["sign"], compared["value"].replace('"', ""))
    substring = text.replace('"', "").lower()
    return lambda record: substring in text_of(record)


def _compared_name(text: str) -> str | None:
    plain = text.lstrip("-")
    compared = None if plain.startswith('"') or _FIELD.fullmatch(plain) else _COMPARED.fullmatch(plain)
    return compared and compared["name"]


def text_of(record: RunRecord) -> str:
    """The text in which words are searched."""
    texts = (record.id, record.name, record.title, *record.labels, record.note)
    return " ".join((*texts, *_states(record), record.notebook, record.cluster)).lower()


def _states(record: RunRecord) -> tuple[str, ...]:
    """Its state, and the word that lists have for it."""
    return record.state, state_word(record.state)


def _in_field(field: str, text: str) -> Matches:
    if field not in FIELDS:
        fields = ", ".join(sorted(FIELDS))
        raise QueryError(f"runs have no field {quoted(field)}: write one of {fields}.{nearest(field, FIELDS)}")
    if not text:
        raise QueryError(f"{field}: needs a text, such as {field}:{_EXAMPLES.get(field, 'digits')}")
    lowered, values = text.lower(), FIELDS[field]
    if field == "state" and lowered not in (*_STATES, *map(str.lower, ev.STATES)):
        raise QueryError(
            f"no run has the state {quoted(text)}: write one of {', '.join(_STATES)}.{nearest(text, _STATES)}"
        )
    if field in _EXACT_FIELDS:
        return lambda record: any(lowered == value.lower() for value in values(record))
    if field == "package":
        return lambda record: _has_package(values(record), lowered)
    if field == "commit":
        return lambda record: any(value.lower().startswith(lowered) for value in values(record))
    return lambda record: any(lowered in value.lower() for value in values(record))


def _has_package(packages: Iterator[str], requirement: str) -> bool:
    """requirement: "keras", "keras==3.15.1", or "keras==3" for all versions that begin with 3."""
    name, _, version = (text.strip() for text in requirement.replace("_", "-").partition("=="))
    for package in packages:
        installed_name, _, installed_version = package.partition("==")
        if installed_name == name and (not version or (installed_version + ".").startswith(version.rstrip(".") + ".")):
            return True
    return False


def _packages(record: RunRecord) -> Iterator[str]:
    for name, version in provenance.read(record.folder).packages.items():
        yield f"{name}=={version}"


def _spec_text(name: str) -> Callable[[RunRecord], Iterable[str]]:
    return lambda record: () if record.spec.get(name) is None else (str(record.spec[name]),)


def _git(name: str) -> Callable[[RunRecord], Iterable[str]]:
    return lambda record: (str(provenance.read(record.folder).git.get(name, "")),)


#: Field -> its values of a run.
FIELDS: Mapping[str, Callable[[RunRecord], Any]] = {
    "id": lambda record: (record.id,),
    "name": lambda record: (record.name, record.title),
    "tag": lambda record: record.labels,
    "note": lambda record: (record.note,),
    "state": lambda record: _states(record),
    "notebook": lambda record: (record.notebook,),
    "cluster": lambda record: (record.cluster,),
    "strategy": _spec_text("strategy"),
    "rule": _spec_text("rule"),
    "data": _spec_text("data"),
    "cell": _spec_text("cell"),
    "search": _spec_text("parent"),
    "reason": lambda record: (str((record.failure or {}).get("message", "")),),
    "host": lambda record: (str(record.environment.get("host", "")),),
    "package": _packages,
    "commit": _git("commit"),
    "branch": _git("branch"),
}
#: Fields that must equal the text; the others contain it.
_EXACT_FIELDS = frozenset(("tag", "state", "strategy", "search"))
_STATES = tuple(dict.fromkeys(state_word(state).lower() for state in ev.STATES))
_EXAMPLES = {"state": "failed", "tag": "paper", "strategy": "allreduce", "package": "keras==3", "cell": "BatchNorm"}


def _comparison(name: str, sign: str, text: str) -> Matches:
    compare = _OPERATORS[sign]
    if name in ("created", "ended"):
        moment = _moment(name, text)
        return lambda record: _holds(compare, getattr(record, name), moment)
    number = _number(text)
    if number is None:
        if sign in ("=", "==", "!="):
            equal = sign != "!="
            return lambda record: (_setting(record, name).lower() == text.lower()) is equal
        raise QueryError(f"{name}{sign} needs a number, such as {name}{sign}0.5")
    return lambda record: any(_holds(compare, value, number) for value in _numbers(record, name))


def _holds(compare: Callable[[Any, Any], bool], value: float | None, operand: float) -> bool:
    return value is not None and not math.isnan(value) and compare(value, operand)


def _setting(record: RunRecord, name: str) -> str:
    """A parameter or an option as text; empty if it is not set."""
    for values in (record.spec.get("set"), record.spec):
        if isinstance(values, Mapping) and values.get(name) is not None:
            return str(values[name])
    return ""


def _numbers(record: RunRecord, name: str) -> Iterator[float]:
    """The newest value of a metric, else that of a parameter or an option; also "epochs" and "seconds"."""
    metrics = record.progress.get("metrics") or {}
    if name in metrics:
        value: Any = metrics[name]
    elif name == "epochs":
        value = record.progress.get("epoch")
    elif name == "seconds":
        value = (record.ended or time.time()) - record.created
    else:
        value = _setting(record, name)
    number = _number(str(value))
    if number is not None:
        yield number


def _number(text: str) -> float | None:
    if len(text) > MAX_QUOTED:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _moment(name: str, text: str) -> float:
    """Seconds since the epoch of a day, or of a time: 2026-11-23, 2026-11-23T12:00."""
    for form in ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m"):
        try:
            return time.mktime(time.strptime(text, form))
        except (ValueError, OverflowError):
            continue
    raise QueryError(f"{name} is compared with a day, such as {name}>2026-11-23")
