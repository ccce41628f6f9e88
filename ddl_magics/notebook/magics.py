"""`%%distributed` and `%ddl`: parse the line, call what does the work, display the result."""

from __future__ import annotations

import dataclasses
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand

from ddl_magics import store
from ddl_magics.clusters.base import Ready
from ddl_magics.clusters.choice import Choice
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.clusters.local_spark import CannotStart
from ddl_magics.commands import (
    cache,
    check,
    clean,
    evaluate,
    history,
    monitor,
    predict,
    release,
    scale,
    serve,
    tfrecord,
)
from ddl_magics.commands.livy_request import LivyRequest, lifetime
from ddl_magics.history import query
from ddl_magics.notebook import display
from ddl_magics.notebook.cell_source import source_of
from ddl_magics.notebook.config import Distributed, DistributedStore, configured
from ddl_magics.options import help, parsing, similar
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run, run_text
from ddl_magics.scaling import ScalingReport
from ddl_magics.search import Search, ask_to_stop
from ddl_magics.search.found import listed
from ddl_magics.session import dry_run
from ddl_magics.session.session import Session
from ddl_magics.session.waiting import wait_in_cell
from ddl_magics.wording import counted, nearest

HISTORY_VERBS = ("tag", "note", "compare", "reproduce", "export", "import")
VERBS = (
    *("use", "spark", "check", "runs", "show", "logs", "stop", "attach", "scale", "predict", "evaluate", "monitor"),
    *("serve", "serving", "release", "acquire", "clean", *HISTORY_VERBS, "cache", "tfrecord"),
)
CLUSTERS = ("auto", "embedded", "livy")

_RANK = re.compile(r"[0-9]{1,7}")

DDL_HELP = """%ddl VERB: choose the cluster; list, show, stop and remove runs.

  use auto            run on the kernel's sparkmagic session, or else on this machine
  use embedded        run on this machine
  use livy [URL] [--session ID|NAME] [--detached]
                      run on a Livy session: sparkmagic's, the given one, or a new one;
                      a detached session outlives this kernel
  spark [--workers N] [--conf KEY=VALUE]
                      define spark, the SparkSession of this machine's runs, before the first run: started for so many
                      workers, unless the notebook has one
  check               check whether runs can be executed, and on what
  runs [QUERY]        list the newest runs of all notebooks, or those that match:
                      state:failed val_accuracy>0.9 tag:paper lr<0.01
  show RUN            show a run's figures, or its live view while it runs
  logs RUN [RANK]     print what a run printed
  stop RUN            end a run after its current step; history and model are kept
  attach RUN          follow a run again whose kernel is gone, if its Livy session lives;
                      continue a search whose kernel is gone, or which failed
  predict RUN|PATH --data DATAFRAME --name NEW [--features F] [--output NAME] [--on-error fail|null]
          [--batch-size N]
                      define NEW, a Spark DataFrame with the predictions of the model beside the columns of DATAFRAME,
                      where that is: in this notebook or in the Livy session. PATH is the folder of an export, or a
                      .keras file
  evaluate RUN|PATH --data DATAFRAME [--label y] [--weight w] [--features F] [--batch-size N] [--name NEW]
                      define NEW, or RUN_evaluation: the metrics of the model over all rows of DATAFRAME
  tfrecord DATAFRAME URI [--compression gzip]
                      write DATAFRAME, of this notebook or the Livy session, as TFRecord files into the new folder URI
  monitor RUN|FOLDER --log FOLDER|kafka://HOST:PORT/TOPIC [--labels DATAFRAME|FOLDER|kafka://...] [--name NEW]
          [--window 1m] [--late 10m] [--label-delay 1d] [--every 2s] [--once yes] [--checkpoint URI]
                      compare the logged requests to a run's model, or to an export, with the data that it was trained
                      on, live: drift, rate, latency, errors, and when to train again; %ddl stop ends it
  scale RUN --workers 1,2,4 [--strategy allreduce,ps,average] [--seeds 5] [--epochs 2] [--global-batch]
        [--again]
                      measure the run's cell with so many workers: speed-up, efficiency, where the time goes;
                      report = %ddl scale ... has it as a table, a figure and predictions
  serve RUN [--name NAME] [--port N] [--detached] [--log FOLDER] [--log-inputs no] [--log-sample 0.1]
                      serve the run's model on this machine, by the Open Inference Protocol; a model that is served
                      under this name gets the next version, without a failed request. RUN is also the folder of an
                      export, or FOLDER/NAME@VERSION of a registry
  serve RUN --to kserve|azureml FOLDER
                      write the files that deploy the model there
  serve --stop NAME   end a served model
  serving             list the served models: address, requests/s, latencies, errors
  release             give the session's executors back while nothing runs; your own Spark cells wait from then on
  acquire             ask for them again; the next run does so, too
  tag RUN TAG ...     add tags, which keep a run from being cleaned; --remove takes them away
  note RUN "TEXT"     write something about a run
  compare RUN RUN     print what two runs ran with, and whether their histories are equal
  reproduce RUN [--run]
                      insert the run's cell, and print what differs today: packages, code, data;
                      with --run, run it and compare the histories
  export RUN FILE     write a run, or a search with its trials, to a zip file
  import FILE         take such a file into the store
  clean [--keep 30d] [--keep-last N] [--max-size 10GB] [--dry-run]
                      remove stored runs: all but those that ended within --keep and the --keep-last newest, then the
                      oldest until the store fits into --max-size; never one that lives, that has a tag, or from
                      which another continues. %config DistributedStore has the same settings for every run
  cache [--clear]     list, or remove, the rows of --data that the workers keep for later runs: of --cache on, or of
                      the folder that %config Distributed.cache names"""


@magics_class
class DistributedMagics(Magics):
    """The magics of one kernel, which act on its `session`."""

    shell: Any

    def __init__(self, shell: Any, session: Session, choice: Choice) -> None:
        super().__init__(shell)
        self.session = session
        self.choice = choice
        self.defaults = Distributed(parent=shell)
        self.store = DistributedStore(parent=shell)
        shell.configurables += [self.defaults, self.store]

    @no_var_expand
    @line_cell_magic
    def distributed(self, line: str, cell: str | None = None) -> None:
        """Train the cell's Keras model on several workers: %%distributed --help."""
        self._train(self._expanded(line), cell)

    @no_var_expand
    @line_cell_magic
    def ddl_distributed(self, line: str, cell: str | None = None) -> None:
        """%%distributed under a name that no other extension uses."""
        self._train(self._expanded(line), cell)

    def _expanded(self, line: str) -> str:
        """With the values of {expression} and $name, as IPython has it, but for the {5} of regular expressions."""
        hidden = re.sub(r"(?<!\{)\{(\d+(?:,\d*)?)\}(?!\})", "\ue000\\1\ue001", line)
        expanded: str = self.shell.var_expand(hidden, depth=3)
        return expanded.replace("\ue000", "{").replace("\ue001", "}")

    def _train(self, line: str, cell: str | None = None) -> None:
        if parsing.wants_help(line):
            print(help.help_text())
            return
        if cell is None:
            if line.startswith("%%"):  # as the input transformer of `extension` writes it
                raise UsageError(f"there is no cell magic {line.strip()}. Did you mean %%distributed?")
            raise UsageError(
                "%%distributed is a cell magic: write it, with two percent signs, in a cell's first line, and move "
                "what stands above it to another cell."
            )
        spec = parsing.parse(line, configured(self.defaults))
        spec = dataclasses.replace(spec, cell=source_of(self.shell, line, cell))
        if spec.dry_run:
            print(dry_run.report(spec, self.session.cluster, self.shell.user_ns))
            return
        begin = self.session.submit if spec.trials is None else self.session.search
        begun: Run | Search = begin(spec, self.shell.user_ns)
        self.shell.user_ns[begun.name] = begun
        for line in self.session.cluster.notices(begun.spec, self.shell.user_ns):
            print(f"{begun.name}  {line}")
        self.store.clean()
        clickable = display.can_click(self.shell)
        waiting = not clickable if spec.wait is None else spec.wait
        if clickable:
            display.show_live(begun, waiting)
        if not waiting:
            return
        try:
            wait_in_cell(begun, text=not clickable)
        finally:
            if isinstance(begun, Search) and not clickable:
                print(begun)
            elif isinstance(begun, Run) and not clickable and display.in_notebook(self.shell):
                display.show_static(begun)

    @line_magic
    def ddl(self, line: str) -> ScalingReport | None:
        """Choose the cluster; list, show, stop and remove runs: %ddl --help."""
        words = parsing.words(line)
        if not words:
            print(f"{run_text.next_steps(self.session.newest)}\n\n{DDL_HELP}")
            return None
        if words[0] in ("--help", "-h", "help"):
            print(DDL_HELP)
            return None
        verb, arguments = words[0], words[1:]
        if verb == "runs":  # its quotes are the query's
            arguments = [line.strip()[len(verb) :].strip()]
        if verb not in VERBS:
            raise UsageError(
                f"%ddl has no verb {as_word(verb)}; its verbs are {', '.join(VERBS)}.{similar.verb(verb, VERBS)}"
            )
        if verb in HISTORY_VERBS:
            self._of_history(verb, arguments)
            return None
        report: ScalingReport | None = getattr(self, f"_{verb}")(arguments)
        return report

    def _use(self, arguments: list[str]) -> None:
        if not arguments:
            raise UsageError("write: %ddl use auto|embedded|livy")
        kind, rest = arguments[0], arguments[1:]
        if kind not in CLUSTERS:
            known = ", ".join(CLUSTERS)
            raise UsageError(f"%ddl use has no cluster {as_word(kind)}; it takes {known}.{_cluster_hint(kind)}")
        if kind == "livy":
            self._use_livy(rest)
        elif rest:
            raise UsageError(f"write: %ddl use {kind}")
        elif kind == "embedded":
            self.choice.embedded()
        else:
            self.choice.auto()
        print(f"runs are executed on {self.session.cluster.name}")

    def _use_livy(self, arguments: list[str]) -> None:
        request = LivyRequest.parse(arguments)
        try:
            session = self.choice.livy(request.url, request.session, request.detached)
        except NoSession as error:
            raise UsageError(str(error)) from None
        if session is not None:
            print(lifetime(session))

    def _spark(self, arguments: list[str]) -> None:
        if len(arguments) % 2 or not {"--workers", "--conf"}.issuperset(arguments[::2]):
            raise UsageError("write: %ddl spark [--workers N] [--conf KEY=VALUE]")
        cluster, variable = self.session.cluster, self.shell.user_ns.get("spark")
        if not cluster.in_kernel:
            print(f"spark is a variable of {cluster.name}, and needs no start")
            return
        if variable is not None and not hasattr(variable, "sparkContext"):
            raise UsageError(
                f"your variable spark ({type(variable).__name__}) would be replaced: del spark, or rename it."
            )
        spec = parsing.parse(shlex.join(arguments), configured(self.defaults))
        refused = cluster.check(spec, self.shell.user_ns)
        if refused is not None:
            raise UsageError(refused.message)
        try:
            with ThreadPoolExecutor(1) as background:
                self.shell.user_ns["spark"] = background.submit(cluster.spark, spec).result()
        except CannotStart as error:
            raise UsageError(str(error)) from None
        status = cluster.status()
        print(
            f"spark runs on {cluster.name}"
            + (f", with {counted(status.slots, 'slot')}" if isinstance(status, Ready) else "")
        )

    def _check(self, arguments: list[str]) -> None:
        print(check.report(self.session.cluster))

    def _runs(self, arguments: list[str]) -> None:
        try:
            wanted = query.parse(" ".join(arguments))
        except query.QueryError as error:
            raise UsageError(f"{error}.") from None
        print(listed(wanted))

    def _of_history(self, verb: str, arguments: list[str]) -> None:
        if verb == "reproduce":
            history.reproduce(self.session, self.shell, arguments)
        elif verb == "import":
            print(history.import_(arguments))
        else:
            print(getattr(history, verb)(self.session, arguments))

    def _show(self, arguments: list[str]) -> None:
        word = _one(arguments, "%ddl show RUN")
        search = self.session.find_search(word)
        if search is not None:
            print(search)
            return
        run = self.session.find(word)
        if display.can_click(self.shell) and run in self.session.live():
            display.show_live(run, waiting=False)
            return
        print(run_text.describe(run))
        if display.in_notebook(self.shell):
            display.show_static(run)

    def _attach(self, arguments: list[str]) -> None:
        word = _one(arguments, "%ddl attach RUN")
        record = store.find_search(word)
        attached: Run | Search
        if record is None:
            attached = self.session.attach(word, self.choice.at)
            state = f"is {attached.state} on {attached.cluster}"
        else:
            attached = self.session.attach_search(record, self.shell.user_ns, self.choice.at)
            state = "continues"
        self._define(attached)
        if display.can_click(self.shell):
            display.show_live(attached, waiting=False)
        else:
            print(f"{attached.name} {state}; {attached.name}.wait() waits for its end")

    def _define(self, attached: Run | Search) -> None:
        """Define the variable of what was attached, unless the user has another of this name."""
        variable = self.shell.user_ns.get(attached.name)
        if variable is None or isinstance(variable, type(attached)):
            self.shell.user_ns[attached.name] = attached
        else:
            what = type(attached).__name__.lower()
            print(f"your variable {attached.name} is kept; %ddl show {attached.id} shows the {what}")

    def _logs(self, arguments: list[str]) -> None:
        if len(arguments) not in (1, 2) or not all(_RANK.fullmatch(word) for word in arguments[1:]):
            raise UsageError("write: %ddl logs RUN [RANK]")
        run = self.session.find(arguments[0])
        try:
            print(run_text.logs(run, int(arguments[1]) if len(arguments) == 2 else None), end="")
        except LookupError as error:
            raise UsageError(str(error)) from None

    def _stop(self, arguments: list[str]) -> None:
        word = _one(arguments, "%ddl stop RUN")
        search = self.session.find_search(word)
        print(run_text.stop(self.session.find(word)) if search is None else ask_to_stop(search).text)

    def _scale(self, arguments: list[str]) -> ScalingReport:
        return scale.scale(arguments, self.session, self.shell.user_ns)

    def _release(self, arguments: list[str]) -> None:
        print(release.release(arguments, self.session))

    def _acquire(self, arguments: list[str]) -> None:
        print(release.acquire(arguments, self.session))

    def _cache(self, arguments: list[str]) -> None:
        if arguments not in ([], ["--clear"]):
            raise UsageError("write: %ddl cache [--clear]")
        print(cache.report(self.session.cluster, configured(self.defaults).get("cache"), bool(arguments)))

    def _predict(self, arguments: list[str]) -> None:
        print(predict.predict(predict.parse(arguments), self.session, self.shell.user_ns))

    def _evaluate(self, arguments: list[str]) -> None:
        print(evaluate.evaluate(evaluate.parse(arguments), self.session, self.shell.user_ns))

    def _serve(self, arguments: list[str]) -> None:
        def tell(line: str) -> None:
            print(line, flush=True)

        print(serve.run(serve.parse(arguments), self.session.find, tell))

    def _serving(self, arguments: list[str]) -> None:
        if arguments:
            raise UsageError("write: %ddl serving")
        print(serve.listed())

    def _tfrecord(self, arguments: list[str]) -> None:
        print(tfrecord.write(tfrecord.parse(arguments), self.session.cluster, self.shell.user_ns))

    def _monitor(self, arguments: list[str]) -> None:
        run = monitor.monitor(monitor.parse(arguments), self.session, self.shell.user_ns)
        self.shell.user_ns[run.name] = run
        if display.can_click(self.shell):
            display.show_live(run, waiting=False)
        else:
            print(f"{run.name} watches the log; {run.name}.stop() or %ddl stop {run.name} ends it")

    def _clean(self, arguments: list[str]) -> None:
        print(clean.clean(*clean.parse(arguments)))


def _cluster_hint(kind: str) -> str:
    """For a word that names no kind of cluster: what the user probably has."""
    if kind.startswith(("http://", "https://")):
        return f" For a Livy: %ddl use livy {as_word(kind)}"
    if kind.partition(":")[0] in ("spark", "yarn", "k8s", "local", "mesos"):
        return " Create the session with SparkSession.builder.master(...): auto finds it."
    return nearest(kind, CLUSTERS)


def _one(arguments: list[str], usage: str) -> str:
    if len(arguments) != 1:
        raise UsageError(f"write: {usage}")
    return arguments[0]
