"""The lines of %ddl: what a verb reads, and one line about each mistake. That it works is tested on every cluster."""

import pytest
from IPython.core.error import UsageError
from support.refusals import refusal

from ddl_magics.commands.table import find
from ddl_magics.notebook.completion import candidates

PREDICT = (
    "%ddl predict RUN|PATH --data DATAFRAME --name NAME [--features COLUMNS] [--output COLUMN] [--on-error fail|null] "
    "[--batch-size N]"
)
EVALUATE = (
    "%ddl evaluate RUN|PATH --data DATAFRAME [--label COLUMN] [--weight COLUMN] [--features COLUMNS] [--batch-size N] "
    "[--name NAME]"
)


def read(line):
    verb, *words = line.split()
    return find(verb).read(words)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("tfrecord df hdfs:///a.tfrecord", ("df", "hdfs:///a.tfrecord", None)),
        ("tfrecord df --compression=gzip hdfs:///a", ("df", "hdfs:///a", "gzip")),
        ("tfrecord df hdfs:///a --compression gzip", ("df", "hdfs:///a", "gzip")),
        ("predict digits --data df --name=scored", ("digits", "df", "scored", (), "prediction", "fail", 1024)),
        (
            "predict digits --features a,b image=pixels --on-error null --name x --data df --batch-size 10 --output p",
            ("digits", "df", "x", ("a", "b", "image=pixels"), "p", "null", 10),
        ),
        ("evaluate digits --data df", ("digits", "df", None, None, (), 1024, None)),
        (
            "evaluate digits --features a,b image=pixels --label y --weight w --name x --data df --batch-size 10",
            ("digits", "df", "y", "w", ("a", "b", "image=pixels"), 10, "x"),
        ),
        ("scale digits --workers 4,1,4 --again", ("digits", (1, 4), (), 1, None, False, True)),
    ],
)
def test_a_line_is_read(line, values):
    """In the order of the rows."""
    assert tuple(read(line).values()) == values


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("predict", f"write: {PREDICT}"),
        ("predict --data df", f"write: {PREDICT}"),
        ("predict digits --name x", f"--data is missing. Write: {PREDICT}"),
        ("predict digits --data df", f"--name is missing. Write: {PREDICT}"),
        ("predict digits --data", "--data needs a value: --data DATAFRAME."),
        ("predict digits --dat df", f"%ddl predict has no option --dat. Did you mean --data? Write: {PREDICT}"),
        ("predict digits df", f"write: {PREDICT}"),
        ("predict digits --df df", f"%ddl predict has no option --df. Did you mean --data? Write: {PREDICT}"),
        ("predict digits --data df --data df", "--data is given twice: leave one of them out."),
        ("predict digits --data df --name a --on-error skip", "--on-error has no value 'skip'; it takes fail, null."),
        (
            "predict digits --data df --name a-b",
            "--name must be a Python name (letters, digits, underscores), such as a_b, not 'a-b'.",
        ),
        ("predict digits --data df --name a --batch-size x", "--batch-size must be a whole number above 0, not 'x'."),
        ("evaluate", f"write: {EVALUATE}"),
        ("evaluate digits --label y", f"--data is missing. Write: {EVALUATE}"),
        ("tfrecord df", "write: %ddl tfrecord DATAFRAME URI [--compression gzip]"),
        ("tfrecord df a b", "write: %ddl tfrecord DATAFRAME URI [--compression gzip]"),
        ("tfrecord df a --compression zip", "--compression has no value 'zip'; it takes gzip. Did you mean gzip?"),
        (
            "scale digits --workers 2,x",
            "--workers must be a whole number above 0, or several joined by commas, not '2,x'.",
        ),
        (
            "scale digits --workers 2 --strategy averge",
            "%ddl scale compares allreduce, ps, average, not 'averge'. Did you mean average?",
        ),
        ("use embeded", "%ddl use has no cluster embeded; it takes auto, embedded, livy. Did you mean embedded?"),
        (
            "use http://host:8998",
            "%ddl use has no cluster http://host:8998; it takes auto, embedded, livy. For a Livy: %ddl use livy "
            "http://host:8998",
        ),
        (
            "use spark://host:7077",
            "%ddl use has no cluster spark://host:7077; it takes auto, embedded, livy. Create the session with "
            "SparkSession.builder.master(...): auto finds it.",
        ),
        ("spark 4", "write: %ddl spark [--workers N] [--conf KEY=VALUE]"),
        ("spark --workers many", "--workers must be a whole number above 0, not 'many'."),
        ("logs a b", "RANK must be the number of a rank, such as 0, not 'b'."),
        ("logs a 1 2", "write: %ddl logs RUN [RANK] [--json]"),
        ("serving x", "write: %ddl serving [--json]"),
        ("clean --keep soon", "--keep must be a time such as 12h, 30d, 8w, not 'soon'."),
        ("clean --keep 30s", "--keep must be a time such as 12h, 30d, 8w, not '30s'."),
        ("clean --max-size", "--max-size needs a value: --max-size 10GB."),
        ("clean --max-size much", "--max-size must be a size such as 500MB, 10GB, not 'much'."),
    ],
)
def test_a_mistake_is_one_line(line, says):
    assert refusal(read, line) == says


def test_a_verb_in_other_words():
    for typed, says in (("kill", " Did you mean stop?"), ("shwo", " Did you mean show?"), ("zzz", "")):
        with pytest.raises(UsageError, match=rf"^%ddl has no verb {typed}; its verbs are use, .*, cache\.") as caught:
            find(typed)
        assert str(caught.value).endswith(f"cache.{says}")


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("%ddl pr", ["predict"]),
        ("%ddl predict ", ["digits"]),
        ("%ddl predict digits --data df --n", ["--name"]),
        ("%ddl tfrecord ", []),
        ("%ddl tfrecord df hdfs:///a --", ["--compression"]),
        ("%%distributed --strategy=al", ["--strategy=allreduce"]),
        ("%%distributed --gather=", ["--gather=auto", "--gather=yes", "--gather=no"]),
        ("%%distributed --resume di", ["digits"]),
        ("%%distributed --resume=", ["--resume=digits"]),
        ("%%distributed --name ", []),
    ],
)
def test_verbs_runs_options_and_values_are_completed(line, offers):
    assert candidates(line, {}, lambda: ["digits"]) == offers
