"""`%ddl serve` and `python -m ddl_magics serve`: the options, what is served, and what is printed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from IPython.core.error import UsageError

from ddl_magics.commands.run_or_path import run_or_path
from ddl_magics.errors import CannotExport, CannotServe, DistributedCellError
from ddl_magics.models.export import new_folder
from ddl_magics.models.registry import Registry
from ddl_magics.options.line import split_values
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run
from ddl_magics.serving import deployment, servable
from ddl_magics.serving.environment import keras_here
from ddl_magics.serving.kafka_writer import address
from ddl_magics.serving.servable import ServableModel
from ddl_magics.serving.servers import Served, describe, find_served, list_served
from ddl_magics.wording import nearest

USAGE = (
    "%ddl serve RUN [--name NAME] [--port N] [--detached] [--log FOLDER|kafka://HOST:PORT/TOPIC] [--log-inputs no] "
    "[--log-sample 0.1], "
    "%ddl serve RUN --to kserve|azureml FOLDER, or %ddl serve --stop NAME"
)
#: Option -> how many values it takes.
OPTIONS = {
    "--name": 1,
    "--port": 1,
    "--detached": 0,
    "--log": 1,
    "--log-inputs": 1,
    "--log-sample": 1,
    "--to": 2,
    "--stop": 1,
}


@dataclass(frozen=True)
class Request:
    """What the words after `%ddl serve` ask for.

    Attributes:
        model: a run, the folder of an export, or FOLDER/NAME@VERSION of a registry; "" with `stop`.
        stop: the name of a served model that is to end, or "".
        to: the target and the folder of a deployment, or None.
        others: as for `launch.Request`.
    """

    model: str
    stop: str = ""
    to: tuple[str, str] | None = None
    name: str = ""
    port: int | None = None
    detached: bool = False
    log: str | None = None
    log_inputs: bool | None = None
    log_sample: float | None = None


def parse(arguments: Sequence[str]) -> Request:
    """UsageError, one line, where the words are no request."""
    words = split_values(arguments)
    models: list[str] = []
    given: dict[str, list[str]] = {}
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            models.append(word)
            continue
        if word not in OPTIONS:
            raise UsageError(f"%ddl serve has no option {as_word(word)}.{nearest(word, OPTIONS)} Write: {USAGE}")
        given[word], words = words[: OPTIONS[word]], words[OPTIONS[word] :]
        if len(given[word]) < OPTIONS[word] or any(value.startswith("--") for value in given[word]):
            raise UsageError(f"{word} needs {OPTIONS[word]} value{'s' * (OPTIONS[word] > 1)}. Write: {USAGE}")
    if len(models) != (0 if "--stop" in given else 1) or ("--stop" in given and len(given) > 1):
        raise UsageError(f"write: {USAGE}")
    to = given.get("--to")
    if to is not None and set(given) - {"--to", "--name"}:
        raise UsageError("--to writes files and serves nothing: it goes with --name alone.")
    if to is not None and to[0] not in deployment.TARGETS:
        raise UsageError(
            f"--to must be {' or '.join(deployment.TARGETS)}, not {as_word(to[0])}.{nearest(to[0], deployment.TARGETS)}"
        )
    return Request(
        model=models[0] if models else "",
        stop=given.get("--stop", [""])[0],
        to=None if to is None else (to[0], to[1]),
        name=given.get("--name", [""])[0],
        port=_port(given.get("--port")),
        detached="--detached" in given,
        log=_log_address(given.get("--log")),
        log_inputs=_yes(given.get("--log-inputs")),
        log_sample=_share(given.get("--log-sample")),
    )


def _port(given: Sequence[str] | None) -> int | None:
    if given is None:
        return None
    if not given[0].isdecimal() or not 0 < int(given[0]) < 2**16:
        raise UsageError(f"--port must be a number from 1 to 65535, not {as_word(given[0])}.")
    return int(given[0])


def _log_address(given: Sequence[str] | None) -> str | None:
    if given is not None and given[0].startswith("kafka:"):
        try:
            address(given[0])
        except ValueError as error:
            raise UsageError(f"--log: {error}.") from None
    return None if given is None else given[0]


def _yes(given: Sequence[str] | None) -> bool | None:
    if given is None:
        return None
    if given[0] not in ("yes", "no"):
        raise UsageError(f"--log-inputs must be yes or no, not {as_word(given[0])}.")
    return given[0] == "yes"


def _share(given: Sequence[str] | None) -> float | None:
    if given is None:
        return None
    try:
        share = float(given[0])
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"--log-sample must be a share above 0, up to 1, not {as_word(given[0])}.")
    return share


def run(request: Request, find: Callable[[str], Run], tell: Callable[[str], None]) -> str:
    """Do what is asked; returns the lines that say so.

    Args:
        request: what to do.
        find: returns the run of a name or id.
        tell: is called with lines about the progress.

    Raises:
        UsageError: it cannot be done.
    """
    try:
        if request.stop:
            return find_served(request.stop).stop()
        with tempfile.TemporaryDirectory(prefix="ddl-serve-") as scratch:
            model = _model(request.model, find, Path(scratch))
            if request.to is not None:
                return _deploy(request, model)
            logging = (request.log, request.log_inputs, request.log_sample)
            return served_lines(model.serve(request.name, request.port, request.detached, *logging, tell))
    except (CannotExport, CannotServe, LookupError) as error:
        raise UsageError(str(error)) from None
    except (DistributedCellError, ValueError, ImportError) as error:  # the run failed, or Keras cannot load the model
        raise UsageError(f"{as_word(request.model)} cannot be served: {error}") from None


def listed() -> str:
    """What `%ddl serving` prints."""
    lines = [describe(served) for served in list_served()]
    return "\n".join(lines) if lines else "no model is served; %ddl serve RUN serves one"


def served_lines(served: Served) -> str:
    """Where a model is served, until when, and how to call it."""
    end = "until %ddl serve --stop " + served.name if served.settings["detached"] else "until this process ends"
    log = f"; requests are logged to {_shown(served.settings['log'])}" if served.settings["log"] else ""
    return (
        f"{served.name} version {served.version} is served at {served.url}, gRPC at {served.grpc}, {end}{log}\n"
        + served.how_to_call()
    )


def _model(word: str, find: Callable[[str], Run], scratch: Path) -> ServableModel:
    if "@" in word:
        path, _, which = word.rpartition("@")
        uri, _, name = path.rpartition("/")
        registry = Registry(uri or ".")
        folder = registry.fetch(name, which or None, scratch)
        return servable.of_export(folder, name, registry.version(name, which or None))
    found = run_or_path(word, find)
    if isinstance(found, Path):
        return servable.of_export(found)
    return servable.of_trained(found.name, found.id, found.trained())


def _deploy(request: Request, model: ServableModel) -> str:
    assert request.to is not None
    target, folder = request.to
    name = request.name or model.name
    keras = model.keras or keras_here() or "3"
    whole = Path(folder).expanduser()
    with new_folder(whole) as part:
        written = deployment.write(target, part, name, model.run, keras, lambda path: model.write("mlflow", path))
    files = ", ".join(path.name for path in written)
    return f"{whole} has the model and {files}; the comments in {written[0].name} say what to do, and what was checked"


def _shown(log: str) -> str:
    """A log's folder as it is seen from the notebook's."""
    here = Path.cwd()
    return str(Path(log).relative_to(here)) if "://" not in log and Path(log).is_relative_to(here) else log
