"""scripts/mutants.py: which defects it plants, in code of a few lines; and a sample, which the rooms' tests notice."""

import argparse
import ast
import json
import subprocess
import sys

import pytest
from support.paths import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import mutants
import mutations


def changed(text):
    """The texts that a text can become, each of which is a program."""
    source = text.encode()
    texts = [mutant.applied(source).decode() for mutant in mutations.mutants("a.py", source)]
    for one in texts:
        ast.parse(one)
    return set(texts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b", {"(a <= b)"}),
        ("a == b", {"(a != b)"}),
        ("0 <= a < b", {"(0 < a < b)", "(0 <= a <= b)", "(1) <= a < b"}),
        ("a + b * c", {"(a - b * c)", "a + (b // c)"}),
        ("'a' + b", set()),
        ("-a", {"(a)"}),
        ("a and b", {"(a or b)", "(a)", "(b)"}),
        ("if a: f()", {"if (not a): f()", "if a: pass"}),
        ("x = 3", {"x = (4)", "x = (2)"}),
        ("x = True", {"x = (False)"}),
        ("PATIENCE_SECONDS = 3", set()),
        ("def f(x: int = 0) -> Literal[1]: return x", {
            "def f(x: int = (1)) -> Literal[1]: return x",
            "def f(x: int = 0) -> Literal[1]: return None",
        }),
        ("f(a, b, 'c')", {"(f(b, a, 'c'))", "pass"}),
        ("a.b = c", {"pass"}),
        ("raise f", {"pass"}),
        ("n += b", {"n -= b"}),
        ("'''Text.'''", set()),
        ("x = f'{a + 1}'", set()),
        ("if TYPE_CHECKING: x = 1", set()),
    ],
)  # fmt: skip
def test_what_a_line_can_become(text, expected):
    assert changed(text) == expected


def test_letters_of_several_bytes_do_not_shift_the_place():
    assert changed("'é' < b") == {"('é' <= b)"}


def test_a_mutant_keeps_its_name_where_lines_move_and_equal_ones_are_told_apart():
    text = "def f(a):\n    g(1)\n    return g(1)\n"
    keys = [mutant.key for mutant in mutations.mutants("a.py", text.encode())]
    assert len(set(keys)) == len(keys) and "a.py f: 1 -> (2) #1" in keys
    assert keys == [mutant.key for mutant in mutations.mutants("a.py", f"import b\n\n{text}".encode())]


def test_a_seed_chooses_the_same_mutants_of_several_files_and_kinds():
    first = [mutant for mutant, _ in zip(mutants.chosen("store", 1), range(40), strict=False)]
    assert first == [mutant for mutant, _ in zip(mutants.chosen("store", 1), range(40), strict=False)]
    assert len({mutant.file for mutant in first}) > 5 and len({mutant.kind for mutant in first}) > 5
    assert first != [mutant for mutant, _ in zip(mutants.chosen("store", 2), range(40), strict=False)]


def line(mutant, outcome, room="store"):
    return {"room": room, "mutant": mutant, "outcome": outcome}


def test_the_last_line_about_a_mutant_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "equivalent", lambda: {"d": "nobody sees it"})
    book = mutants.Record(tmp_path / "record.jsonl")
    for one in [line("a", "caught"), line("b", "survived"), line("c", "survived", "data"), line("d", "survived")]:
        book.add(one)
    book.add(line("b", "caught"))
    rows = mutants.Record(tmp_path / "record.jsonl").table().splitlines()[2:]
    assert rows == ["| data | 1 | 0 | 0 | 0 | 1 |", "| store | 3 | 1 | 1 | 1 | 0 |", "| all | 4 | 1 | 1 | 1 | 1 |"]
    again = argparse.Namespace(room=["options"], seed=1, count=5, again=False, only="")
    planned = mutants.plan(again, book)
    book.add(line(planned[0][1].key, "caught", "options"))
    assert mutants.plan(again, book) == planned[1:]


def test_the_tests_that_call_its_function_are_asked_and_where_none_does_all(monkeypatch):
    mutant = mutations.mutants("a.py", b"def f(): return 1")[0]
    tests = {name: {"seconds": 3.0, "functions": [f"a.py {name}"]} for name in "fgh"}
    thorough, quick = (mutants.Trial(None, None, None, quick) for quick in (False, True))
    assert thorough._asked(mutant, tests) == quick._asked(mutant, tests) == {"f": 3.0}
    del tests["f"]
    monkeypatch.setattr(mutants, "_QUICK_SECONDS", 5)
    assert (thorough._asked(mutant, tests), quick._asked(mutant, tests)) == ({"g": 3.0, "h": 3.0}, {"g": 3.0})


def test_a_code_has_the_name_that_a_mutant_has():
    names = [
        mutants._name(code, f"{ROOT}/") for code in [mutants._name.__code__, _inner().__code__, _in_lambda().__code__]
    ]
    assert names == ["scripts/mutants.py _name", *(f"tests/project/test_mutants.py {name}" for name in EXPECTED)]


EXPECTED = ["_inner.function", "_in_lambda"]


def _inner():
    def function(): ...

    return function


def _in_lambda():
    return lambda: None


def test_each_mutant_that_nobody_can_notice_is_one_and_has_a_reason():
    reasons = mutants.equivalent()
    existing = {mutant.key for room in mutants.ROOMS for mutant in mutants.chosen(room, 0)}
    assert not reasons.keys() - existing, "their code has changed: try them anew, or take them out"
    assert all(reasons.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_sample_is_noticed(tmp_path):
    """Few survive the quick tests: each room that is asked here has been brought to nine of ten."""
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, or user namespaces")
    record = tmp_path / "record.jsonl"
    arguments = ["--count=12", "--seed=7", "--quick", f"--record={record}", "--room=options", "--room=store"]
    subprocess.run([sys.executable, ROOT / "scripts" / "mutants.py", *arguments], check=True, timeout=1700)
    outcomes = [json.loads(text)["outcome"] for text in record.read_text().splitlines()]
    assert len(outcomes) == 12 and outcomes.count("caught") >= 9
