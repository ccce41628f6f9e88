"""`%ddl predict`: what is read from the line; that it scores is tested in tests/clusters/test_every_cluster.py."""

import pytest
from IPython.core.error import UsageError

from ddl_magics.commands.predict import USAGE, Request, parse
from ddl_magics.notebook.completion import candidates


def test_the_line_is_read():
    assert parse(["digits", "--data", "df", "--name=scored"]) == Request("digits", "df", "scored")
    words = "digits --features a,b image=pixels --on-error null --name scored --data df --batch-size 10 --output p"
    expected = Request("digits", "df", "scored", ("a", "b", "image=pixels"), "p", "null", 10)
    assert parse(words.split()) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", f"write: {USAGE}"),
        ("--data df", f"write: {USAGE}"),
        ("digits --name x", f"--data is missing. Write: {USAGE}"),
        ("digits --data df", f"--name is missing. Write: {USAGE}"),
        ("digits --data", f"--data needs a value. Write: {USAGE}"),
        ("digits --dat df", f"%ddl predict has no option --dat. Did you mean --data? Write: {USAGE}"),
        ("digits df", f"%ddl predict has no option df. Write: {USAGE}"),
        ("digits --data df --name a-b", "--name a-b is no name of a variable"),
        ("digits --data df --name a --batch-size x", "--batch-size must be a number of rows, not x"),
    ],
)
def test_a_mistake_is_one_line(line, says):
    with pytest.raises(UsageError) as caught:
        parse(line.split())
    assert str(caught.value) == says


def test_runs_and_options_are_completed():
    def complete(line):
        return candidates(line, {}, ("predict", "runs"), lambda: ["digits"])

    assert complete("%ddl pr") == ["predict"] and complete("%ddl predict ") == ["digits"]
    assert complete("%ddl predict digits --data df --n") == ["--name"]
