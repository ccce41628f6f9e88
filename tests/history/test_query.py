"""The language in which runs are searched: what each term finds, and what is refused in one line."""

import pytest
from support.stored import finished, stored

from ddl_magics import store
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.runs import list_runs
from ddl_magics.history import provenance, query
from ddl_magics.runtime import events as ev


@pytest.fixture(autouse=True)
def runs(data_dir):
    """{name: folder} of three runs."""
    good = finished(name="good", set={"lr": "0.001", "act": "relu"}, workers=4, seed=7, cell="BatchNorm()")
    good.label(["paper", "two words"], title="the one", note="Used in Table 2")
    good.update({"progress": {"epoch": 5, "metrics": {"val_accuracy": 0.95, "loss": 0.2}}})
    provenance.write(
        good.path,
        {
            "kernel": {"packages": {"keras": "3.15.1", "scikit-learn": "1.7"}},
            "git": {"commit": "1a2b3c", "branch": "x"},
        },
    )
    bad = stored(ev.FAILED, name="bad", set={"lr": "0.1", "act": "gelu"}, strategy="ps", rule="adag", created=1e9)
    bad.update({"progress": {"metrics": {"val_accuracy": float("nan")}}, "failure": {"message": "out of memory"}})
    provenance.write(bad.path, {"kernel": {"packages": {"keras": "2.13.0"}}})
    other = finished(name="other")
    return {"good": good, "bad": bad, "other": other}


def found(text):
    wanted = query.parse(text)
    return {record.name for record in store.list_runs() if wanted.matches(record)}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "good bad other"),
        ("GOOD", "good"),
        ("the one", "good"),  # two words, of the title
        ('"table 2"', "good"),
        ("state:failed", "bad"),
        ("-state:failed", "good other"),
        ("tag:paper", "good"),
        ("tag:pap", ""),
        ('tag:"two words"', "good"),
        ("-tag:paper a.ipynb", "bad other"),
        ("note:table", "good"),
        ("val_accuracy>0.9", "good"),
        ("val_accuracy>=0.95 loss<0.3", "good"),
        ("val_accuracy>0.96", ""),
        ("val_accuracy<2", "good"),  # NaN is no number
        ("lr<0.01", "good"),
        ("lr=0.1", "bad"),
        ("lr!=0.1", "good"),
        ("act=relu", "good"),
        ("act!=relu", "bad other"),
        ("workers=4", "good"),
        ("epochs>=5", "good"),
        ("seed==7 workers>3", "good"),
        ("strategy:ps rule:adag", "bad"),
        ("cell:batchnorm", "good"),
        ("reason:memory", "bad"),
        ("package:keras", "good bad"),
        ("package:keras==3", "good"),
        ("package:keras==3.1", ""),
        ("package:scikit_learn==1.7", "good"),
        ("commit:1a2b branch:x", "good"),
        ("created>2020-01-01", "good other"),
        ("created<2010-01", "bad"),
    ],
)
def test_what_a_query_finds(text, names):
    assert found(text) == set(names.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stat:failed", "runs have no field 'stat': write one of branch, cell, cluster"),
        ("stat:failed", "Did you mean state?"),
        ("state:failled", "no run has the state 'failled': write one of queued, starting, running,"),
        ("state:failled", "Did you mean failed?"),
        ("state:", "state: needs a text, such as state:failed"),
        ("lr<", "lr< needs a number, such as lr<0.5"),
        ("lr<small", "lr< needs a number"),
        ("created>yesterday", "created is compared with a day, such as created>2026-11-23"),
        ("x" * 1001, "a query has at most 1000 characters"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(query.QueryError) as caught:
        query.parse(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_shell_may_have_split_the_terms():
    wanted = query.parse_words(["tag:two words", "val_accuracy>0.9"])
    assert [record.name for record in store.list_runs() if wanted.matches(record)] == ["good"]


def test_what_is_found_is_a_table(runs):
    text = str(list_runs(Kernel(None), ("tag:paper",)))
    assert [line.split()[0] for line in text.splitlines()] == ["run", "good"] and "paper, two words" in text
    assert str(list_runs(Kernel(None), ("tag:none",))) == "none of 3 runs matches"


def test_a_name_that_no_run_has_a_value_of_is_named(runs):
    said = {
        ("val_acuracy>0.9",): "no run has a metric or an option val_acuracy. Did you mean val_accuracy?",
        ("tag:paper", "zzz<1"): "no run has a metric or an option zzz.",
        ("val_accuracy>2",): "none of 3 runs matches",
        ("epochs>1000",): "none of 3 runs matches",
        ("strategy=none",): "none of 3 runs matches",
    }
    assert {words: str(list_runs(Kernel(None), words)) for words in said} == said


def test_a_damaged_file_of_packages_matches_nothing_and_stops_nothing(runs):
    (runs["good"].path / provenance.NAME).write_bytes(b"no gzip")
    assert found("package:keras") == {"bad"}


def test_many_signs_before_a_word_are_counted():
    assert found("-" * 995 + "good") == {"bad", "other"} and found("-" * 994 + "good") == {"good"}
    assert found("-") == {"good", "bad", "other"} and found("--") == set()
