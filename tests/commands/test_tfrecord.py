"""`%ddl tfrecord`: what is read from the line; that it writes is tested in tests/clusters/test_every_cluster.py."""

import pytest
from IPython.core.error import UsageError

from ddl_magics.commands.tfrecord import USAGE, Request, parse
from ddl_magics.notebook.completion import candidates


def test_the_line_is_read():
    assert parse(["df", "hdfs:///a.tfrecord"]) == Request("df", "hdfs:///a.tfrecord")
    expected = Request("df", "hdfs:///a", "gzip")
    assert parse(["df", "--compression=gzip", "hdfs:///a"]) == expected
    assert parse(["df", "hdfs:///a", "--compression", "gzip"]) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", f"write: {USAGE}"),
        ("df", f"write: {USAGE}"),
        ("df a b", f"write: {USAGE}"),
        ("df a --compression", f"--compression must be gzip, not . Write: {USAGE}"),
        ("df a --compression zip", f"--compression must be gzip, not zip. Write: {USAGE}"),
        (
            "df a --compresion gzip",
            f"%ddl tfrecord has no option --compresion. Did you mean --compression? Write: {USAGE}",
        ),
    ],
)
def test_a_mistake_is_one_line(line, says):
    with pytest.raises(UsageError) as caught:
        parse(line.split())
    assert str(caught.value) == says


def test_dataframes_and_the_option_are_completed():
    def complete(line):
        return candidates(line, {}, ("tfrecord", "runs"), lambda: ["digits"])

    assert complete("%ddl tf") == ["tfrecord"] and complete("%ddl tfrecord ") == []
    assert complete("%ddl tfrecord df hdfs:///a --") == ["--compression"]
