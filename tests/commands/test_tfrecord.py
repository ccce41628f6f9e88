"""`%ddl tfrecord`: what is read from the line; that it writes is tested in tests/clusters/test_every_cluster.py."""

import pytest
from IPython.core.error import UsageError

from ddl_magics.commands.table import BY_VERB
from ddl_magics.commands.tfrecord import TFRecordRequest
from ddl_magics.notebook.completion import candidates

TFRECORD = BY_VERB["tfrecord"]
USAGE = "%ddl tfrecord DATAFRAME URI [--compression gzip]"


def test_the_line_is_read():
    assert TFRECORD.read(["df", "hdfs:///a.tfrecord"]) == TFRecordRequest("df", "hdfs:///a.tfrecord", None)
    expected = TFRecordRequest("df", "hdfs:///a", "gzip")
    assert TFRECORD.read(["df", "--compression=gzip", "hdfs:///a"]) == expected
    assert TFRECORD.read(["df", "hdfs:///a", "--compression", "gzip"]) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", f"write: {USAGE}"),
        ("df", f"write: {USAGE}"),
        ("df a b", f"write: {USAGE}"),
        ("df a --compression", "--compression needs a value: --compression gzip."),
        ("df a --compression zip", "--compression has no value 'zip'; it takes gzip. Did you mean gzip?"),
        (
            "df a --compresion gzip",
            f"%ddl tfrecord has no option --compresion. Did you mean --compression? Write: {USAGE}",
        ),
    ],
)
def test_a_mistake_is_one_line(line, says):
    with pytest.raises(UsageError) as caught:
        TFRECORD.read(line.split())
    assert str(caught.value) == says


def test_dataframes_and_the_option_are_completed():
    def complete(line):
        return candidates(line, {}, lambda: ["digits"])

    assert complete("%ddl tf") == ["tfrecord"] and complete("%ddl tfrecord ") == []
    assert complete("%ddl tfrecord df hdfs:///a --") == ["--compression"]
