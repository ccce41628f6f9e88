"""Values from their texts, at the bounds of what is allowed."""

import pytest
from IPython.core.error import UsageError

from ddl_magics.commands import table
from ddl_magics.options import similar, values
from ddl_magics.options.help import markdown_meanings
from ddl_magics.options.option import Option


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.read_count, "007", 7),
        (values.read_count, "9" * 15, 10**15 - 1),
        (values.read_rank, "0", 0),
        (values.read_port, "1", 1),
        (values.read_port, "65535", 65535),
        (values.read_horizon, "0", 0),
        (values.read_seed, "0", 0),
        (values.read_seed, str(2**31 - 1), 2**31 - 1),
        (values.read_counts, "4,1,2,1", (1, 2, 4)),
        (values.read_yes_or_no, "yes", True),
        (values.read_yes_or_no, "no", False),
        (values.read_share, "1", 1.0),
        (values.read_share, "0.01", 0.01),
        (values.read_identifier, "größe", "größe"),
        (values.read_age, "0d", 0.0),
        (values.read_age, "1.5h", 5400.0),
        (values.read_age, "2w", 1_209_600.0),
        (values.read_duration, "0.5s", 0.5),
        (values.read_duration, "2m", 120.0),
        (values.read_duration, "3d", 259_200.0),
        (values.read_seconds, "30", 30.0),
        (values.read_seconds, "10m", 600.0),
        (values.read_size, "500MB", 500_000_000),
        (values.read_size, "1.5 GB", 1_500_000_000),
        (values.read_size, "2kB", 2_000),
        (values.read_size, "3TB", 3 * 10**12),
        (values.read_validation, "0.999", 0.999),
        (values.read_validation, "df", "df"),
        (values.read_validation, "2012-06-30T18:00", "2012-06-30T18:00"),
        (values.read_data, "hdfs:/sales", "hdfs:/sales"),
        (values.read_data, "parquet", "parquet"),
        (values.read_padding, "a=b=1", "a=b=1"),
        (values.read_logs, "a/b", "a/b"),
        (values.read_logs, "S3://b/logs", "S3://b/logs"),
        (values.read_tracking, "databricks", "databricks"),
        (values.read_tracking, "mysql+pymysql://host/db", "mysql+pymysql://host/db"),
        (values.read_uri, "/models", "/models"),
        (values.read_objective, "a:b:max,size:min", "a:b:max,size:min"),
        (values.read_parameter, " lr = 0.1=x ", ("lr", "0.1=x")),
        (values.read_setting, "spark.x=", ("spark.x", "")),
    ],
)
def test_what_is_read(read, text, value):
    assert read(text) == value and type(read(text)) is type(value)


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (values.read_count, ["0", "00", "-1", "1.0", "1" + "0" * 15, ""]),
        (values.read_rank, ["-1", "12345678"]),
        (values.read_port, ["0", "65536", "x"]),
        (values.read_seed, ["-1", str(2**31)]),
        (values.read_counts, ["1,0", "1,", "", "1 2"]),
        (values.read_yes_or_no, ["Yes", "", "true"]),
        (values.read_share, ["0", "1.01", "-0.5", "nan", "x"]),
        (values.read_identifier, ["a b", "class", "1a", ""]),
        (values.read_age, ["30", "30s", "x", "1.d"]),
        (values.read_duration, ["0s", "0.0h", "30", "-1s"]),
        (values.read_seconds, ["0", ""]),
        (values.read_size, ["500", "5MiB", ".5GB", "1" * 13 + "GB"]),
        (values.read_validation, ["0", "1", "2012-13-01", "a-b"]),
        (values.read_data, ["a/b", "sales.parquet", "sales.csv.gz", "hdfs:"]),
        (values.read_padding, ["=1", "a", "a=0", "a=x", "a="]),
        (values.read_logs, ["hdfs:///logs", "s3://"]),
        (values.read_tracking, ["mlflow", "file:///x", "xdatabricks", "databricksx"]),
        (values.read_uri, ["", "hdfs://[x/y"]),
        (values.read_objective, ["loss", "loss:up", ":max", "a:max,a:min"]),
        (values.read_parameter, ["lr", "=1", " =1"]),
    ],
)
def test_what_is_refused(read, texts):
    for text in texts:
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (values.read_uri, "hdfs://me:hidden@host/x", "set it in Hadoop's configuration"),
        (values.read_uri, "https://host/x?sig=hidden", "set that in Hadoop's configuration"),
        (values.read_tracking, "https://token@host", "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"),
        (values.read_tracking, "mysql://me:hidden@host/db", "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"),
    ],
)
def test_secrets_in_a_uri_are_refused_and_not_repeated(read, text, says):
    with pytest.raises(UsageError, match=says) as refused:
        read(text)
    assert "hidden" not in str(refused.value) and "token@" not in str(refused.value)


def test_an_identifier_like_it_is_suggested_unless_it_may_be_a_secret_or_is_long():
    for text, suggested in {"my df": ", such as my_df", "'df'": ", such as df", "1 a": "", "a" * 99 + " b": ""}.items():
        with pytest.raises(ValueError) as refused:
            values.read_identifier(text)
        assert str(refused.value) == f"a Python name (letters, digits, underscores){suggested}"
    with pytest.raises(ValueError) as refused:
        values.read_identifier("password hunter2")
    assert "hunter2" not in str(refused.value)


def test_words_of_other_tools_have_their_names_here():
    flags = ("--workers", "--data", "--label")
    assert similar.flag("-np", flags) == " Did you mean --workers?"
    assert similar.flag("--learning_rate", flags) == " It is an argument of the optimizer, in the cell."
    assert similar.flag("--labek", flags) == " Did you mean --label?"
    assert similar.flag("--xyzzy", flags) == " See %%distributed --help."
    assert similar.strategy("Horovod", ("allreduce", "ps")) == " Did you mean allreduce?"
    assert similar.verb("kill", ("runs", "stop")) == " Did you mean stop?"
    assert similar.verb("kill", ("runs", "logs")) == "", "a name that is not there is not suggested"
    assert set(similar.VERBS.values()) <= set(table.BY_VERB)


def test_values_that_need_explaining_have_a_table():
    assert (
        "## Values of `--strategy`\n\n| value | meaning |\n|---|---|\n| `allreduce` | synchronous"
        in markdown_meanings()
    )
    assert "--workers`" not in markdown_meanings()


def test_an_option_as_it_is_typed():
    assert Option("--no-wait", "", sets=("wait", False)).name == "wait"
    assert Option("--batch-size", "").name == "batch_size"
    assert Option("--a", "", metavar="N").usage == "--a N" and Option("--a", "").usage == "--a"
    assert Option("--a", "", metavar="N", choices={"x": "", "y": ""}).usage == "--a x|y"
    assert Option("run", "").usage == "RUN" and Option("run", "", takes_list=True, metavar="ID").usage == "ID ..."
    assert Option("run", "").positional and not Option("--run", "").positional
    shown = [Option("--a", "", default=default).shown_default for default in (None, (), 0, False, "x")]
    assert shown == ["", "", "0", "False", "x"]
    assert Option("--a", "", default=3, default_text="as many as there are").shown_default == "as many as there are"
