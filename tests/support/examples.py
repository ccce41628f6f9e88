"""The examples of tests/equality/examples: each file is a cell, found by itself, with what is expected of it.

It finds `keras`, `np`, `tf` and `layers`, as behind a cell of imports.

Its docstring says what construct it has, and then, a line each where there is something to say:

    Like: the example of Keras that has the construct
    Options: flags of %%distributed without a value, with which all-reduce equals plain Keras
    Needs: Keras 3
    By chance: Keras 2: how the names begin of what plain Keras 2 reports differently each time it is run
    Refused: STRATEGY: words of the message with which the strategy refuses it; of one of several, where they differ
    Bound: the largest difference that is rounding, instead of 1e-9
"""

import ast
import dataclasses
import itertools
from dataclasses import dataclass, field

from support import comparison, launch
from support.paths import TESTS

FOLDER = TESTS / "equality" / "examples"
_RUNNER = (TESTS / "equality" / "example_cell.py").read_text()

#: Examples of one launch, or of one process of plain Keras.
BATCH = 20
SECONDS_EACH = 40


@dataclass(frozen=True)
class Example:
    """refused: {strategy: words of each message that it may refuse it with}. by_chance: of Keras 2 alone."""

    name: str
    source: str
    construct: str
    like: str
    options: tuple[str, ...] = ()
    keras3: bool = False
    refused: dict[str, list[str]] = field(default_factory=dict)
    bound: float = comparison.FLOAT64
    by_chance: str = ""

    @classmethod
    def read(cls, file):
        """ValueError names a line that no example has."""
        source = file.read_text()
        construct, _, rest = ast.get_docstring(ast.parse(source)).partition("\n\n")
        fields = {"refused": {}}
        for line in rest.splitlines():
            key, _, value = line.partition(": ")
            if key == "Like":
                fields["like"] = value
            elif key == "Options":
                fields["options"] = tuple(value.split())
            elif line == "Needs: Keras 3":
                fields["keras3"] = True
            elif line.startswith("By chance: Keras 2: "):
                fields["by_chance"] = line.rpartition(" ")[2]
            elif key == "Refused":
                strategy, _, words = value.partition(": ")
                fields["refused"].setdefault(strategy, []).append(words)
            elif key == "Bound":
                fields["bound"] = float(value)
            else:
                raise ValueError(f"{file.name}: {line!r} is none of the lines of support/examples.py")
        return cls(file.stem, source, " ".join(construct.split()), **fields)


def found(keras2=False):
    """{name: Example}, by name; those that Keras 2 has too."""
    every = [Example.read(file) for file in sorted(FOLDER.glob("*.py"))]
    if keras2:
        return {one.name: one for one in every if not one.keras3}
    return {one.name: dataclasses.replace(one, by_chance="") for one in every}


def source(examples):
    """The text of a cell with `run_cases`."""
    return f"EXAMPLES = { ({one.name: one.source for one in examples})!r}\n{_RUNNER}"


def batched(examples, size=BATCH):
    """Lists of at most `size` examples with the same options."""
    for _, alike in itertools.groupby(sorted(examples, key=lambda one: one.options), lambda one: one.options):
        alike = list(alike)
        yield from (alike[at : at + size] for at in range(0, len(alike), size))


def plain(folder, examples, **reference):
    """{name: result} of plain Keras. reference: of `comparison.Reference`."""
    learned = comparison.Reference(folder, source(examples), **reference)
    results = {}
    for batch in batched(examples):
        results.update(learned(tuple(one.name for one in batch), "float64"))
    return results


def learn(spark, examples, workers, **spec):
    """{name: result} of `workers` workers: a launch for each of `batched`. AssertionError where ranks differ."""
    results = {}
    for batch in batched(examples):
        results.update(_launched(spark, batch, workers, **spec))
    return results


def _launched(spark, batch, workers, **spec):
    allreduce = spec.get("strategy", "allreduce") == "allreduce"
    options = {flag.lstrip("-").replace("-", "_"): True for flag in batch[0].options if allreduce}
    names = [one.name for one in batch]
    cell = f"{source(batch)}\nrun_cases({names!r}, 'float64', ddl)"
    ended = launch.finished(spark, cell, workers=workers, seconds=60 + SECONDS_EACH * len(batch), **options, **spec)
    results = ended.result
    if allreduce:
        trained = {name: one for name, one in results.items() if "refused" not in one}
        comparison.Learned(ended, trained, "float64", workers).assert_ranks_equal()
    return results


def difference(ours, theirs, by_chance=""):
    """(largest difference, where it is), of all that an example reports but by chance, and of its weights."""
    assert set(ours["history"]) == set(theirs["history"])
    names = [name for name in theirs["history"] if not (by_chance and name.startswith(by_chance))]
    gaps = {name: comparison.distance(ours["history"][name], theirs["history"][name]) for name in names}
    gaps["weights"] = comparison.distance(ours["weights"], theirs["weights"])
    where = max(gaps, key=lambda name: gaps[name] if gaps[name] == gaps[name] else float("inf"))
    return gaps[where], where


def wrong(example, ours, theirs, strategy="allreduce"):
    """What is not as expected of all-reduce: words, or None."""
    if "refused" in theirs:
        return f"{example.name} fails in plain Keras: {theirs['traceback']}"
    expected, refused = example.refused.get(strategy), ours.get("refused")
    if expected:
        said = any(words in (refused or "") for words in expected)
        return None if said else f"{example.name} is not refused with {expected}, but: {refused}"
    if refused:
        return f"{example.name} fails: {ours['traceback']}"
    gap, where = difference(ours, theirs, example.by_chance)
    return None if gap <= example.bound else f"{example.name}: {where} differs by {gap:.2g}"
