"""The table of options: the run that a line asks for, and the messages about lines with mistakes."""

import ast
import dataclasses

import pytest
from support import rooms
from support.refusals import refusal
from traitlets import TraitError

from ddl_magics.notebook.config import Distributed, configured
from ddl_magics.options import table
from ddl_magics.options.help import help_text, markdown_table
from ddl_magics.options.line import cell_of
from ddl_magics.options.parsing import parse
from ddl_magics.options.words import split, wants_help
from ddl_magics.runtime.run_spec import NO_OPTIONS, RunSpec


def test_nothing_given_is_two_workers_in_all_reduce():
    spec = parse("")
    assert (spec.strategy, spec.workers, spec.rule, spec.window) == ("allreduce", 2, None, None)
    assert (spec.data, spec.batch_size, spec.seed, spec.timeout, spec.wait) == (None, None, None, None, None)


def test_a_full_line():
    spec = parse(
        "--strategy ps --rule adag --workers 4 --window 7 --data train_df --features 'my col,b' c --label=y "
        "--batch-size 64 --validation 0.25 --name digits --seed 3 --no-wait --timeout 10m "
        "--conf a.b=1 --conf c=x=y # end"
    )
    assert spec == RunSpec(
        name="digits",
        strategy="ps",
        rule="adag",
        ps=1,
        workers=4,
        window=7,
        data="train_df",
        features=("my col", "b", "c"),
        label="y",
        batch_size=64,
        validation=0.25,
        cache="on",
        seed=3,
        timeout=600,
        conf={"a.b": "1", "c": "x=y"},
        wait=False,
    )


def test_a_record_holds_what_the_driver_wants_and_reads_back():
    spec = parse("--data d --features a b --label y --wait")
    record = spec.to_record()
    assert record["features"] == ["a", "b"] and "wait" not in record
    assert RunSpec.from_record({**record, "of_a_later_version": 1}) == parse("--data d --features a b --label y")


def test_windows_of_a_time_series():
    line = "--data d --sequence-length 24 --order-by time --group-by city,line --features x y --label y --horizon 3"
    spec = parse(line + " --sequence-stride 2 --validation 2012-06-30")
    assert (spec.sequence_length, spec.order_by, spec.horizon, spec.sequence_stride) == (24, "time", 3, 2)
    assert (spec.group_by, spec.label, spec.validation) == (("city", "line"), "y", "2012-06-30")
    assert RunSpec.from_record(spec.to_record()) == spec


def test_a_record_of_010_reads_under_the_fields_of_today():
    assert (parse("--reference").reference, parse("--no-reference").reference) == (True, False)
    record = parse("--no-prewarm").to_record()
    record["spare"] = record.pop("prewarm")
    assert RunSpec.from_record(record).prewarm is False


def test_defaults_of_ps_and_of_data():
    assert parse("--strategy ps --workers 3").window == 3
    assert parse("--strategy ps --workers 2..3").window is None, "it follows the number of workers"
    assert parse("--data d").batch_size == table.BY_FLAG["--batch-size"].default == 32
    assert parse("--strategy single").workers == 1


def test_names_with_spaces_are_quoted():
    spec = parse(
        """--data t --features 'mean radius' "mean area",'worst area' --label 'the kind' --weight "of a row" """
    )
    assert (spec.features, spec.label, spec.weight) == (
        ("mean radius", "mean area", "worst area"),
        "the kind",
        "of a row",
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--worker 2", "no option --worker. Did you mean --workers?"),
        ("--batchsize 2", "Did you mean --batch-size?"),
        ("--zzz", "no option --zzz. See %%distributed --help."),
        ("--name my run", "--name must be a Python name (letters, digits, underscores), such as my_run, not 'my run'."),
        (
            "--data hdfs:///a b.csv",
            "b.csv follows the value of --data: quote a value of several words, 'hdfs:///a b.csv'.",
        ),
        ("--timeout 5 minutes", "--timeout 5 minutes: write --timeout 5m."),
        ("--timeout=2 h", "--timeout 2 h: write --timeout 2h."),
        ("--workers 2 minutes", "'minutes' is not an option"),
        ("workers 2", "'workers' is not an option: options start with two dashes. Did you mean --workers?"),
        ("--workers four", "--workers must be a whole number above 0, not 'four'."),
        ("--workers 0", "--workers must be a whole number above 0, not '0'."),
        ("--workers", "--workers needs a value: --workers N."),
        ("--workers 4..2", "--workers must be a whole number above 0, or MIN..MAX such as 2..4, not '4..2'."),
        ("--workers 2..", "--workers must be a whole number above 0, or MIN..MAX such as 2..4, not '2..'."),
        ("--workers 0..2", "--workers must be a whole number above 0, or MIN..MAX such as 2..4, not '0..2'."),
        (
            "--workers 1..2 --strategy ensemble",
            "--workers 1..2 applies only to --strategy allreduce or average or ps: name one number of workers.",
        ),
        ("--workers 2 --workers 3", "--workers is given twice: leave one of them out."),
        ("--workers 2 3", "'3' is not an option"),
        ("--strategy allreduced", "Did you mean allreduce?"),
        ("--strategy ps --rule adagg", "Did you mean adag?"),
        ("--strategy ps --rule aeasgd:alhpa=1", "the rule aeasgd has no setting 'alhpa'; did you mean alpha?"),
        ("--strategy ps --rule aeasgd:alpha=x", "--rule: alpha of the rule aeasgd must be a number above 0, not 'x'."),
        ("--validation 1", "--validation must be a share between 0 and 1"),
        ("--validation 0", "--validation must be a share between 0 and 1"),
        (
            "--validation 1.5",
            "--validation must be a share between 0 and 1, the name of a DataFrame or, with --order-by,",
        ),
        (
            "--validation 2012-13-01",
            "--validation must be a date such as 2012-06-30 or 2012-06-30T18:00, not '2012-13-01'",
        ),
        ("--data d --validation 2012-01-01", "--validation takes a date only with --sequence-length and --order-by"),
        ("--data d --sequence-length 3", "--sequence-length needs --order-by: add it, or leave --sequence-length out."),
        ("--data d --order-by t --label y", "--order-by needs --sequence-length: add it, or leave --order-by out."),
        ("--data d --label y --horizon 2", "--horizon needs --sequence-length: add it, or leave --horizon out."),
        ("--data d --sequence-length 3 --order-by t --horizon 2", "--horizon needs --label: it says which row has the"),
        ("--data d --sequence-length 3 --order-by t --horizon -1", "--horizon must be a whole number, 0 or above, not"),
        (
            "--data d --sequence-length 3 --order-by t --horizon 0 --features y --label y",
            "column 'y' is both in --features and the --label: leave it out of",
        ),
        (
            "--data sales/a.parquet",
            "--data must be files with the scheme of their storage, such as hdfs:///sales/*.parq",
        ),
        (
            "--data table.csv.gz",
            "--data must be files with the scheme of their storage, such as hdfs:///sales/*.parq",
        ),
        ("--data a-b", "--data must be a Python name (letters, digits, underscores), such as a_b, not 'a-b'."),
        (
            "--data s3a://me:hidden@bucket/x.parquet",
            "the URI holds a password, which would be stored: set it in Hadoop",
        ),
        ("--where x>1", "--where needs --data: add it, or leave --where out."),
        ("--timeout soon", "--timeout must be seconds"),
        ("--name 2nd", "--name must be a Python name"),
        ("--name class", "--name must be a name of your own (class is a word of Python)"),
        ("--name “my run”", "--name must be a Python name (letters, digits, underscores), such as my, not '“my'."),
        (
            "--workers 2 \\",
            "cannot read the options (no escaped character): write all options in one line, without \\.",
        ),
        ("-n 2", "'-n' is not an option: options start with two dashes. Did you mean --workers?"),
        ("--epochs 5", "no option --epochs. It is an argument of model.fit, in the cell."),
        ("--learning_rate 0.1", "no option --learning_rate. It is an argument of the optimizer, in the cell."),
        (
            "--strategy parameter-server",
            "it takes allreduce, ps, average, ensemble, single, tf-allreduce, tf-ps. Did you",
        ),
        ("--seed -1", "--seed must be a whole number from 0"),
        ("--conf memory", "--conf must be key=value"),
        ("--out ''", "--out must be a folder, such as hdfs:///models/mnist, not ''."),
        (
            "--mlflow https://dapi0123@host/api",
            "the URI holds a user name or a token, which would be stored: set it",
        ),
        ("--out s3a://me:hidden@bucket/x", "the URI holds a password, which would be stored: set it in Hadoop's"),
        ("--out abfss://c@a.net/x?sig=hidden", "the URI has a query, which may hold a signature: set that in Hadoop's"),
        (
            "--strategy tf-ps --checkpoint hdfs:///x",
            "--checkpoint applies only to --strategy allreduce or ps or average",
        ),
        ("--wait --no-wait", "--wait and --no-wait exclude each other."),
        ("--no-prewarm --prewarm", "--prewarm and --no-prewarm exclude each other."),
        ("--no-spare", "--no-spare is called --no-prewarm now."),
        ("--wait=yes", "--wait takes no value."),
        ("--name 'a", "cannot read the options (no closing quotation): close the quotation."),
        ("--window 3", "--window needs --rule: add it, or leave --window out."),
        ("--strategy average --window 3", "--window applies only to --strategy allreduce or ps, not to average."),
        ("--ps 2", "--ps applies only to --strategy ps or tf-ps, not to allreduce."),
        ("--strategy ps --rule easgd", "--rule easgd applies only to --strategy allreduce, not to ps."),
        ("--strategy average --rule adag", "--rule adag applies only to --strategy ps, not to average."),
        ("--rule adag", "--rule adag applies only to --strategy ps, not to allreduce."),
        ("--label y", "--label needs --data: add it, or leave --label out."),
        ("--batch-size 3", "--batch-size needs --data"),
        ("--data d --features a y --label y", "column 'y' is both in --features and the --label: leave it out of"),
        ("--data d --features a w --label y --weight w", "column 'w' is both in --features and the --weight: leave it"),
        ("--data d --label y --weight y", "--weight and --label name the same column 'y'"),
        ("--data d --weight w", "--weight needs --label: add it, or leave --weight out."),
        ("--data d --validation d", "--validation and --data name the same DataFrame"),
        ("--strategy tf-ps --data df", "--data cannot be combined with --strategy tf-ps: its cell runs on the coord"),
        ("--strategy tf-allreduce --ps 2", "--ps applies only to --strategy ps or tf-ps, not to tf-allreduce."),
        ("--strategy single --workers 2", "--strategy single is one worker"),
        ("--target loss<1", "--target must be a metric and a number, such as val_accuracy:0.98 or loss:0.1, not"),
        (
            "--compression topk:2",
            "--compression must be bf16, or topk with the share of the gradients to send, as in "
            "topk:0.01, not 'topk:2'.",
        ),
        ("--strategy ps --compression bf16", "--compression applies only to --strategy allreduce, not to ps."),
        (
            "--rule easgd --compression bf16",
            "--compression cannot be combined with --rule easgd: compression is for gradients, and a rule exchanges "
            "weights; leave one of them out.",
        ),
        ("--feed all", "--feed has no value 'all'; it takes auto, chief, each."),
        ("--strategy ps --feed chief", "--feed applies only to --strategy allreduce, not to ps."),
        ("--gather maybe", "--gather has no value 'maybe'; it takes auto, yes, no."),
        ("--strategy ps --gather yes", "--gather applies only to --strategy allreduce, not to ps."),
        ("--strategy ps --sync-noise", "--sync-noise applies only to --strategy allreduce, not to ps."),
        (
            "--data rows --sync-noise",
            "--sync-noise cannot be combined with --data rows: a worker has only its own rows",
        ),
        ("--strategy ps --sync-batchnorm", "--sync-batchnorm applies only to --strategy allreduce, not to ps."),
        (
            "--rule easgd --sync-batchnorm",
            "--sync-batchnorm cannot be combined with --rule easgd: with a rule the workers have no global batch; "
            "leave one of them out.",
        ),
        (
            "--target score:0.9",
            "the metric's name does not say which is better, such as score:0.9:max, not 'score:0.9'.",
        ),
        (
            "--trials 4 --objective loss:min --target loss:1",
            "--target cannot be combined with --trials 4: a search compares what its trials reach; stop it with",
        ),
        ("--strategy ensemble --resume digits", "--resume cannot be combined with --strategy ensemble: --resume cont"),
    ],
)
def test_mistakes_are_one_line_with_the_nearest_right_name(line, says):
    assert says in refusal(parse, line)


def test_settings_of_a_rule_stay_with_it():
    assert parse("--strategy ps --rule aeasgd:alpha=0.1").rule == "aeasgd:alpha=0.1"
    assert parse("--strategy ps --rule=downpour").rule == "downpour"


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("--compression bf16", "compression", "bf16"),
        ("--compression topk:0.05", "compression", "topk:0.05"),
        ("--feed chief", "feed", "chief"),
        ("--gather no", "gather", "no"),
        ("--sync-noise", "sync_noise", True),
        ("--sync-batchnorm", "sync_batchnorm", True),
    ],
)
def test_an_option_of_all_reduce_goes_to_the_driver(line, field, value):
    assert parse(line).to_record()[field] == value and getattr(parse(""), field) is None


def test_a_rule_of_all_reduce():
    spec = parse("--rule easgd:alpha=0.2 --workers 3")
    assert (spec.strategy, spec.rule, spec.window, spec.ps) == ("allreduce", "easgd:alpha=0.2", 3, None)


def test_configured_settings_of_spark_stay_beside_those_of_the_line():
    config = Distributed()
    config.conf = {"spark.network.crypto.enabled": "true", "spark.executor.memory": "1g"}
    conf = parse("--conf spark.executor.memory=4g", configured(config)).conf
    assert conf == {"spark.network.crypto.enabled": "true", "spark.executor.memory": "4g"}


def test_a_configured_rule_counts_where_it_fits():
    config = Distributed()
    config.rule = "dynsgd"
    assert parse("--strategy ps", configured(config)).rule == "dynsgd"
    assert parse("", configured(config)).rule is None
    config.rule = "easgd"
    assert parse("--strategy ps", configured(config)).rule == table.DEFAULT_RULE
    assert parse("", configured(config)).rule == "easgd"


def test_a_range_of_workers_may_be_configured():
    config = Distributed()
    config.workers = "1..4"
    spec = parse("", configured(config))
    assert (spec.min_workers, spec.workers, spec.bounds) == (1, 4, "1..4")
    assert parse("--workers 2", configured(config)).min_workers is None
    for line, workers in (("--strategy single", 1), ("--strategy ensemble", 4), ("--trials 2 --objective loss:min", 4)):
        spec = parse(line, configured(config))
        assert (spec.min_workers, spec.workers) == (None, workers), "where it does not apply"
    config.workers = 3
    assert parse("", configured(config)).bounds == "3"


def test_help_and_documentation_name_every_built_option():
    for option in table.OPTIONS:
        assert f"  {option.flag}" in help_text()
        assert f"| `{option.flag}" in markdown_table()
    assert all(line.count(" | ") == 2 for line in markdown_table().splitlines() if line.startswith("| `"))
    assert "\n  --strategy allreduce|ps|" in help_text() and "\n  --workers N\n" in help_text()
    assert "Default: None" not in help_text() and "Default: ()" not in help_text()
    assert wants_help(["--workers", "2", "--help"]) and not wants_help(["--workers", "2"])


def test_every_built_option_sets_a_field_of_the_spec():
    assert {option.name for option in table.OPTIONS} <= set(RunSpec.__dataclass_fields__)


def test_a_name_with_a_comma_has_a_backslash_before_it():
    spec = parse(r"--data df --features 'Population\, total',a 'b\,' --label y")
    assert spec.features == ("Population, total", "a", "b,")
    assert parse(cell_of(spec).partition("\n")[0].removeprefix("%%distributed")).features == spec.features


def test_a_field_is_set_by_an_option_or_listed_as_no_option():
    """In the order of the spec. The panel gets the list, and takes all other fields for options."""
    names = {option.name for option in table.OPTIONS}
    assert tuple(name for name in RunSpec.__dataclass_fields__ if name not in names) == NO_OPTIONS


def test_configuration_gives_defaults_and_the_line_wins():
    config = Distributed()
    config.workers = 4
    config.wait = True
    config.conf = {"spark.executor.memory": "2g"}
    config.window = 9
    spec = parse("", configured(config))
    assert (spec.workers, spec.wait, spec.conf) == (4, True, {"spark.executor.memory": "2g"})
    assert spec.window is None, "a default for ps says nothing about all-reduce"
    assert parse("--strategy ps --workers 3", configured(config)).window == 9
    assert parse("--strategy single", configured(config)).workers == 1


def test_a_configured_value_counts_only_where_its_option_applies():
    config = Distributed()
    config.compression, config.batch_size, config.ps = "bf16", 64, 2
    assert parse("", configured(config)).compression == "bf16"
    assert parse("--strategy ps", configured(config)).compression is None
    assert parse("--rule easgd", configured(config)).compression is None
    assert (parse("", configured(config)).ps, parse("--strategy tf-ps", configured(config)).ps) == (None, 2)
    assert (parse("", configured(config)).batch_size, parse("--data d", configured(config)).batch_size) == (None, 64)
    with pytest.raises(TraitError, match="prewarm must be True or False, not 'no'"):
        config.prewarm = "no"


def test_configuration_refuses_what_the_line_refuses():
    config = Distributed()
    with pytest.raises(TraitError, match="--workers must be a whole number above 0, not 'four'"):
        config.workers = "four"
    with pytest.raises(TraitError, match="--rule has no value 'sgd'"):
        config.rule = "sgd"


def test_a_search():
    spec = parse("--trials 40 --objective val_accuracy:max --parallel 4 --set act=relu --timeout 2h")
    assert (spec.trials, spec.search, spec.prune, spec.parallel) == (40, "tpe", "asha", 4)
    assert (spec.workers, spec.strategy, spec.set) == (1, "single", {"act": "relu"})
    spec = parse("--trials 9 --objective loss:min --workers 2 --search cmaes --prune no")
    assert (spec.workers, spec.strategy, spec.search, spec.prune) == (2, "allreduce", "cmaes", "no")
    assert parse("--trials 9 --objective a:b:min", {"workers": 3}).workers == 3
    assert parse("--trials 9 --objective loss:min --strategy ps").strategy == "ps"
    assert parse("").search is None, "an ordinary run"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--trials 4", "--trials needs --objective, such as --objective val_accuracy:max."),
        ("--objective loss:min", "--objective needs --trials: add it, or leave --objective out."),
        ("--trials 4 --objective loss", "a metric and its direction, such as val_accuracy:max"),
        ("--trials 4 --objective loss:min --search tp", "Did you mean tpe?"),
        ("--trials 4 --objective loss:min --out hdfs:///m", "--trials cannot be combined with --out"),
        ("--trials 4 --objective loss:min --resume a", "--trials cannot be combined with --resume"),
        ("--set lr", "--set must be name=value, such as lr=0.01"),
        ("--set lr=0.1 --set lr=0.2", "--set lr is given twice: leave one of them out."),
    ],
)
def test_what_a_search_needs(line, words):
    assert words in refusal(parse, line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--workers 2  # don't wait", ["--workers", "2"]),
        ("--where '#flag = 1' --workers 2 #no", ["--where", "#flag = 1", "--workers", "2"]),
        ("# all of it", []),
        ("a#b 'c d'", ["a#b", "c d"]),
    ],
)
def test_a_comment_ends_the_line_and_may_have_an_apostrophe(line, expected):
    assert split(line) == expected


def test_each_field_of_the_spec_is_read_outside_of_the_options():
    reads = {
        node.attr
        for module, tree in rooms.trees().items()
        if not str(module).startswith(("ddl_magics/options", "ddl_magics/runtime/run_spec"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    unread = [field.name for field in dataclasses.fields(RunSpec) if field.name not in reads]
    assert not unread, "these options have no effect"
