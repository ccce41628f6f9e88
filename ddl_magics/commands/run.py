"""`ddl-magics run`: a notebook, or a file of cells, from a terminal or by a scheduler."""

from __future__ import annotations

import importlib.util
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from ddl_magics.commands import values
from ddl_magics.commands.answer import Answer
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.use import CLUSTERS, checked_url
from ddl_magics.errors import NotInstalled
from ddl_magics.options.redaction import as_word
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunRecord, SearchRecord
from ddl_magics.unattended import source
from ddl_magics.wording import nearest

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ddl_magics.clusters.livy_batch import Batch
    from ddl_magics.runs.batch_run import BatchRun
    from ddl_magics.runtime.run_spec import RunSpec
    from ddl_magics.unattended.background import Background
    from ddl_magics.unattended.execution import Outcome

KEYS = {
    "file": "that was run",
    "state": "FINISHED, STOPPED or FAILED; with --detach, or Ctrl-C of --batch, RUNNING, unless it has ended",
    "error": "why it has not come to its end, in one line, or null",
    "runs": f"that it has started, the oldest first; of each {', '.join(values.RUN)}",
    "searches": f"that it has started; of each {', '.join(values.SEARCH)}",
    "output": "the executed notebook of --output, or null",
    "process": "with --detach: the number of the process that follows the runs, else null",
    "log": "with --detach: the file with what it prints, else null",
    "batch": "with --batch: its URL at the Livy, else null",
    "out": "with --batch: the folder with the model, else null",
}
#: The exit status of a command that Ctrl-C has ended.
_INTERRUPTED = 128 + signal.SIGINT


def read_cluster(text: str) -> str:
    """The value of --cluster."""
    if text in CLUSTERS:
        return text
    if "/" in text or ":" in text:
        return checked_url(text)
    raise UsageError(
        f"--cluster takes the URL of a Livy, {', '.join(CLUSTERS)}, not {as_word(text)}.{nearest(text, CLUSTERS)}"
    )


def run(
    kernel: Kernel,
    file: str,
    options: tuple[str, ...],
    cluster: str | None,
    session: str | None,
    token_from: str | None,
    kernel_name: str | None,
    output: str | None,
    detach: bool,
    batch: bool,
) -> Answer:
    """Execute the file in a kernel of its own.

    Args:
        kernel: of this process, which runs nothing.
        file: a notebook, a file of cells, or a script.
        options: of `%%distributed`, for a script.
        cluster: as for `%ddl use`, with a URL for the Livy there; None for what the file chooses.
        session, token_from: as for `%ddl use`.
        kernel_name: of the Jupyter kernel; None for that of the notebook.
        output: where the executed notebook is written.
        detach: return when the first run has started.
        batch: train the file's only cell as a batch of the Livy, without a kernel.

    Raises:
        UsageError: the file cannot be read, or neither the kernel nor the batch starts.
        NotInstalled: nbclient or ipykernel is missing.
    """
    _require("nbclient", "nbformat", "ipykernel")
    if batch:
        assert cluster is not None, "the table says that --batch needs --cluster"
        return _in_batch(Path(file).expanduser(), options, cluster, token_from, detach)
    path, executed = Path(file).expanduser(), None if output is None else Path(output).expanduser()
    notebook = source.read(path, options)
    if executed is not None and not executed.parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {executed.parent}.")
    if detach:
        flags = {"--cluster": cluster, "--session": session, "--token-from": token_from, "--output": output}
        words = [file, *_typed({**flags, "--kernel-name": kernel_name}), *(["--", *options] if options else [])]
        return _detached(path, words)
    _begin(notebook, path, cluster, session, token_from)
    return _ran(path, notebook, kernel_name or _kernel_of(notebook), executed)


def _in_batch(path: Path, options: Sequence[str], cluster: str, token_from: str | None, detach: bool) -> Answer:
    from ddl_magics.clusters import livy_batch, livy_config, livy_session
    from ddl_magics.clusters.livy_http import LivyHttp
    from ddl_magics.unattended.batch import spec_of
    from ddl_magics.unattended.execution import STATUSES

    if cluster in CLUSTERS and cluster != "livy":
        raise UsageError(f"--batch runs on a Livy: --cluster URL, or livy for that of sparkmagic, not {cluster}.")
    if token_from is not None and cluster in CLUSTERS:
        raise UsageError("--token-from needs the URL that the token is for: --cluster URL.")
    spec = spec_of(path, options)
    report = partial(print, file=sys.stderr, flush=True)
    run, batch = _stored(spec), None
    try:
        http = LivyHttp(livy_config.connection(None if cluster in CLUSTERS else cluster, token_from))
        seconds = max(livy_session.START_SECONDS, livy_config.startup_seconds())
        batch = livy_batch.submit(http, spec, livy_config.session_properties(), seconds, report)
        run.submitted(batch)
        goes_on = f"{spec.name} is trained by {batch.name}: ddl-magics runs says how it is, ddl-magics stop ends it"
        if detach:
            return _of_batch(path, run, batch, goes_on)
        report(goes_on)
        outcome = livy_batch.follow(batch, partial(print, flush=True), spec.timeout, run.follow)
    except livy_batch.Deleted as error:
        outcome = livy_batch.Outcome(ev.STOPPED if run.folder.requested("stop") else ev.FAILED, str(error))
    except livy_session.NoSession as error:
        if batch is None:
            run.folder.remove()
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        if batch is not None:
            return _of_batch(path, run, batch, goes_on, _INTERRUPTED)
        run.folder.remove()
        return Answer("no batch was created", {**_value(path, [], []), "state": ev.STOPPED}, _INTERRUPTED)
    run.enter(outcome.state, outcome.error)
    error_line = [f"{path} has failed: {outcome.error}"] if outcome.state == ev.FAILED else []
    text = "\n".join([f"{spec.name}  {outcome.state}  {spec.out}", *error_line])
    return _of_batch(path, run, batch, text, STATUSES[outcome.state])


def _stored(spec: RunSpec) -> BatchRun:
    """The run in the store, where `ddl-magics runs` finds it."""
    from ddl_magics.runs.batch_run import BatchRun

    try:
        return BatchRun.create(spec)
    except (OSError, ValueError) as error:
        raise UsageError(f"the run cannot be stored ({error}): free space, or set JUPYTER_DATA_DIR.") from None


def _of_batch(path: Path, run: BatchRun, batch: Batch | None, text: str, status: int = 0) -> Answer:
    record = run.folder.record()
    assert record is not None and batch is not None, "they are there by now"
    of_batch = {"batch": batch.url, "out": record.spec["out"], "state": record.state if record.over else ev.RUNNING}
    failed = record.message if record.state == ev.FAILED else None
    return Answer(text, {**_value(path, [record], []), **of_batch, "error": failed}, status)


def _require(*modules: str) -> None:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise NotInstalled(f"ddl-magics run needs {' and '.join(missing)}: pip install nbclient ipykernel.")


def _kernel_of(notebook: NotebookNode) -> str:
    """The name of the notebook's kernel; empty for that of any Python, which is then this one."""
    name = str(notebook.metadata.get("kernelspec", {}).get("name", ""))
    return "" if name == "python3" else name


def _begin(
    notebook: NotebookNode, path: Path, cluster: str | None, session: str | None, token_from: str | None
) -> None:
    """Put a cell before the others that loads the extension and chooses the cluster."""
    import nbformat

    lines = []
    if path.suffix == ".py" or cluster is not None:
        lines.append("%load_ext ddl_magics")
    if cluster is not None:
        words = [cluster] if cluster in CLUSTERS else ["livy", cluster]
        words += _typed({"--session": session, "--token-from": token_from})
        lines.append(f"%ddl use {' '.join(map(shlex.quote, words))}")
    if lines:
        notebook.cells.insert(0, nbformat.v4.new_code_cell("\n".join(lines), metadata={"tags": ["injected-cluster"]}))


def _typed(flags: Mapping[str, str | None]) -> list[str]:
    """The options that have a value, as words."""
    return [text for flag, value in flags.items() if value is not None for text in (flag, value)]


def _ran(path: Path, notebook: NotebookNode, kernel_name: str, executed: Path | None) -> Answer:
    import nbformat

    from ddl_magics.unattended.background import tell_kernel
    from ddl_magics.unattended.execution import Execution

    execution = Execution(notebook, path.resolve().parent, kernel_name, tell_kernel)
    try:
        outcome = execution.run()
    finally:
        if executed is not None:
            nbformat.write(notebook, executed)
    value = {**_value(path, outcome.runs, outcome.searches), "state": outcome.state, "error": outcome.error or None}
    return Answer("\n".join(_lines(path, outcome)), {**value, "output": executed}, outcome.status)


def _detached(path: Path, words: Sequence[str]) -> Answer:
    from ddl_magics.unattended import background

    started = background.start(words)
    value = {**_value(path, started.runs, started.searches), "process": started.pid, "log": started.output}
    if started.status is None:
        return Answer(_following(started), {**value, "state": ev.RUNNING})
    lines = background.last_lines(started.output)
    state = ev.FAILED if started.status else ev.FINISHED
    error = lines[-1] if started.status and lines else None
    return Answer("\n".join(lines), {**value, "state": state, "error": error}, started.status)


def _value(path: Path, runs: Sequence[RunRecord], searches: Sequence[SearchRecord]) -> dict[str, Any]:
    return {
        **dict.fromkeys(KEYS),
        "file": path,
        "runs": [values.of_run(record) for record in runs],
        "searches": [values.of_search(record) for record in searches],
    }


def _lines(path: Path, outcome: Outcome) -> list[str]:
    """What became of the file: a line for each run and search, and one for the error."""
    records: list[RunRecord | SearchRecord] = [*outcome.runs, *outcome.searches]
    lines = [f"{record.name}  {record.state}  {record.id}" for record in records]
    if outcome.error:
        lines.append(f"{path} has failed: {outcome.error}")
    return lines or [f"{path} has started no run"]


def _following(started: Background) -> str:
    records: list[RunRecord | SearchRecord] = [*started.searches, *started.runs]
    name = records[0].name
    return (
        f"{name} is followed by process {started.pid}, which writes {started.output}: %ddl show {name} shows it, and "
        f"%ddl stop {name} ends it"
    )
