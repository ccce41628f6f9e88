"""`%ddl predict`: the options, and a DataFrame with predictions where the notebook's DataFrames are.

It is a line, and no cell: in the next cell, `scored` is a DataFrame like any other, of the session or of this kernel.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Cluster
from ddl_magics.clusters.data_names import frames, is_frame
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.scoring import training_inputs
from ddl_magics.errors import CannotScore
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run
from ddl_magics.wording import nearest

USAGE = "%ddl predict RUN --data DATAFRAME --name NEW [--features a b] [--output prediction] [--on-error fail|null]"
OPTIONS = ("--data", "--name", "--features", "--output", "--on-error", "--batch-size")


@dataclass
class Request:
    """What to score, and what the new DataFrame is called."""

    run: str
    data: str = ""
    name: str = ""
    features: list[str] = field(default_factory=list)
    output: str = "prediction"
    on_error: str = "fail"
    batch_size: int = 1024


def parse(arguments: Sequence[str]) -> Request:
    """UsageError, one line, where the words are no request."""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if not words or words[0].startswith("--"):
        raise UsageError(f"write: {USAGE}")
    request, words = Request(words[0]), words[1:]
    while words:
        option = words.pop(0)
        if option not in OPTIONS:
            raise UsageError(f"%ddl predict has no option {as_word(option)}.{nearest(option, OPTIONS)} Write: {USAGE}")
        given: list[str] = []
        while words and not words[0].startswith("--") and (option == "--features" or not given):
            given.append(words.pop(0))
        if not given:
            raise UsageError(f"{option} needs a value. Write: {USAGE}")
        _set(request, option, given)
    if not request.data or not request.name:
        raise UsageError(f"{'--name' if request.data else '--data'} is missing. Write: {USAGE}")
    if not request.name.isidentifier():
        raise UsageError(f"--name {as_word(request.name)} is no name of a variable")
    return request


def _set(request: Request, option: str, given: list[str]) -> None:
    if option == "--features":
        request.features = [name for word in given for name in word.split(",") if name]
    elif option == "--batch-size":
        if not given[0].isdigit():
            raise UsageError(f"--batch-size must be a number of rows, not {as_word(given[0])}")
        request.batch_size = int(given[0])
    else:
        setattr(request, option[2:].replace("-", "_"), given[0])


def predict(request: Request, run: Run, cluster: Cluster, namespace: MutableMapping[str, Any]) -> str:
    """Define the new DataFrame; returns a line that says its new columns.

    Raises:
        UsageError: there is no such DataFrame, or it cannot be scored.
    """
    try:
        if isinstance(cluster, LivyCluster):
            known = request.features or training_inputs(run.name, run.spec, run.events)
            asked = {
                "data": request.data,
                "name": request.name,
                "features": known,
                "output": request.output,
                "batch_rows": request.batch_size,
                "on_error": request.on_error,
            }
            columns = cluster.predict(run.id, run.trained().file, asked)["columns"]
            where = f" on {cluster.name}"
        else:
            columns, where = _predict_here(request, run, namespace), ""
    except (CannotScore, LookupError) as error:
        raise UsageError(str(error)) from None
    listed = ", ".join(f"{name} ({kind})" for name, kind in columns)
    return f"{request.name}{where} is {request.data} with {listed}; its rows are scored when they are needed"


def _predict_here(request: Request, run: Run, namespace: MutableMapping[str, Any]) -> list[tuple[str, str]]:
    if request.data not in namespace:
        hint = nearest(request.data, frames(namespace))
        raise CannotScore(f"--data: there is no DataFrame {request.data}.{hint}")
    if not is_frame(namespace.get(request.name, namespace[request.data])):
        raise CannotScore(f"--name {request.name}: there is another variable of that name; choose another")
    frame = namespace[request.data]
    scored = run.predict(
        frame,
        request.features or None,
        output=request.output,
        batch_size=request.batch_size,
        on_error=request.on_error,
    )
    namespace[request.name] = scored
    return [(each.name, each.dataType.simpleString()) for each in scored.schema.fields[len(frame.columns) :]]
