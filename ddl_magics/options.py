"""The one table of `%%distributed` options: parsing, help, completion, configuration and documentation read it.

`OPTIONS` is the truth. `parse` turns a magic's line into a frozen `RunSpec` or raises a `UsageError` of one line that
names the nearest right word. Options whose engine is not built yet stand in the table with what will bring them, so
that they are refused by name and not as typing errors.
"""

from __future__ import annotations

import difflib
import keyword
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from IPython.core.error import UsageError

from ddl_magics.runtime import compression, rule, rules
from ddl_magics.runtime.strategies import TF_PS
from ddl_magics.runtime.verdict import ATTEMPTS
from ddl_magics.spec import RunSpec

DEFAULT_WORKERS = RunSpec.workers
DEFAULT_BATCH_SIZE = 32
DEFAULT_RULE = "adag"
SEED_LIMIT = 2**31

_LATER = "comes with a later release"


@dataclass(frozen=True)
class Option:
    """A row of the table.

    Attributes:
        flag: as typed, with its dashes.
        help: one sentence.
        read: makes the value from its text; its ValueError says what is wanted.
        metavar: the value in the help; empty for a switch.
        default: value when neither the line nor the configuration gives one, as shown in the help.
        choices: the values there are, if they can be listed.
        meanings: what each choice means, where its name does not say it.
        settings: names of what may follow a choice, as `CHOICE:name=value,name=value`.
        many: takes several values ("a,b,c" or "a b c").
        repeats: may be given more than once, as `key=value`.
        needs: flag without which it means nothing.
        only: the strategies that it belongs to, with spaces between them.
        value: what a switch sets, and the field it sets, when it is not the flag's own.
        config: may be set by `%config Distributed.<name>`.
        coming: for an option that is not built: what brings it.
    """

    flag: str
    help: str
    read: Callable[[str], Any] = str
    metavar: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    meanings: Mapping[str, str] = field(default_factory=dict)
    settings: Callable[[str], tuple[str, ...]] | None = None
    many: bool = False
    repeats: bool = False
    needs: str = ""
    only: str = ""
    value: tuple[str, Any] | None = None
    config: bool = True
    coming: str = ""

    @property
    def name(self) -> str:
        """The field of `RunSpec` that the option sets."""
        return self.value[0] if self.value else self.flag.lstrip("-").replace("-", "_")


def nearest(word: str, words: Iterable[str]) -> str:
    """' Did you mean ...?' for the closest of `words`, or '' when none is close."""
    by_lower = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]}?" if close else ""


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise ValueError("a whole number above 0")
    return int(text)


def _compression(text: str) -> str:
    compression.read(text)
    return text


def _seed(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) >= SEED_LIMIT:
        raise ValueError(f"a whole number from 0 to {SEED_LIMIT - 1}")
    return int(text)


def _identifier(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ValueError("a Python name (letters, digits, underscores)")
    return text


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|)", text)
    if not match or float(match[1]) <= 0:
        raise ValueError("seconds, or a time such as 90s, 10m, 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _validation(text: str) -> float | str:
    try:
        share = float(text)
    except ValueError:
        if text.isidentifier():
            return text
    else:
        if 0 < share < 1:
            return share
    raise ValueError("a share between 0 and 1, or the name of a DataFrame")


def _uri(text: str) -> str:
    parts = urlsplit(text)
    if parts.password:
        # Not as a ValueError, whose message would show it.
        raise UsageError("a URI with a password in it would be stored with it: set it in Hadoop's configuration.")
    if not parts.netloc and not parts.path:
        raise ValueError("a folder, such as hdfs:///models/mnist")
    return text


def _rule(text: str) -> str:
    try:
        rules.read(text)
    except rule.UnknownRule as error:
        raise UsageError(f"--rule: {error}") from None
    return text


def _meaning(kind: rule.Kind) -> str:
    return "; ".join([kind.help, *(f"{s.name} = {s.default}: {s.help}" for s in kind.settings)])


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError("key=value, such as spark.executor.memory=4g")
    return key.strip(), value.strip()


STRATEGIES: Mapping[str, str] = {
    "allreduce": "every step is the one that a single process would make with the whole batch",
    "ps": "an asynchronous parameter server: nobody waits for anybody",
    "average": "each worker trains an epoch by itself, then all take the mean of their weights",
    "ensemble": "each worker trains a model of its own, with a seed of its own, and all models come back",
    "single": "the plain cell in one executor",
    "tf-allreduce": "for cells written for tf.distribute: `strategy` is a MultiWorkerMirroredStrategy of all workers",
    "tf-ps": "for cells written for tf.distribute: `strategy` is a ParameterServerStrategy, and the cell runs on its "
    "coordinator",
}

OPTIONS: tuple[Option, ...] = (
    Option(
        "--strategy",
        "how the workers train together",
        metavar="NAME",
        default="allreduce",
        choices=tuple(STRATEGIES),
        meanings=STRATEGIES,
    ),
    Option("--workers", "number of training processes", _count, metavar="N", default=DEFAULT_WORKERS),
    Option(
        "--rule",
        "update rule: of the parameter server, or easgd with allreduce; its settings follow from the job and can be "
        "given, as in aeasgd:alpha=0.1",
        _rule,
        metavar="NAME",
        default=f"{DEFAULT_RULE} for ps",
        choices=tuple(rules.names()),
        meanings={name: _meaning(rules.KINDS[name]) for name in rules.names()},
        settings=lambda name: tuple(setting.name for setting in rules.KINDS[name].settings),
    ),
    Option(
        "--ps",
        "number of parameter servers, each with a part of the model: processes beside the driver, those of tf-ps "
        "beside the workers",
        _count,
        metavar="N",
        default=1,
        only="ps tf-ps",
    ),
    Option("--window", "batches between two exchanges of an update rule", _count, metavar="N", default="one a worker"),
    Option(
        "--data",
        "DataFrame that becomes `dataset` in the cell: every row once an epoch, shared out among the workers",
        _identifier,
        metavar="DATAFRAME",
        config=False,
    ),
    Option(
        "--features",
        "feature columns, a,b,c or a b c; all but the label if not given",
        metavar="COLUMNS",
        many=True,
        needs="--data",
        config=False,
    ),
    Option("--label", "label column", metavar="COLUMN", needs="--data", config=False),
    Option(
        "--batch-size",
        "rows in a batch of `dataset`: the global batch for allreduce and tf-allreduce, else each worker's",
        _count,
        metavar="N",
        default=DEFAULT_BATCH_SIZE,
        needs="--data",
    ),
    Option(
        "--validation",
        "share of the rows (0.2), or a second DataFrame, that becomes `validation`",
        _validation,
        metavar="SHARE|DATAFRAME",
        needs="--data",
        config=False,
    ),
    Option(
        "--name",
        "name of the run and of the variable that holds it",
        _identifier,
        metavar="NAME",
        default="run_1, run_2, ...",
        config=False,
    ),
    Option("--seed", "seed of all workers", _seed, metavar="N", default="drawn"),
    Option(
        "--wait",
        "wait for the end of the run; the default where nobody can click (nbclient, papermill, scripts, a terminal)",
        value=("wait", True),
    ),
    Option("--no-wait", "return at once and train in the background: the default in a notebook", value=("wait", False)),
    Option("--timeout", "stop the run after this time: seconds, or 90s, 10m, 2h", _seconds, metavar="TIME"),
    Option(
        "--conf",
        "setting of a Spark session that is made for the run; may be repeated",
        _setting,
        metavar="KEY=VALUE",
        repeats=True,
    ),
    Option(
        "--send",
        "variables of the notebook, a,b,c or a b c, that become variables of the Livy session: numbers, text, lists, "
        "dicts, NumPy arrays up to half a megabyte; nothing secret, as Livy logs them",
        _identifier,
        metavar="NAMES",
        many=True,
        config=False,
    ),
    Option(
        "--out",
        "folder where the cluster writes the model, its weights, the result's file and the history instead of sending "
        "them to the notebook: hdfs:///models/mnist, abfs://..., s3a://..., file:///...; it must be new or empty",
        _uri,
        metavar="URI",
        config=False,
    ),
    Option(
        "--compression",
        "send gradients between hosts in fewer bytes: rounded to bfloat16, or the largest only, here a hundredth; what "
        "is left out is added to those of the next step. Left out where all workers are on one machine",
        _compression,
        metavar="bf16|topk:0.01",
        only="allreduce",
    ),
    Option(
        "--gpus",
        "GPUs for each worker, of those that Spark manages (spark.executor.resource.gpu.amount); without it a worker "
        "uses what Spark gives its tasks, else the GPUs that it finds",
        _count,
        metavar="N",
    ),
    Option(
        "--attempts",
        "how often workers are started in all, when some are killed: each time from the last checkpoint",
        _count,
        metavar="N",
        default=ATTEMPTS,
    ),
    Option(
        "--checkpoint-every",
        "steps between two checkpoints, from which the driver starts killed workers again",
        _count,
        metavar="N",
        default="an epoch",
        only="allreduce",
    ),
    Option(
        "--checkpoint",
        "folder to which the cluster copies the run's checkpoints, so that --resume finds them when session and driver "
        "are gone: hdfs:///checkpoints, abfs://..., s3a://..., file:///...; each run has a folder of its own in it",
        _uri,
        metavar="URI",
        only="allreduce ps average single",
    ),
    Option(
        "--resume",
        "run that failed or was stopped, by its name or id: this one goes on from its last checkpoint, with the cell "
        "as it is now",
        metavar="RUN",
        config=False,
    ),
    Option(
        "--no-spare",
        "leave no process with TensorFlow imported on the executors after the run, and use none: it makes the next "
        "run start sooner, has 0.6 GB, and ends with Spark's worker, a minute after it was last used",
        value=("spare", False),
    ),
    Option("--target", "stop when a metric is reached", metavar="CONDITION", coming=_LATER),
)

BY_FLAG: Mapping[str, Option] = {option.flag: option for option in OPTIONS}
BUILT: tuple[Option, ...] = tuple(option for option in OPTIONS if not option.coming)


def words(line: str) -> list[str]:
    """The line's words as a shell splits them, up to a comment."""
    try:
        split = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"cannot read the options: {str(error).lower()}") from None
    comment = next((i for i, word in enumerate(split) if word.startswith("#")), len(split))
    return split[:comment]


def wants_help(line: str) -> bool:
    return any(word in ("--help", "-h") for word in words(line))


def read_value(option: Option, text: str) -> Any:
    """The value of one word, checked against the table.

    Raises:
        UsageError: the value is not one that the option takes.
    """
    choice = text.partition(":")[0] if option.settings else text
    if option.choices and choice not in option.choices:
        raise UsageError(
            f"{option.flag} has no value {choice!r}; it takes {', '.join(option.choices)}."
            + nearest(choice, option.choices)
        )
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{option.flag} wants {error}, not {text!r}.") from None


def _option(flag: str) -> Option:
    option = BY_FLAG.get(flag)
    if option is None:
        hint = nearest(flag, BY_FLAG) or " See %%distributed --help."
        raise UsageError(f"no option {flag}.{hint}")
    if option.coming:
        raise UsageError(f"{flag} is not built yet: it {option.coming}.")
    return option


def given(line: str) -> dict[str, Any]:
    """The values that the line itself gives, by field name."""
    values: dict[str, Any] = {}
    flags: set[str] = set()
    rest = words(line)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            hint = nearest("--" + word.lstrip("-"), BY_FLAG)
            raise UsageError(f"{word!r} is not an option: options start with two dashes.{hint}")
        flag, equals, attached = word.partition("=")
        option = _option(flag)
        if option.value:
            if equals:
                raise UsageError(f"{flag} takes no value.")
            if option.name in values and values[option.name] != option.value[1]:
                raise UsageError("--wait and --no-wait exclude each other.")
            values[option.name] = option.value[1]
            continue
        if flag in flags and not option.repeats:
            raise UsageError(f"{flag} is given twice.")
        flags.add(flag)
        texts = [attached] if equals else []
        while rest and not rest[0].startswith("--") and (option.many or not texts):
            texts.append(rest.pop(0))
        if option.many:
            texts = [part for text in texts for part in text.split(",") if part]
        if not texts:
            raise UsageError(f"{flag} wants a value: {flag} {option.metavar}.")
        if option.many:
            values[option.name] = tuple(read_value(option, text) for text in texts)
        elif option.repeats:
            key, value = read_value(option, texts[0])
            values.setdefault(option.name, {})[key] = value
        else:
            values[option.name] = read_value(option, texts[0])
    return values


def parse(line: str, defaults: Mapping[str, Any] | None = None) -> RunSpec:
    """The run that a magic's line asks for; `run`, `name`, `cell` and `seed` may still be empty.

    Args:
        line: what follows `%%distributed`.
        defaults: configured values by field name, used where the line says nothing.

    Raises:
        UsageError: of one line, with the nearest right name.
    """
    said = given(line)
    values = {**{k: v for k, v in (defaults or {}).items() if v is not None}, **said}
    strategy = values.get("strategy", "allreduce")
    for option in BUILT:
        if option.name not in said or option.value:
            continue
        owners = option.only.split()
        if owners and strategy not in owners:
            raise UsageError(
                f"{option.flag} belongs to --strategy {' or '.join(owners)}; this is --strategy {strategy}."
            )
        if option.needs and BY_FLAG[option.needs].name not in values:
            raise UsageError(f"{option.flag} belongs to {option.needs}, which is not given.")
    if strategy == "ensemble" and "resume" in said:
        raise UsageError("--resume is of one model, and --strategy ensemble trains several: leave --resume out.")
    if strategy == "single":
        if said.get("workers", 1) != 1:
            raise UsageError("--strategy single is one worker: leave --workers out, or use --strategy allreduce.")
        values["workers"] = 1
    label, features = values.get("label"), values.get("features")
    if label is not None and features is not None and label in features:
        raise UsageError(f"column {label!r} is both in --features and the --label.")
    if isinstance(values.get("validation"), str) and values["validation"] == values.get("data"):
        raise UsageError("--validation and --data name the same DataFrame: give a share such as --validation 0.2.")
    values["rule"] = _rule_for(strategy, said.get("rule"), values.get("rule"))
    if "window" in said and values["rule"] is None:
        raise UsageError(f"--window belongs to an update rule, and --strategy {strategy} is given none: see --rule.")
    if "compression" in said and values["rule"] is not None:
        raise UsageError(f"--compression is for gradients, and --rule {values['rule']} exchanges weights.")
    values["window"] = values.get("window", values.get("workers", DEFAULT_WORKERS)) if values["rule"] else None
    if strategy == TF_PS and "data" in said:
        raise UsageError(
            "--data gives a dataset to each worker, and the cell of --strategy tf-ps runs on the coordinator alone: "
            "read the data in the function for create_per_worker_dataset."
        )
    values["ps"] = values.get("ps", 1) if strategy in ("ps", TF_PS) else None
    values["batch_size"] = values.get("batch_size", DEFAULT_BATCH_SIZE) if values.get("data") else None
    return RunSpec(**values)


def _rule_for(strategy: str, said: str | None, configured: str | None) -> str | None:
    """The rule in force, or None where the strategy works without; a configured one counts where it fits."""
    wanted = said or configured
    owner = rules.KINDS[rules.read(wanted)[0]].strategy if wanted else None
    if said and owner != strategy:
        raise UsageError(f"--rule {said} belongs to --strategy {owner}; this is --strategy {strategy}.")
    return wanted if owner == strategy else DEFAULT_RULE if strategy == "ps" else None


def _usage(option: Option) -> str:
    metavar = "|".join(option.choices) if option.choices else option.metavar
    return f"{option.flag} {metavar}".rstrip()


def help_text() -> str:
    """What `%%distributed --help` prints."""
    lines = ["%%distributed [options]: trains the cell's Keras model on several workers.", ""]
    for option in BUILT:
        default = "" if option.default is None else f" (default: {option.default})"
        lines += [f"  {_usage(option)}", f"      {option.help}{default}"]
        lines += [f"        {choice}: {meaning}" for choice, meaning in option.meanings.items()]
    later = ", ".join(option.flag for option in OPTIONS if option.coming)
    return "\n".join([*lines, "", f"Not built yet: {later}."])


def markdown_table() -> str:
    """The table of the documentation, made from `OPTIONS`."""
    lines = ["| option | meaning | default |", "|---|---|---|"]
    for option in BUILT:
        default = "" if option.default is None else str(option.default)
        usage = _usage(option).replace("|", "\\|")
        lines.append(f"| `{usage}` | {option.help} | {default} |")
    return "\n".join(lines)


def markdown_meanings() -> str:
    """For the documentation: what the values of options mean whose names do not say it."""
    tables: list[str] = []
    for option in BUILT:
        if option.meanings:
            lines = [f"## Values of `{option.flag}`", "", "| value | meaning |", "|---|---|"]
            lines += [f"| `{choice}` | {meaning} |" for choice, meaning in option.meanings.items()]
            tables.append("\n".join(lines))
    return "\n\n".join(tables)
