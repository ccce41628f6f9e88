"""`%ddl evaluate`: what is read from the line; that it evaluates is tested in tests/clusters/test_every_cluster.py."""

import pytest
from IPython.core.error import UsageError

from ddl_magics.commands.evaluate import USAGE, Request, parse
from ddl_magics.notebook.completion import candidates


def test_the_line_is_read():
    assert parse(["digits", "--data", "df"]) == Request("digits", "df", "")
    words = "digits --features a,b image=pixels --label y --weight w --name found --data df --batch-size 10"
    assert parse(words.split()) == Request("digits", "df", "found", "y", "w", ("a", "b", "image=pixels"), 10)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", f"write: {USAGE}"),
        ("digits --label y", f"--data is missing. Write: {USAGE}"),
        ("digits --data df --label", f"--label needs a value. Write: {USAGE}"),
        ("digits --data df --lable y", f"%ddl evaluate has no option --lable. Did you mean --label? Write: {USAGE}"),
        ("digits --data df --name a-b", "--name a-b is no name of a variable"),
    ],
)
def test_a_mistake_is_one_line(line, says):
    with pytest.raises(UsageError) as caught:
        parse(line.split())
    assert str(caught.value) == says


def test_options_are_completed():
    assert candidates("%ddl evaluate digits --data df --l", {}, ("evaluate",), lambda: ["digits"]) == ["--label"]
