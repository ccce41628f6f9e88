"""`%ddl evaluate`: what is read from the line; that it evaluates is tested in tests/clusters/test_every_cluster.py."""

import pytest
from IPython.core.error import UsageError

from ddl_magics.commands.evaluate import EvaluateRequest
from ddl_magics.commands.table import BY_VERB
from ddl_magics.notebook.completion import candidates

EVALUATE = BY_VERB["evaluate"]
USAGE = (
    "%ddl evaluate RUN|PATH --data DATAFRAME [--label COLUMN] [--weight COLUMN] [--features COLUMNS] [--batch-size N] "
    "[--name NAME]"
)


def test_the_line_is_read():
    assert EVALUATE.read(["digits", "--data", "df"]) == EvaluateRequest("digits", "df", None, None, None, (), 1024)
    words = "digits --features a,b image=pixels --label y --weight w --name found --data df --batch-size 10"
    expected = EvaluateRequest("digits", "df", "found", "y", "w", ("a", "b", "image=pixels"), 10)
    assert EVALUATE.read(words.split()) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", f"write: {USAGE}"),
        ("digits --label y", f"--data is missing. Write: {USAGE}"),
        ("digits --data df --label", "--label needs a value: --label COLUMN."),
        ("digits --data df --lable y", f"%ddl evaluate has no option --lable. Did you mean --label? Write: {USAGE}"),
        (
            "digits --data df --name a-b",
            "--name must be a Python name (letters, digits, underscores), such as a_b, not 'a-b'.",
        ),
    ],
)
def test_a_mistake_is_one_line(line, says):
    with pytest.raises(UsageError) as caught:
        EVALUATE.read(line.split())
    assert str(caught.value) == says


def test_options_are_completed():
    assert candidates("%ddl evaluate digits --data df --l", {}, lambda: ["digits"]) == ["--label"]
