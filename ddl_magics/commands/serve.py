"""`%ddl serve` and `serving`: serve a model on this machine, or write the files to deploy it elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from IPython.core.error import UsageError

from ddl_magics.clusters import machine
from ddl_magics.commands.answer import Answer
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.run_or_path import run_or_path
from ddl_magics.errors import DistributedCellError
from ddl_magics.models.export import new_folder
from ddl_magics.models.registry import Registry
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run
from ddl_magics.runtime import scratch
from ddl_magics.serving import deployment, servable
from ddl_magics.serving.kafka_writer import address
from ddl_magics.serving.launch import Options
from ddl_magics.serving.servable import ServableModel
from ddl_magics.serving.servers import Served, describe, find_served, list_served
from ddl_magics.wording import nearest

_SERVED_KEYS = {
    "name": "of the model, in its URLs",
    "version": "that is served, a text",
    "url": "of HTTP",
    "grpc": "HOST:PORT of gRPC",
    "detached": "whether the server outlives the process that started it",
    "log": "where requests are logged, or null",
}
SERVE_KEYS = {
    **_SERVED_KEYS,
    "folder": "with --to: the new folder",
    "files": "with --to: the files in it that deploy the model",
    "stopped": "with --stop: whether the model was served until now",
}
SERVING_KEYS = {
    "models": f"of each {', '.join(_SERVED_KEYS)}, alive, problem (why it is not), requests, rate (requests/s), rates "
    "(of the last minutes), errors, recent_errors, dropped (missing in the log), latency (p50, p95, p99: seconds)"
}


def read_target(target: str, folder: str) -> tuple[str, str]:
    """The value of --to."""
    if target not in deployment.TARGETS:
        targets = deployment.TARGETS
        raise UsageError(f"--to must be {' or '.join(targets)}, not {as_word(target)}.{nearest(target, targets)}")
    return target, folder


def read_log(text: str) -> str:
    """The value of --log."""
    if text.startswith("kafka:"):
        try:
            address(text)
        except ValueError as error:
            raise UsageError(f"--log: {error}.") from None
    return text


def serve(
    kernel: Kernel,
    model: str | None,
    name: str | None,
    port: int | None,
    detached: bool,
    log: str | None,
    log_inputs: bool | None,
    log_sample: float | None,
    to: tuple[str, str] | None,
    stop: str | None,
) -> Answer:
    """Serve, deploy or stop a model. Progress is printed.

    Args:
        kernel: finds the run of a name or id.
        model: a run, the folder of an export, or FOLDER/NAME@VERSION of a registry; None with `stop`.
        name: of the model; None for its own.
        port, detached, log, log_inputs, log_sample: as for `launch.Options`.
        to: the target and the folder of a deployment, or None.
        stop: the name of a served model to stop, or None.

    Raises:
        UsageError, CannotExport, CannotServe, LookupError: the model cannot be served, deployed or stopped.
    """
    try:
        if stop is not None:
            served = find_served(stop)
            was_alive = served.alive
            return Answer(served.stop(), {"name": served.name, "stopped": was_alive})
        assert model is not None, "the table requires one of the two"
        with scratch.folder("serve") as temporary:
            source = None if "@" in model else run_or_path(model, kernel.session.find)
            servable_model = _registered(model, Path(temporary)) if source is None else _servable(source)
            if to is not None:
                return _deploy(servable_model, name, *to)
            if log is not None:
                _warn_unmonitored(source)
            options = Options(port, detached, log, log_inputs, log_sample)
            served = servable_model.serve(name or "", options, partial(print, flush=True))
            value = served.to_record()
            return Answer(served_lines(served), {key: value[key] for key in _SERVED_KEYS})
    except (DistributedCellError, ValueError, ImportError) as error:  # the run failed, or Keras cannot load the model
        raise UsageError(f"{as_word(model or '')} cannot be served: {error}") from None


def serving(kernel: Kernel) -> Answer:
    """The served models."""
    listed = list_served()
    lines = [describe(served) for served in listed] or ["no model is served; %ddl serve RUN serves one"]
    return Answer("\n".join(lines), {"models": [served.to_record() for served in listed]})


def served_lines(served: Served) -> str:
    """Where a model is served, until when, and how to call it."""
    lifetime = "until %ddl serve --stop " + served.name if served.settings["detached"] else "until this process ends"
    log = f"; requests are logged to {_relative(served.settings['log'])}" if served.settings["log"] else ""
    return (
        f"{served.name} version {served.version} is served at {served.url}, gRPC at {served.grpc}, {lifetime}{log}\n"
        + served.how_to_call()
    )


def _warn_unmonitored(model: Run | Path | None) -> None:
    """Print that requests to a model are logged, but cannot be monitored."""
    if isinstance(model, Run):
        try:
            model.reference_file()
        except LookupError as error:
            print(f"%ddl monitor cannot compare the requests: {error}", flush=True)


def _registered(reference: str, temporary: Path) -> ServableModel:
    """The model of a registry, REGISTRY/NAME@VERSION, which is fetched into a folder."""
    path, _, version = reference.rpartition("@")
    uri, _, name = path.rpartition("/")
    registry = Registry(uri or ".")
    folder = registry.fetch(name, version or None, temporary)
    return servable.of_export(folder, name, registry.version(name, version or None))


def _servable(source: Run | Path) -> ServableModel:
    if isinstance(source, Path):
        return servable.of_export(source)
    return servable.of_trained(source.name, source.id, source.trained())


def _deploy(model: ServableModel, name: str | None, target: str, folder: str) -> Answer:
    if model.remark:
        print(model.remark, flush=True)
    keras = model.keras or machine.installed("keras") or "3"
    deployed = Path(folder).expanduser()
    with new_folder(deployed) as unfinished:
        written = deployment.write(
            target, unfinished, name or model.name, model.run, keras, lambda path: model.write("mlflow", path)
        )
    files = ", ".join(path.name for path in written)
    text = (
        f"{deployed} has the model and {files}; the comments in {written[0].name} say what to do, and what was checked"
    )
    return Answer(text, {"name": name or model.name, "folder": deployed, "files": [path.name for path in written]})


def _relative(log: str) -> str:
    """The path of a log relative to the notebook's folder, if the log is inside it."""
    folder = Path.cwd()
    return str(Path(log).relative_to(folder)) if "://" not in log and Path(log).is_relative_to(folder) else log
