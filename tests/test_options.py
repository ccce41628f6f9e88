"""The table of options: what a line means, and what is said about one that means nothing."""

import pytest
from IPython.core.error import UsageError
from traitlets import TraitError

from ddl_magics import options
from ddl_magics.config import Distributed, configured
from ddl_magics.option_help import help_text, markdown_table
from ddl_magics.parsing import parse, wants_help
from ddl_magics.spec import NO_OPTIONS, RunSpec


def refusal(line, defaults=None):
    with pytest.raises(UsageError) as caught:
        parse(line, defaults)
    message = str(caught.value)
    assert "\n" not in message
    return message


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


def test_defaults_of_ps_and_of_data():
    assert parse("--strategy ps --workers 3").window == 3
    assert parse("--data d").batch_size == options.DEFAULT_BATCH_SIZE
    assert parse("--strategy single").workers == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--worker 2", "no option --worker. Did you mean --workers?"),
        ("--batchsize 2", "Did you mean --batch-size?"),
        ("--zzz", "no option --zzz. See %%distributed --help."),
        ("workers 2", "'workers' is not an option: options start with two dashes. Did you mean --workers?"),
        ("--workers four", "--workers wants a whole number above 0, not 'four'."),
        ("--workers 0", "--workers wants a whole number above 0, not '0'."),
        ("--workers", "--workers wants a value: --workers N."),
        ("--workers 2 --workers 3", "--workers is given twice."),
        ("--workers 2 3", "'3' is not an option"),
        ("--strategy allreduced", "Did you mean allreduce?"),
        ("--strategy ps --rule adagg", "Did you mean adag?"),
        ("--strategy ps --rule aeasgd:alhpa=1", "the rule aeasgd has no setting 'alhpa'; did you mean alpha?"),
        ("--strategy ps --rule aeasgd:alpha=x", "--rule: alpha of the rule aeasgd must be a number above 0, not 'x'."),
        ("--validation 1.5", "--validation wants a share between 0 and 1, or the name of a DataFrame, not '1.5'."),
        ("--timeout soon", "--timeout wants seconds"),
        ("--name 2nd", "--name wants a Python name"),
        ("--name class", "--name wants a Python name"),
        ("--seed -1", "--seed wants a whole number from 0"),
        ("--conf memory", "--conf wants key=value"),
        ("--out ''", "--out wants a folder, such as hdfs:///models/mnist, not ''."),
        ("--out s3a://me:hidden@bucket/x", "a URI with a password in it would be stored with it: set it in Hadoop's"),
        ("--strategy tf-ps --checkpoint hdfs:///x", "--checkpoint belongs to --strategy allreduce or ps or average"),
        ("--wait --no-wait", "--wait and --no-wait exclude each other."),
        ("--wait=yes", "--wait takes no value."),
        ("--name 'a", "cannot read the options: no closing quotation"),
        ("--window 3", "--window belongs to an update rule, and --strategy allreduce is given none"),
        ("--ps 2", "--ps belongs to --strategy ps or tf-ps; this is --strategy allreduce."),
        ("--strategy ps --rule easgd", "--rule easgd belongs to --strategy allreduce; this is --strategy ps."),
        ("--strategy average --rule adag", "--rule adag belongs to --strategy ps"),
        ("--rule adag", "--rule adag belongs to --strategy ps; this is --strategy allreduce."),
        ("--label y", "--label belongs to --data, which is not given."),
        ("--batch-size 3", "--batch-size belongs to --data"),
        ("--data d --features a y --label y", "column 'y' is both in --features and the --label."),
        ("--data d --validation d", "--validation and --data name the same DataFrame"),
        ("--strategy tf-ps --data df", "--data gives a dataset to each worker"),
        ("--strategy tf-allreduce --ps 2", "--ps belongs to --strategy ps or tf-ps; this is --strategy tf-allreduce."),
        ("--strategy single --workers 2", "--strategy single is one worker"),
    ],
)
def test_mistakes_are_one_line_with_the_nearest_right_name(line, says):
    assert says in refusal(line)


@pytest.mark.parametrize("option", [option for option in options.OPTIONS if option.coming])
def test_an_option_that_is_not_built_is_refused_by_name(option):
    assert refusal(f"{option.flag} x").startswith(f"{option.flag} is not built yet: it comes with")


def test_settings_of_a_rule_stay_with_it():
    assert parse("--strategy ps --rule aeasgd:alpha=0.1").rule == "aeasgd:alpha=0.1"
    assert parse("--strategy ps --rule=downpour").rule == "downpour"


def test_compression_is_for_gradients_between_workers():
    assert parse("--compression bf16").compression == "bf16"
    assert parse("--compression topk:0.05").to_record()["compression"] == "topk:0.05"
    assert parse("").compression is None
    wanted = "--compression wants bf16, or topk with the share of the gradients to send, as in topk:0.01, not 'topk:2'."
    assert refusal("--compression topk:2") == wanted
    assert refusal("--strategy ps --compression bf16").startswith("--compression belongs to --strategy allreduce")
    assert refusal("--rule easgd --compression bf16") == (
        "--compression is for gradients, and --rule easgd exchanges weights."
    )


def test_sync_batchnorm_is_for_batches_of_all_workers():
    assert parse("--sync-batchnorm").to_record()["sync_batchnorm"] is True
    assert parse("").sync_batchnorm is None
    assert refusal("--strategy ps --sync-batchnorm").startswith("--sync-batchnorm belongs to --strategy allreduce")
    assert refusal("--rule easgd --sync-batchnorm") == (
        "--sync-batchnorm is for one batch of all workers, and --rule easgd has none."
    )


def test_a_rule_of_all_reduce():
    spec = parse("--rule easgd:alpha=0.2 --workers 3")
    assert (spec.strategy, spec.rule, spec.window, spec.ps) == ("allreduce", "easgd:alpha=0.2", 3, None)


def test_a_configured_rule_counts_where_it_fits():
    config = Distributed()
    config.rule = "dynsgd"
    assert parse("--strategy ps", configured(config)).rule == "dynsgd"
    assert parse("", configured(config)).rule is None
    config.rule = "easgd"
    assert parse("--strategy ps", configured(config)).rule == options.DEFAULT_RULE
    assert parse("", configured(config)).rule == "easgd"


def test_help_and_documentation_name_every_built_option():
    for option in options.BUILT:
        assert f"  {option.flag}" in help_text()
        assert f"| `{option.flag}" in markdown_table()
    assert all(line.count(" | ") == 2 for line in markdown_table().splitlines() if line.startswith("| `"))
    assert wants_help("--workers 2 --help") and not wants_help("--workers 2")


def test_every_built_option_sets_a_field_of_the_spec():
    assert {option.name for option in options.BUILT} <= set(RunSpec.__dataclass_fields__)


def test_a_field_is_set_by_an_option_or_said_to_be_none():
    """In the order of the spec: the panel is told of those that are none, and takes all others for options."""
    names = {option.name for option in options.OPTIONS}
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


def test_configuration_refuses_what_the_line_refuses():
    config = Distributed()
    with pytest.raises(TraitError, match="--workers wants a whole number above 0, not 'four'"):
        config.workers = "four"
    with pytest.raises(TraitError, match="--rule has no value 'sgd'"):
        config.rule = "sgd"
