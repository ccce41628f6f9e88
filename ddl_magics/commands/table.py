"""The table of commands: the verbs of `%ddl`, and of `ddl-magics` in a terminal, with their arguments and options.

Parsing, help, usage, completion and docs/commands.md read it. To add a verb, add its row here, and a module with the
function that carries it out: its parameters are the kernel and the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from IPython.core.error import UsageError

from ddl_magics.commands import (
    cache,
    check,
    clean,
    evaluate,
    labels,
    monitor,
    predict,
    release,
    reproduce,
    run,
    runs,
    scale,
    serve,
    spark,
    tfrecord,
    transfer,
    use,
)
from ddl_magics.commands.command import Command
from ddl_magics.history import query
from ddl_magics.options import similar
from ddl_magics.options.option import Option
from ddl_magics.options.redaction import as_word
from ddl_magics.options.table import BY_FLAG
from ddl_magics.options.values import (
    read_age,
    read_count,
    read_counts,
    read_duration,
    read_identifier,
    read_port,
    read_rank,
    read_share,
    read_size,
    read_yes_or_no,
)
from ddl_magics.scaling import request as scaling

_RUN = Option("run", "Name or id of a run.", metavar="RUN", completes="runs", required=True)
_RUN_OR_SEARCH = replace(_RUN, help="Name or id of a run or a search.")
_MODEL = Option(
    "model",
    "A run, whose end is waited for, the folder of an export, or a .keras file. With a slash it is a path.",
    metavar="RUN|PATH",
    completes="runs",
    required=True,
)
_DATA = Option("--data", "DataFrame with the rows.", metavar="DATAFRAME", completes="frames", required=True)
_FEATURES = Option(
    "--features",
    "Columns of the model's input, in its order: a,b,c or a b c.",
    metavar="COLUMNS",
    default=(),
    default_text="those of the training",
    completes="columns",
    takes_list=True,
)
_BATCH_SIZE = Option("--batch-size", "Rows that the model gets at once.", read_count, metavar="N", default=1024)
_NAME = Option("--name", "Variable of the result.", read_identifier, metavar="NAME")
_LOG_ADDRESS = "FOLDER|kafka://HOST:PORT/TOPIC"


def _time(flag: str, help: str, default: str) -> Option:
    return Option(flag, help, read_duration, metavar="TIME", default=read_duration(default), default_text=default)


COMMANDS: tuple[Command, ...] = (
    Command(
        "use",
        "Choose the cluster of the next runs. auto: the kernel's sparkmagic session, or else this machine. embedded: "
        "this machine. livy: a Livy session.",
        use.use,
        (
            Option("cluster", "Where runs are executed.", choices=use.CLUSTERS, hint=use.cluster_hint, required=True),
            Option("url", "With livy: the address of the Livy.", metavar="URL", default_text="that of sparkmagic"),
            Option(
                "--session",
                "With livy: an existing session, by ID or name.",
                metavar="ID|NAME",
                default_text="the session of sparkmagic, or else a new one",
            ),
            Option(
                "--detached",
                "With livy: the new session outlives this kernel.",
                sets=("detached", True),
                conflicts={"--session": "--session uses an existing session: leave one of them out."},
            ),
            Option(
                "--token-from",
                "With livy: a command that prints a bearer token for the URL, or a function that returns one, as "
                "MODULE:FUNCTION. It is asked again when the token has expired.",
                metavar="COMMAND",
                default_text="what sparkmagic's config.json says",
            ),
        ),
    ),
    Command(
        "spark",
        "Define spark, the SparkSession of this machine's runs, before the first run, unless the notebook has one.",
        spark.start,
        (replace(BY_FLAG["--workers"], help="Start it for so many workers.", default=None), BY_FLAG["--conf"]),
    ),
    Command(
        "run",
        "Execute a notebook, a file of cells or a training script in a kernel of its own, and wait for the runs that "
        "it starts. The exit status is 0 if all have finished, 3 if one was stopped, and 1 if one or the file has "
        "failed. Ctrl-C stops the runs after their current step.",
        run.run,
        (
            Option(
                "file",
                "A notebook; a .py whose cells begin with # %% or %%distributed; or another .py, all of which is one "
                "%%distributed cell.",
                metavar="FILE",
                required=True,
            ),
            Option(
                "options",
                "After --: options of %%distributed, for a .py without a %%distributed cell.",
                metavar="-- OPTION",
                default=(),
                takes_list=True,
            ),
            Option(
                "--cluster",
                "Where runs are executed: the URL of a Livy; livy, that of sparkmagic; embedded, this machine; auto.",
                run.read_cluster,
                metavar="URL|NAME",
                default_text="what the file chooses, or else auto",
            ),
            Option(
                "--session",
                "An existing Livy session, by ID or name.",
                metavar="ID|NAME",
                needs="--cluster",
                default_text="a new one, which ends with the kernel",
            ),
            Option(
                "--token-from",
                "A command that prints a bearer token for the URL of --cluster, or MODULE:FUNCTION.",
                metavar="COMMAND",
                needs="--cluster",
            ),
            Option(
                "--kernel-name",
                "The Jupyter kernel.",
                metavar="NAME",
                default_text="the notebook's, or IPython in this Python",
            ),
            Option("--output", "Write the executed notebook there.", metavar="FILE.ipynb"),
            Option(
                "--detach",
                "Return when the first run has started; a process in the background follows it.",
                sets=("detach", True),
            ),
            Option(
                "--batch",
                "Train the file's only cell as a batch of the Livy of --cluster, which needs no kernel and, with "
                "--detach, nothing on this machine. The cell's line names the folder of the model: --out URI.",
                sets=("batch", True),
                needs="--cluster",
                conflicts={
                    flag: f"a batch has no {what}: leave one of them out."
                    for flag, what in (("--session", "session"), ("--kernel-name", "kernel"), ("--output", "notebook"))
                },
            ),
        ),
        keys=run.KEYS,
        terminal_only=True,
    ),
    Command("check", "Check whether runs can be executed, and on what.", check.check),
    Command(
        "runs",
        "List the newest runs of all notebooks, or those that match a query: state:failed val_accuracy>0.9 tag:paper "
        "lr<0.01.",
        runs.list_runs,
        (Option("query", "Terms that must all match.", metavar="TERM", default=(), takes_list=True),),
        keys=runs.RUNS_KEYS,
        split=query.split,
    ),
    Command(
        "show",
        "Show the figures of a run, or its live view while it runs.",
        runs.show,
        (_RUN_OR_SEARCH,),
        keys=runs.SHOW_KEYS,
    ),
    Command(
        "logs",
        "Print what a run printed.",
        runs.logs,
        (_RUN, Option("rank", "Only the text of this rank.", read_rank, metavar="RANK")),
        keys=runs.LOGS_KEYS,
    ),
    Command(
        "stop",
        "End a run after its current step, or a search after those of its trials; history and model are kept. In a "
        "terminal it works without the run's kernel if its session can be reached.",
        runs.stop,
        (_RUN_OR_SEARCH,),
        keys=runs.STOP_KEYS,
    ),
    Command(
        "attach",
        "Follow a run again whose kernel is gone, if its Livy session lives; continue a search whose kernel is gone, "
        "or which failed.",
        runs.attach,
        (_RUN_OR_SEARCH,),
    ),
    Command(
        "scale",
        "Measure the cell of a run with several numbers of workers: speed-up, efficiency, where the time goes. "
        "report = %ddl scale ... has it as a table, a figure and predictions.",
        scale.scale,
        (
            _RUN,
            Option("--workers", "Numbers of workers, joined by commas.", read_counts, metavar="1,2,4", required=True),
            Option(
                "--strategy",
                f"Strategies to compare, joined by commas: {', '.join(scaling.STRATEGIES)}.",
                scaling.read_strategies,
                metavar="NAMES",
                default=(),
                default_text="that of the run",
            ),
            Option("--seeds", "Runs of each combination, each with another seed.", read_count, metavar="N", default=1),
            Option(
                "--epochs", "Epochs of each fit at most.", read_count, metavar="N", default_text="those of the cell"
            ),
            Option(
                "--global-batch",
                "--batch-size of the run is the batch of all workers together, with each strategy.",
                sets=("global_batch", True),
            ),
            Option("--again", "Also measure what was measured before.", sets=("again", True)),
        ),
    ),
    Command(
        "predict",
        "Define a Spark DataFrame with the predictions of a model beside the columns of another DataFrame, where that "
        "is: in this notebook or in the Livy session.",
        predict.predict,
        (
            _MODEL,
            _DATA,
            replace(_NAME, help="Variable of the new DataFrame.", required=True),
            _FEATURES,
            Option("--output", "New column of the predictions.", metavar="COLUMN", default="prediction"),
            Option(
                "--on-error",
                "What happens at a row that the model cannot score.",
                choices={"fail": "the Spark job fails", "null": "the row has no prediction"},
                default="fail",
            ),
            _BATCH_SIZE,
        ),
    ),
    Command(
        "evaluate",
        "Compute the metrics of a model over all rows of a DataFrame, where that is.",
        evaluate.evaluate,
        (
            _MODEL,
            _DATA,
            Option("--label", "Column of the labels.", metavar="COLUMN", completes="columns", default_text="the run's"),
            Option("--weight", "Column of weights.", metavar="COLUMN", completes="columns", default_text="the run's"),
            _FEATURES,
            _BATCH_SIZE,
            replace(_NAME, default_text="RUN_evaluation"),
        ),
    ),
    Command(
        "monitor",
        "Compare logged requests to a model with the data that it was trained on, live: drift, rate, latency, errors, "
        "and when to train again. %ddl stop ends it.",
        monitor.monitor,
        (
            Option(
                "model", "A run, or the folder of an export.", metavar="RUN|FOLDER", completes="runs", required=True
            ),
            Option(
                "--log",
                "Where requests are logged.",
                partial(monitor.read_address, "--log"),
                metavar=_LOG_ADDRESS,
                required=True,
            ),
            Option(
                "--labels",
                "True labels, when they are known.",
                partial(monitor.read_address, "--labels"),
                metavar=f"DATAFRAME|{_LOG_ADDRESS}",
                completes="frames",
            ),
            replace(_NAME, help="Name of the monitor and of its variable.", default_text="monitor_1 and so on"),
            _time("--window", "Requests of so long are one point.", "1m"),
            _time("--late", "Wait so long for late requests of a window.", "10m"),
            _time("--label-delay", "Wait so long for the label of a request.", "1d"),
            _time("--every", "Look for new requests so often.", "2s"),
            Option(
                "--once",
                "yes: end when all that is logged has been compared.",
                read_yes_or_no,
                metavar="yes|no",
                default=False,
                default_text="no",
            ),
            Option(
                "--checkpoint",
                "Folder from which a monitor that is started again continues.",
                metavar="URI",
                default_text="one for this model, log, labels and window",
            ),
        ),
    ),
    Command(
        "tfrecord",
        "Write a DataFrame, of this notebook or the Livy session, as TFRecord files.",
        tfrecord.write,
        (
            Option("data", "The DataFrame.", metavar="DATAFRAME", completes="frames", required=True),
            Option("uri", "The new folder.", metavar="URI", required=True),
            Option("--compression", "Compress the files.", choices={"gzip": ""}),
        ),
    ),
    Command(
        "serve",
        "Serve a model on this machine, by the Open Inference Protocol. A model that is served under this name gets "
        "the next version, without a failed request. With --to, write the files that deploy it elsewhere; with --stop, "
        "end a served model.",
        serve.serve,
        (
            Option(
                "model",
                "A run, the folder of an export, or FOLDER/NAME@VERSION of a registry.",
                metavar="RUN",
                completes="runs",
                required=True,
            ),
            replace(_NAME, help="Name of the model, in its URLs.", read=str, default_text="that of the run"),
            Option("--port", "Port for HTTP.", read_port, metavar="N", default_text="a free one"),
            Option("--detached", "Let the server outlive this kernel.", sets=("detached", True)),
            Option("--log", "Log the requests there.", serve.read_log, metavar=_LOG_ADDRESS),
            Option(
                "--log-inputs",
                "Whether the log has the inputs.",
                read_yes_or_no,
                metavar="yes|no",
                default_text="yes, or as the running server does",
            ),
            Option(
                "--log-sample",
                "Share of the requests to log.",
                read_share,
                metavar="0.1",
                default_text="1, or as the running server does",
            ),
            Option(
                "--to",
                "Write the files that deploy the model with KServe or Azure ML into a new folder.",
                serve.read_target,
                metavar="kserve|azureml FOLDER",
                values=2,
                conflicts=dict.fromkeys(
                    ("--port", "--detached", "--log", "--log-inputs", "--log-sample"),
                    "--to writes files and serves nothing: it goes with --name alone.",
                ),
            ),
            Option("--stop", "End this served model.", metavar="NAME", alone=True),
        ),
        keys=serve.SERVE_KEYS,
    ),
    Command(
        "serving",
        "List the served models: address, requests/s, latencies, errors.",
        serve.serving,
        keys=serve.SERVING_KEYS,
    ),
    Command(
        "release",
        "Release the session's executors while nothing runs; your own Spark cells wait from then on.",
        release.release,
    ),
    Command("acquire", "Request the executors again; the next run does so, too.", release.acquire),
    Command(
        "clean",
        "Remove stored runs: all but those that ended within --keep and the --keep-last newest, then the oldest until "
        "the store fits into --max-size; never one that lives, that has a tag, or from which another continues. "
        "%config DistributedStore has the same settings for every run.",
        clean.clean,
        (
            Option("--keep", "Keep the runs that ended within this time.", read_age, metavar="30d"),
            Option("--keep-last", "Keep so many of the newest runs.", read_count, metavar="N"),
            Option("--max-size", "Remove the oldest runs beyond this size.", read_size, metavar="10GB"),
            replace(BY_FLAG["--dry-run"], help="Only list the runs that would be removed."),
        ),
        keys=clean.KEYS,
    ),
    Command(
        "tag",
        "Add tags to a run, which keep it from being cleaned; without a tag, print them.",
        labels.tag,
        (
            _RUN,
            Option("tags", "The tags.", metavar="TAG", default=(), takes_list=True),
            Option("--remove", "Remove these tags.", sets=("remove", True)),
        ),
    ),
    Command(
        "note",
        "Write a note about a run; without a text, print it.",
        labels.note,
        (_RUN, Option("text", 'The note; "" removes it.', metavar='"TEXT"', default=(), takes_list=True)),
        split=labels.split_note,
    ),
    Command(
        "compare",
        "Print what two runs ran with, and whether their histories are equal.",
        reproduce.compare,
        (replace(_RUN, flag="before", help="The earlier run."), replace(_RUN, flag="after", help="The later run.")),
    ),
    Command(
        "reproduce",
        "Insert the cell of a run, and print what differs today: packages, code, data.",
        reproduce.reproduce,
        (_RUN, Option("--run", "Run the cell, and compare the histories.", sets=("rerun", True))),
    ),
    Command(
        "export",
        "Write a run, or a search with its trials, to a zip file.",
        transfer.export,
        (_RUN_OR_SEARCH, Option("file", "The file, which must not exist.", metavar="FILE.zip", required=True)),
        keys=transfer.EXPORT_KEYS,
    ),
    Command(
        "import",
        "Take the runs of such a file into the store.",
        transfer.import_,
        (Option("file", "The file.", metavar="FILE.zip", required=True),),
        keys=transfer.IMPORT_KEYS,
    ),
    Command(
        "cache",
        "List the rows of --data that the workers keep for later runs: of --cache on, or of the folder that %config "
        "Distributed.cache names.",
        cache.cache,
        (Option("--clear", "Remove them.", sets=("clear", True)),),
    ),
)

BY_VERB: Mapping[str, Command] = {command.verb: command for command in COMMANDS}
#: The verbs of a notebook.
VERBS = tuple(command.verb for command in COMMANDS if not command.terminal_only)


def find(verb: str) -> Command:
    """The row of a verb of a notebook.

    Raises:
        UsageError: there is none.
    """
    if verb not in VERBS:
        hint = f" In a terminal: {BY_VERB[verb].name}." if verb in BY_VERB else similar.verb(verb, VERBS)
        raise UsageError(f"%ddl has no verb {as_word(verb)}; its verbs are {', '.join(VERBS)}.{hint}")
    return BY_VERB[verb]
