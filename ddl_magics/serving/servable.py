"""A trained model, of a run or an export, that can be served here or deployed elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ddl_magics.clusters.scoring import description_of
from ddl_magics.errors import CannotExport
from ddl_magics.models import keras_version
from ddl_magics.models.export import Trained, write
from ddl_magics.models.export import copy as copy_export
from ddl_magics.runtime.lambda_layers import functions_in
from ddl_magics.serving import launch
from ddl_magics.serving.servers import Served
from ddl_magics.store import RunFolder, runs_folder
from ddl_magics.wording import plain


@dataclass(frozen=True)
class ServableModel:
    """A model that can be served or deployed.

    Attributes:
        name: the default name of the served model.
        write: writes an export in a format into an empty folder; "" for a format that this machine can serve.
        version: its number in a registry.
        keras: the version of Keras that saved it, if known.
        run: the id of its run, if known.
    """

    name: str
    write: Callable[[str, Path], None]
    version: int | None = None
    keras: str | None = None
    run: str = ""

    @property
    def remark(self) -> str:
        """One line about a model that none of this user's runs has trained, else empty."""
        record = RunFolder(runs_folder() / self.run).record() if self.run else None
        if record is not None and not record.imported:
            return ""
        name = plain(self.name)
        return f"{name} was trained elsewhere: no run of this machine has made it; use models of people you trust"

    def serve(self, name: str, options: launch.Options, report: Callable[[str], None]) -> Served:
        """Serve the model. name: empty for its own; report: as for `launch.serve`."""
        if self.remark:
            report(self.remark)
        options = replace(options, log=_absolute(options.log))
        write_export = partial(self.write, "")
        return launch.serve(launch.Request(name or self.name, write_export, options, self.version, self.keras), report)


def of_trained(name: str, run: str, trained: Trained) -> ServableModel:
    """A run's model. It is exported as an MLflow folder if MLflow and Keras are installed, else as a `.keras` file.

    With Lambda layers it is exported as a SavedModel: a server loads no bytecode, and has no functions of the notebook.
    """
    as_graph = functions_in(str(trained.file), compiled=False) != ([], [])

    def write_export(format: str, folder: Path) -> None:
        keras = find_spec("keras") is not None
        if as_graph and format:
            raise CannotExport(
                "MLflow does not load Lambda layers elsewhere: make them subclasses of keras.layers.Layer, or deploy "
                "its saved_model, run.export(path, 'saved_model')"
            )
        if as_graph and not keras:
            raise CannotExport(
                "a model with Lambda layers is served as a graph, which needs Keras: pip install tensorflow"
            )
        default = "saved_model" if as_graph else "mlflow" if keras and find_spec("mlflow") is not None else "keras"
        write(trained, folder, format or default)

    return ServableModel(name, write_export, keras=None if as_graph else keras_version.saved_by(trained.file), run=run)


def of_export(folder: Path, name: str = "", version: int | None = None) -> ServableModel:
    """The model of an export; its description names it unless `name` does.

    Raises:
        CannotExport: the folder is not an export.
        CannotServe: it says that no version of Keras has saved it.
    """
    description = description_of(folder)

    def copy(format: str, target: Path) -> None:
        if format not in ("", description["format"]):
            raise CannotExport(
                f"{folder} has the format {description['format']}: a deployment needs one in the format {format}"
            )
        copy_export(folder, target)

    keras = description["versions"].get("keras") if description["format"] != "saved_model" else None
    return ServableModel(
        name or str(description.get("name") or folder.resolve().name),
        copy,
        version,
        None if keras is None else keras_version.checked(keras),
        description["run"],
    )


def _absolute(log: str | None) -> str | None:
    """The log's address, with an absolute path for a folder of this machine."""
    return log if log is None or "://" in log else str(Path(log).expanduser().resolve())
