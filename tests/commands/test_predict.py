"""`%ddl predict`: what is read from the line; that it scores is tested in tests/clusters/test_every_cluster.py."""

import pytest
from IPython.core.error import UsageError

from ddl_magics.commands.predict import PredictRequest
from ddl_magics.commands.table import BY_VERB
from ddl_magics.notebook.completion import candidates

PREDICT = BY_VERB["predict"]
USAGE = (
    "%ddl predict RUN|PATH --data DATAFRAME --name NAME [--features COLUMNS] [--output COLUMN] [--on-error fail|null] "
    "[--batch-size N]"
)


def test_the_line_is_read():
    expected = PredictRequest("digits", "df", "scored", (), "prediction", "fail", 1024)
    assert PREDICT.read(["digits", "--data", "df", "--name=scored"]) == expected
    words = "digits --features a,b image=pixels --on-error null --name scored --data df --batch-size 10 --output p"
    expected = PredictRequest("digits", "df", "scored", ("a", "b", "image=pixels"), "p", "null", 10)
    assert PREDICT.read(words.split()) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", f"write: {USAGE}"),
        ("--data df", f"write: {USAGE}"),
        ("digits --name x", f"--data is missing. Write: {USAGE}"),
        ("digits --data df", f"--name is missing. Write: {USAGE}"),
        ("digits --data", "--data needs a value: --data DATAFRAME."),
        ("digits --dat df", f"%ddl predict has no option --dat. Did you mean --data? Write: {USAGE}"),
        ("digits df", f"write: {USAGE}"),
        ("digits --df df", f"%ddl predict has no option --df. Did you mean --data? Write: {USAGE}"),
        ("digits --data df --data df", "--data is given twice: leave one of them out."),
        ("digits --data df --name a --on-error skip", "--on-error has no value 'skip'; it takes fail, null."),
        (
            "digits --data df --name a-b",
            "--name must be a Python name (letters, digits, underscores), such as a_b, not 'a-b'.",
        ),
        ("digits --data df --name a --batch-size x", "--batch-size must be a whole number above 0, not 'x'."),
    ],
)
def test_a_mistake_is_one_line(line, says):
    with pytest.raises(UsageError) as caught:
        PREDICT.read(line.split())
    assert str(caught.value) == says


def test_runs_and_options_are_completed():
    def complete(line):
        return candidates(line, {}, lambda: ["digits"])

    assert complete("%ddl pr") == ["predict"] and complete("%ddl predict ") == ["digits"]
    assert complete("%ddl predict digits --data df --n") == ["--name"]
