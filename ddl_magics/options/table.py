"""The table of `%%distributed` options. Parsing, help, completion, configuration and documentation read it.

To add an option, add its row to the tuple of its group in the help, its field to `RunSpec` (runtime/run_spec.py), and
the code that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain

from ddl_magics.options import similar
from ddl_magics.options.option import Option
from ddl_magics.options.values import (
    read_cache,
    read_compression,
    read_count,
    read_data,
    read_horizon,
    read_identifier,
    read_logs,
    read_objective,
    read_padding,
    read_parameter,
    read_rule,
    read_seconds,
    read_seed,
    read_setting,
    read_target,
    read_tracking,
    read_transform,
    read_uri,
    read_validation,
    read_workers,
)
from ddl_magics.runtime.driver.run_result import ATTEMPTS
from ddl_magics.runtime.parameter_server import rule_spec, update_rules
from ddl_magics.runtime.run_spec import RunSpec

DEFAULT_RULE = "adag"


def _meaning(rule: rule_spec.RuleDefinition) -> str:
    return "; ".join([rule.help, *(f"{s.name} = {s.default}: {s.help}" for s in rule.settings)])


STRATEGIES: Mapping[str, str] = {
    "allreduce": "synchronous: every step equals the step of one process with the whole global batch",
    "ps": "asynchronous, through a parameter server: no worker waits for another within an epoch",
    "average": "each worker trains an epoch by itself; then all workers take the mean of their weights",
    "ensemble": "each worker trains a model of its own, with a seed of its own; all models come back",
    "single": "one executor runs the cell unchanged",
    "tf-allreduce": "for cells written for tf.distribute: `strategy` is a MultiWorkerMirroredStrategy of all workers",
    "tf-ps": "for cells written for tf.distribute: `strategy` is a ParameterServerStrategy, and the cell runs on its "
    "coordinator",
}

SEARCHES: Mapping[str, str] = {
    "tpe": "tree-structured Parzen estimator: samples where earlier trials did well",
    "random": "samples each parameter independently of earlier trials",
    "grid": "every combination once; ranges of floats need a step",
    "evolution": "NSGA-II: recombines and mutates the best trials",
    "cmaes": "CMA-ES: adapts a normal distribution; for two or more numeric parameters",
}
PRUNERS: Mapping[str, str] = {
    "asha": "asynchronous successive halving: after 1, 3, 9, ... epochs only the best third of the trials continues",
    "median": "ends a trial that is worse than the median of the earlier trials at the same epoch",
    "hyperband": "successive halving in several brackets, some of which let trials train longer before they decide",
    "no": "every trial trains to its end",
}

RELEASES: Mapping[str, str] = {
    "no": "nothing: the next run starts at once",
    "executors": "the executors, which the next run asks for again; the driver stays",
    "session": "everything: the Spark session ends, and the next run starts a new one",
}

EXCLUDED: Mapping[str, str] = {
    "bad": "those on which workers have died twice in this session, or one took for a minute 1.5 times as long to "
    "compute as the median of the workers",
}

_SEARCH_ONLY = "a search has many runs; leave it out, and use it in a run with the best values (--set)."

#: Options that one execution of a cell sets; of --data, and of the windows that --sequence-length makes of it.
_of_cell = partial(Option, configurable=False)
_of_data = partial(_of_cell, needs="--data")
_of_windows = partial(_of_cell, needs="--sequence-length")

_TRAINING = (
    Option(
        "--strategy",
        "How the workers train together.",
        default=RunSpec.strategy,
        hint=similar.strategy,
        choices=STRATEGIES,
    ),
    Option(
        "--workers",
        "Number of training processes of a run; 1 for each trial of a search, where it is not given. Or MIN..MAX: the "
        "run begins with those of MAX that there are, MIN at least; when one dies, the others train on, and more join.",
        read_workers,
        metavar="N",
        default=RunSpec.workers,
    ),
    Option(
        "--rule",
        "Update rule: of the parameter server (ps), or easgd (allreduce). Its settings are derived from the run; set "
        "one as in aeasgd:alpha=0.1.",
        read_rule,
        default_text=f"{DEFAULT_RULE} for ps",
        choices={name: _meaning(update_rules.RULES[name]) for name in update_rules.names()},
        settings=lambda name: tuple(setting.name for setting in update_rules.RULES[name].settings),
    ),
    Option(
        "--ps",
        "Number of parameter servers, each with a part of the model. They are processes beside the driver (ps) or "
        "beside the workers (tf-ps).",
        read_count,
        metavar="N",
        default=1,
        strategies=("ps", "tf-ps"),
    ),
    Option(
        "--window",
        "Batches that a worker trains between two exchanges of its update rule.",
        read_count,
        metavar="N",
        default_text="the number of workers",
        needs="--rule",
        strategies=("allreduce", "ps"),
    ),
    Option(
        "--compression",
        "Send gradients between hosts in fewer bytes: rounded to bfloat16 (bf16), or only the largest, here 1 % of "
        "them (topk:0.01). What a step leaves out is added to the next one. Not used where all workers are on one "
        "machine.",
        read_compression,
        metavar="bf16|topk:0.01",
        strategies=("allreduce",),
        conflicts={"--rule": "compression is for gradients, and a rule exchanges weights; leave one of them out."},
    ),
    Option(
        "--sync-batchnorm",
        "Compute the statistics of every BatchNormalization over the whole global batch, as one process does, and not "
        "over each worker's part of it. Costs two small exchanges per layer and step. Without it, layers with "
        "synchronized=True do so.",
        strategies=("allreduce",),
        conflicts={"--rule": "with a rule the workers have no global batch; leave one of them out."},
        sets=("sync_batchnorm", True),
    ),
    Option(
        "--sync-noise",
        "Draw the random numbers of a training step, such as dropout's, for the whole global batch on every worker, "
        "which then takes those of its rows: the numbers of one process. Without it, each worker draws numbers of its "
        "own.",
        strategies=("allreduce",),
        conflicts={
            "--rule": "with a rule the workers have no global batch; leave one of them out.",
            "--data": "a worker has only its own rows of a batch then; use arrays of the cell, or leave one out.",
        },
        sets=("sync_noise", True),
    ),
    Option(
        "--feed",
        "Which workers read the data of a fit that the cell makes: each worker all of it, of which it takes its rows, "
        "or worker 0 alone, which deals the rows of each batch to all.",
        default_text="auto",
        choices={
            "auto": "worker 0 alone, where a pipeline draws at random so that the workers would read other rows",
            "chief": "worker 0 alone, always",
            "each": "each worker; a run whose workers read different rows is refused",
        },
        strategies=("allreduce",),
        conflicts={"--rule": "with a rule each worker trains on batches of its own; leave one of them out."},
    ),
    Option(
        "--gather",
        "Whether workers exchange their outputs and targets in each step, so that every worker computes the loss of "
        "the whole global batch. auto does so for losses that need it: those that are neither a mean nor a sum over "
        "rows, as a trial finds out before training.",
        default_text="auto",
        choices={
            "auto": "for losses that are neither a mean nor a sum over rows",
            "yes": "for every compiled loss",
            "no": "never; a loss that needs it is refused",
        },
        strategies=("allreduce",),
        conflicts={"--rule": "with a rule the workers have no global batch; leave one of them out."},
    ),
    Option(
        "--shard-optimizer",
        "Whether each worker updates a part of the weights and has that part of the optimizer's state, as ZeRO stage 1 "
        "does, instead of all. The result is the same. auto does so from 96 MB of weights on with two "
        "workers, 32 MB with four, where all are on one machine, the optimizer has a state, and model, optimizer and "
        "callbacks are Keras' own.",
        default_text="auto",
        choices={
            "auto": "where it is faster and all code is Keras' own",
            "yes": "for every optimizer of Keras that can be divided",
            "no": "never",
        },
        strategies=("allreduce",),
        conflicts={
            "--rule": "with a rule each worker makes updates of its own; leave one of them out.",
            "--compression": "compressed gradients are summed on every worker; leave one of them out.",
        },
    ),
    Option(
        "--seed",
        "Random seed of the run; those of the workers follow from it. Without it, workers continue the random numbers "
        "of the session, if a cell has seeded them.",
        read_seed,
        metavar="N",
        default_text="the session's, or drawn at random",
    ),
    Option(
        "--target",
        "End every model.fit after the epoch in which a metric of its history reaches a value, and stop the run when "
        "rank 0 passes such a value to ddl.log. Whether at least or at most is read from the metric's name; write max "
        "or min where that does not say it.",
        read_target,
        metavar="METRIC:VALUE[:max|min]",
        conflicts={"--trials": "a search compares what its trials reach; stop it with --timeout, or leave it out."},
    ),
)

_DATA = (
    _of_cell(
        "--data",
        "DataFrame that becomes `dataset` in the cell, or Parquet, ORC, CSV or TFRecord files that Spark reads: "
        "hdfs:///sales/*.parquet, abfs://..., s3a://..., file:///.... The rows are divided among the workers; each is "
        "used once per epoch.",
        read_data,
        metavar="DATAFRAME|FILES",
        completes="frames",
        conflicts={
            "--strategy tf-ps": "its cell runs on the coordinator alone; read the data in the function for "
            "create_per_worker_dataset."
        },
    ),
    _of_data(
        "--where",
        "Use only the rows of --data for which this condition of Spark SQL is true, as in 'year >= 2012'. Spark skips "
        "files and parts of files that cannot have such rows.",
        metavar="CONDITION",
    ),
    _of_data(
        "--features",
        "Feature columns: a,b,c or a b c. For a model with several inputs, image=pixels,meta=a+b+c makes a dict: the "
        "column pixels as image, and the matrix of a, b and c as meta.",
        metavar="COLUMNS",
        default_text="all but the label and the weight",
        completes="columns",
        takes_list=True,
    ),
    _of_data(
        "--label",
        "Label column. For a model with several outputs, y1=a,y2=b makes a dict.",
        metavar="COLUMN",
        completes="columns",
    ),
    _of_cell(
        "--weight",
        "Column of sample weights: `dataset` yields (features, label, weight), as Keras' `sample_weight`.",
        metavar="COLUMN",
        completes="columns",
        needs="--label",
    ),
    _of_data(
        "--transform",
        "Function of the cell or the notebook that makes the model's input of the features of a row, on the workers: "
        "to decode images, resize or augment them. With :batch it takes the features of a batch at once, which is "
        "faster. If it has an argument `training`, that is True for the rows of `dataset` alone.",
        read_transform,
        metavar="FUNCTION[:batch]",
    ),
    _of_data(
        "--sparse",
        "Feature columns of sparse vectors of pyspark.ml that stay sparse: `dataset` has a tf.SparseTensor of each, "
        "for an Input with sparse=True. Without it, vectors are filled up with zeros.",
        metavar="COLUMNS",
        completes="columns",
        takes_list=True,
        conflicts={"--sequence-length": "windows are dense; leave --sparse out."},
    ),
    _of_data(
        "--pad",
        "Columns of lists of numbers or texts of any lengths, as COLUMN=LENGTH: each list is filled up with 0 or empty "
        "text at its end, or cut, to so many values. Without it, features of several lengths are a tf.RaggedTensor.",
        read_padding,
        metavar="COLUMN=LENGTH",
        completes="columns",
        takes_list=True,
    ),
    Option(
        "--batch-size",
        "Rows in a batch of `dataset`: of the global batch with tf-allreduce and, without --rule, with allreduce; else "
        "of each worker's own.",
        read_count,
        metavar="N",
        default=32,
        needs="--data",
    ),
    _of_data(
        "--validation",
        "Share of the rows (0.2), or a second DataFrame, that becomes `validation` in the cell. With "
        "--sequence-length, the last share of the windows of each time series, or those whose label is not before a "
        "date.",
        read_validation,
        metavar="SHARE|DATAFRAME|DATE",
        completes="frames",
    ),
    _of_cell(
        "--sequence-length",
        "Make `dataset` of windows over a time series: the features of N consecutive rows, in the order of "
        "--order-by, with the label of a later row.",
        read_count,
        metavar="N",
        needs="--order-by",
    ),
    _of_windows(
        "--order-by",
        "Column that orders the rows for --sequence-length, such as a time.",
        metavar="COLUMN",
        completes="columns",
    ),
    _of_windows(
        "--horizon",
        "Rows from a window's last row to the row of its label; 0 for the last row itself.",
        read_horizon,
        metavar="N",
        default_text="1",
    ),
    _of_windows(
        "--sequence-stride",
        "Rows from the first of a window to the first of the next window.",
        read_count,
        metavar="N",
        default_text="1",
    ),
    _of_windows(
        "--group-by",
        "Columns that tell one time series from another, a,b or a b: no window has rows of two.",
        metavar="COLUMNS",
        completes="columns",
        takes_list=True,
    ),
    Option(
        "--cache",
        "Keep the rows of --data, as they were dealt, on the workers' disks for later runs: on, up to a fifth of a "
        "disk's free room; up to a size such as 20GB; in a folder of your own, from /; or off. Without a folder they "
        "are kept until the Spark session ends.",
        read_cache,
        metavar="on|off|DIR|SIZE",
        default="on",
        needs="--data",
    ),
    _of_cell(
        "--send",
        "Variables of the notebook, a,b,c or a b c, to copy into the Livy session: numbers, text, lists, dicts, NumPy "
        "arrays up to half a megabyte. Send nothing secret: Livy logs them.",
        read_identifier,
        metavar="NAMES",
        takes_list=True,
    ),
    _of_cell(
        "--files",
        "Files and folders beside the notebook, a,b,c or a b c, to copy to the workers of a Livy session, up to 32 MB: "
        "the cell finds them under the same relative paths. Workers on this machine find the notebook's folder itself.",
        metavar="PATHS",
        takes_list=True,
    ),
)

_SEARCH = (
    _of_cell(
        "--set",
        "Value of a parameter that the cell asks for with ddl.suggest_float, suggest_int or suggest_categorical. May "
        "be repeated. In a search, the parameter keeps this value.",
        read_parameter,
        metavar="NAME=VALUE",
        repeats=True,
    ),
    _of_cell(
        "--trials",
        "Search for the best values of the cell's ddl.suggest_... parameters, in so many runs. Needs Optuna on the "
        "notebook's machine: the extra search of this package.",
        read_count,
        metavar="N",
        conflicts={"--out": _SEARCH_ONLY, "--resume": _SEARCH_ONLY},
    ),
    _of_cell(
        "--objective",
        "Metric that a search optimizes, as in the history of fit or in ddl.log, and its direction. The value of a "
        "trial is that of its last epoch. With several, joined by commas, a search finds the trials that no other one "
        "beats in all of them: --search is then evolution by default, and --prune is no.",
        read_objective,
        metavar="METRIC:max|min",
        needs="--trials",
    ),
    Option(
        "--search",
        "How a search chooses values.",
        default="tpe",
        choices=SEARCHES,
        needs="--trials",
    ),
    Option(
        "--prune",
        "Which trials a search ends early.",
        default="asha",
        choices=PRUNERS,
        needs="--trials",
    ),
    Option(
        "--parallel",
        "How many trials run at once, at most.",
        read_count,
        metavar="N",
        default_text="as many as fit into the slots and, on this machine, its memory",
        needs="--trials",
    ),
    _of_cell(
        "--warm-start",
        "Earlier search, by name or id, from whose trials this one learns before its first: for --search tpe and "
        "cmaes. Its objective must be the same; trials with values out of this cell's ranges are left out.",
        metavar="SEARCH",
        needs="--trials",
    ),
)

_FAULTS = (
    Option(
        "--attempts",
        "Maximum number of starts of the workers; of each worker with ps and ensemble. Killed workers start again from "
        "the last checkpoint. With --workers MIN..MAX, starts that got further do not count.",
        read_count,
        metavar="N",
        default_text=str(ATTEMPTS),
    ),
    Option(
        "--stall",
        "Count a worker as dead when it has made no step for this time: seconds, or 90s, 10m, 2h. Choose more than the "
        "longest time between two steps of your cell, with the compilation of the first step, validation and "
        "callbacks. Without it, a stall of a minute is reported and no more.",
        read_seconds,
        metavar="TIME",
    ),
    Option(
        "--exclude",
        "Executors of Spark on which the run does not start: they are ended before, where none of our workers is on "
        "them, and others asked for, which may be on the same host. Not where Spark chooses its executors by itself, "
        "under dynamic allocation. With --workers MIN..MAX, one that becomes bad in the run is replaced in any case.",
        choices=EXCLUDED,
    ),
    Option(
        "--checkpoint-every",
        "Steps between two checkpoints. Killed workers start again from the last one.",
        read_count,
        metavar="N",
        default_text="one epoch",
        strategies=("allreduce",),
    ),
    Option(
        "--checkpoint",
        "Folder to which the cluster copies the run's checkpoints, so that --resume finds them when session and driver "
        "are gone: hdfs:///checkpoints, abfs://..., s3a://..., file:///... Each run has a folder of its own in it.",
        read_uri,
        metavar="URI",
        strategies=("allreduce", "ps", "average", "single"),
    ),
    _of_cell(
        "--resume",
        "Run that failed or was stopped, by name or id: continue from its last checkpoint, with the cell as it is now.",
        metavar="RUN",
        completes="runs",
        conflicts={
            "--strategy ensemble": "--resume continues the training of one model, and an ensemble has several; leave "
            "--resume out."
        },
    ),
    Option(
        "--timeout",
        "Stop the run, or the search with its trials, after this time: seconds, or 90s, 10m, 2h.",
        read_seconds,
        metavar="TIME",
    ),
)

_CLUSTER = (
    Option(
        "--gpus",
        "GPUs per worker, of those that Spark manages (spark.executor.resource.gpu.amount). Without it a worker uses "
        "the GPUs that Spark gives its task, else those that it finds.",
        read_count,
        metavar="N",
    ),
    Option(
        "--conf",
        "Setting of the Spark session that is started for the run. May be repeated.",
        read_setting,
        metavar="KEY=VALUE",
        repeats=True,
    ),
    Option(
        "--encrypt",
        "Whether the connections between workers, parameter servers and driver are encrypted, by TLS 1.3. auto does so "
        "where Spark encrypts something of its own: spark.network.crypto.enabled, spark.ssl.enabled or "
        "spark.io.encryption.enabled is set.",
        default_text="auto",
        choices={
            "auto": "as Spark does with its own connections",
            "yes": "in any case",
            "no": "never",
        },
    ),
    Option(
        "--release",
        "What to release after the run, or the search, ends and its results are here, if nothing else runs. Only for "
        "sessions that ddl_magics started: in your own session, use %ddl release.",
        choices=RELEASES,
        default_text="no",
    ),
    Option(
        "--prewarm",
        "Keep a process with TensorFlow preloaded for later runs. This is the default.",
        sets=("prewarm", True),
    ),
    Option(
        "--no-prewarm",
        "Do not keep a process with TensorFlow preloaded for later runs. Keeping one saves about 3.5 s per launch "
        "and takes 0.6 GB until a minute after the last run.",
        sets=("prewarm", False),
        former_flag="--no-spare",
    ),
)

_OUTPUT = (
    _of_cell(
        "--name",
        "Name of the run and of the variable that holds it.",
        read_identifier,
        metavar="NAME",
        default_text="run_1, run_2 and so on",
    ),
    Option(
        "--wait",
        "Wait for the end of the run.",
        default_text="True where nobody can click (nbclient, papermill, scripts, a terminal), else False",
        sets=("wait", True),
    ),
    Option("--no-wait", "Return at once and train in the background. The default in a notebook.", sets=("wait", False)),
    _of_cell(
        "--out",
        "New or empty folder to which the cluster writes the model, its weights, the result and the history, instead "
        "of sending them to the notebook: hdfs:///models/mnist, abfs://..., s3a://..., file:///...",
        read_uri,
        metavar="URI",
    ),
    _of_cell(
        "--dry-run",
        "Show what the run, or the search, would do: slots, sizes, the strategy's settings and an estimate of its "
        "memory. Nothing is started.",
        sets=("dry_run", True),
    ),
    Option(
        "--variables",
        "Bring what the cell assigns to the notebook's variables, and what it trains or appends to, as a plain cell "
        "does. This is the default.",
        sets=("variables", True),
    ),
    Option(
        "--no-variables",
        "Leave the notebook's variables as they are.",
        sets=("variables", False),
    ),
    Option(
        "--provenance",
        "Keep with the run what it ran with: packages, Spark's settings without secrets, git commit and difference, "
        "the notebook's cells, hashes of variables and data. This is the default.",
        sets=("provenance", True),
    ),
    Option(
        "--no-provenance",
        "Keep the cell and its options alone.",
        sets=("provenance", False),
    ),
    Option(
        "--tensorboard",
        "Folder below which the run, or each trial of a search, is written for TensorBoard while it trains: a path "
        "relative to the notebook's folder, file:///..., s3://... or gs://.... Needs tensorboardX on the notebook's "
        "machine.",
        read_logs,
        metavar="DIR|URI",
    ),
    Option(
        "--mlflow",
        "MLflow tracking server (http://host:5000) or database (sqlite:///mlflow.db) to which the run, or a search "
        "with its trials as children, is written while it trains. Needs mlflow-skinny on the notebook's machine.",
        read_tracking,
        metavar="URI",
    ),
    Option(
        "--reference",
        "Keep with the run how the rows of --data, and the model's outputs, are distributed: %ddl monitor compares "
        "requests with it. This is the default.",
        sets=("reference", True),
    ),
    Option(
        "--no-reference",
        "Keep no distribution of the data: no value of a row leaves the cluster.",
        sets=("reference", False),
    ),
)

#: The groups of the help, each with its rows.
GROUPS: Mapping[str, tuple[Option, ...]] = {
    "training": _TRAINING,
    "data": _DATA,
    "search": _SEARCH,
    "faults": _FAULTS,
    "cluster": _CLUSTER,
    "output": _OUTPUT,
}

OPTIONS: tuple[Option, ...] = tuple(chain.from_iterable(GROUPS.values()))

BY_FLAG: Mapping[str, Option] = {option.flag: option for option in OPTIONS}
FORMER_FLAGS: Mapping[str, str] = {option.former_flag: option.flag for option in OPTIONS if option.former_flag}
