"""The one table of `%%distributed` options: parsing, help, completion, configuration and documentation read it.

Options whose engine is not built yet stand in the table with what will bring them, so that they are refused by name and
not as typing errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddl_magics.option_values import (
    read_compression,
    read_count,
    read_identifier,
    read_rule,
    read_seconds,
    read_seed,
    read_setting,
    read_uri,
    read_validation,
)
from ddl_magics.runtime import rule, rules
from ddl_magics.runtime.verdict import ATTEMPTS
from ddl_magics.spec import RunSpec

DEFAULT_WORKERS = RunSpec.workers
DEFAULT_BATCH_SIZE = 32
DEFAULT_RULE = "adag"

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


def _meaning(kind: rule.Kind) -> str:
    return "; ".join([kind.help, *(f"{s.name} = {s.default}: {s.help}" for s in kind.settings)])


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
    Option("--workers", "number of training processes", read_count, metavar="N", default=DEFAULT_WORKERS),
    Option(
        "--rule",
        "update rule: of the parameter server, or easgd with allreduce; its settings follow from the job and can be "
        "given, as in aeasgd:alpha=0.1",
        read_rule,
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
        read_count,
        metavar="N",
        default=1,
        only="ps tf-ps",
    ),
    Option(
        "--window", "batches between two exchanges of an update rule", read_count, metavar="N", default="one a worker"
    ),
    Option(
        "--data",
        "DataFrame that becomes `dataset` in the cell: every row once an epoch, shared out among the workers",
        read_identifier,
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
        read_count,
        metavar="N",
        default=DEFAULT_BATCH_SIZE,
        needs="--data",
    ),
    Option(
        "--validation",
        "share of the rows (0.2), or a second DataFrame, that becomes `validation`",
        read_validation,
        metavar="SHARE|DATAFRAME",
        needs="--data",
        config=False,
    ),
    Option(
        "--name",
        "name of the run and of the variable that holds it",
        read_identifier,
        metavar="NAME",
        default="run_1, run_2, ...",
        config=False,
    ),
    Option("--seed", "seed of all workers", read_seed, metavar="N", default="drawn"),
    Option(
        "--wait",
        "wait for the end of the run; the default where nobody can click (nbclient, papermill, scripts, a terminal)",
        value=("wait", True),
    ),
    Option("--no-wait", "return at once and train in the background: the default in a notebook", value=("wait", False)),
    Option("--timeout", "stop the run after this time: seconds, or 90s, 10m, 2h", read_seconds, metavar="TIME"),
    Option(
        "--conf",
        "setting of a Spark session that is made for the run; may be repeated",
        read_setting,
        metavar="KEY=VALUE",
        repeats=True,
    ),
    Option(
        "--send",
        "variables of the notebook, a,b,c or a b c, that become variables of the Livy session: numbers, text, lists, "
        "dicts, NumPy arrays up to half a megabyte; nothing secret, as Livy logs them",
        read_identifier,
        metavar="NAMES",
        many=True,
        config=False,
    ),
    Option(
        "--out",
        "folder where the cluster writes the model, its weights, the result's file and the history instead of sending "
        "them to the notebook: hdfs:///models/mnist, abfs://..., s3a://..., file:///...; it must be new or empty",
        read_uri,
        metavar="URI",
        config=False,
    ),
    Option(
        "--compression",
        "send gradients between hosts in fewer bytes: rounded to bfloat16, or the largest only, here a hundredth; what "
        "is left out is added to those of the next step. Left out where all workers are on one machine",
        read_compression,
        metavar="bf16|topk:0.01",
        only="allreduce",
    ),
    Option(
        "--sync-batchnorm",
        "statistics of every BatchNormalization are those of the whole global batch, as in one process, not of each "
        "worker's part of it: two small exchanges more for each layer and step; without it, of those layers that say "
        "synchronized=True",
        only="allreduce",
        value=("sync_batchnorm", True),
    ),
    Option(
        "--gpus",
        "GPUs for each worker, of those that Spark manages (spark.executor.resource.gpu.amount); without it a worker "
        "uses what Spark gives its tasks, else the GPUs that it finds",
        read_count,
        metavar="N",
    ),
    Option(
        "--attempts",
        "how often workers are started in all, when some are killed: each time from the last checkpoint",
        read_count,
        metavar="N",
        default=ATTEMPTS,
    ),
    Option(
        "--checkpoint-every",
        "steps between two checkpoints, from which the driver starts killed workers again",
        read_count,
        metavar="N",
        default="an epoch",
        only="allreduce",
    ),
    Option(
        "--checkpoint",
        "folder to which the cluster copies the run's checkpoints, so that --resume finds them when session and driver "
        "are gone: hdfs:///checkpoints, abfs://..., s3a://..., file:///...; each run has a folder of its own in it",
        read_uri,
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
