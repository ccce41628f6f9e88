"""Why a session has ended, by value."""

from types import SimpleNamespace

import pytest

from ddl_magics.runtime.spark import session_end


def context(stopped=True, master="yarn"):
    return SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped)))


@pytest.mark.parametrize(
    ("told", "words"), [("YARN: it was killed", "YARN: it was killed"), (None, "its context is stopped")]
)
def test_a_session_that_has_ended_says_why_and_what_to_do(monkeypatch, told, words):
    monkeypatch.setattr(session_end.yarn, "why_ended", lambda sc: told)
    said = session_end.why_ended(context())
    assert said == f"the Spark session has ended ({words}): {session_end.ADVICE}"


def test_only_yarn_is_asked_for_words_of_yarn(monkeypatch):
    monkeypatch.setattr(session_end.yarn, "why_ended", lambda sc: 1 / 0)
    assert "its context is stopped" in session_end.why_ended(context(master="spark://h:7077"))


@pytest.mark.parametrize("sc", [context(stopped=False), SimpleNamespace(_jsc=None)], ids=["living", "unknown"])
def test_one_that_lives_or_cannot_be_asked_has_not_ended(sc):
    assert session_end.why_ended(sc) is None
