"""What a message shows of what was typed: one short line, and no secret."""

import pytest
from support.refusals import refusal

from ddl_magics.commands.table import BY_VERB
from ddl_magics.commands.use import checked_url
from ddl_magics.options.parsing import parse
from ddl_magics.wording import plain, quoted


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--workers " + "9" * 5000, "--workers must be a whole number above 0, not '999"),
        ("--seed " + "1" * 5000, "--seed must be a whole number from 0"),
        ("--timeout " + "9" * 400, "--timeout must be seconds, or a time"),
        ("--strategy " + "x" * 9000, "--strategy has no value 'xxx"),
        ("--conf " + "x" * 9000, "--conf must be key=value"),
        ("--" + "x" * 9000, "no option --xxx"),
        ("--a\x1b[31m", "no option --a\\x1b[31m."),
        ("--rule adag:" + "x" * 9000 + "=1", "--rule: the rule adag has no setting 'xxx"),
    ],
)
def test_a_long_or_unprintable_word_is_one_short_line(line, says):
    message = refusal(parse, line)
    assert message.startswith(says) and len(message) < 400 and message.isprintable()


@pytest.mark.parametrize(
    "line",
    [
        "--out s3a://key:hidden@[bucket",
        "--workers 2 s3a://key:hidden@bucket",
        "--conf =spark.password=hidden",
        "--checkpoint hdfs://u:hid/hidden@host/x",
    ],
)
def test_no_message_shows_a_secret(line):
    assert "hidden" not in refusal(parse, line)


def test_an_address_of_a_livy_that_is_none():
    for url in ("http://[host", "ftp://user:hidden@host", "http://host:port", "http://user:hi/hidden@host"):
        message = refusal(checked_url, url)
        assert "hidden" not in message and ("is not the URL of a Livy" in message or "holds a password" in message)


def test_times_and_sizes_of_clean_are_bounded():
    for words in (["--keep", "9" * 400 + "d"], ["--max-size", "9" * 400 + "GB"], ["--keep-last", "9" * 5000]):
        assert f"{words[0]} must be" in refusal(BY_VERB["clean"].read, words)


def test_quoting():
    assert quoted("a\nb") == "'a\\nb'" and plain("--data") == "--data" and plain("\ud800") == "\\ud800"
    assert len(quoted("x" * 1000)) < 100
