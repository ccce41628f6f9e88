"""`%ddl predict`: the options, and a DataFrame with predictions where the notebook's DataFrames are.

It is a line, and no cell: in the next cell, `scored` is a DataFrame like any other, of the session or of this kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.clusters import scoring
from ddl_magics.clusters.data_names import frames, is_frame
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.commands import scored_model, scoring_words
from ddl_magics.commands.scored_model import ScoredModel
from ddl_magics.errors import CannotScore
from ddl_magics.session.session import Session
from ddl_magics.wording import nearest

USAGE = (
    "%ddl predict RUN|PATH --data DATAFRAME --name NEW [--features a b] [--output prediction] [--on-error fail|null]"
)
OPTIONS = ("--data", "--name", "--features", "--output", "--on-error", "--batch-size")


@dataclass(frozen=True)
class Request:
    """What to score, and what the new DataFrame is called."""

    model: str
    data: str
    name: str
    features: tuple[str, ...] = ()
    output: str = "prediction"
    on_error: str = "fail"
    batch_rows: int = 1024


def parse(arguments: Sequence[str]) -> Request:
    """UsageError, one line, where the words are no request."""
    model, given = scoring_words.read("predict", OPTIONS, USAGE, arguments)
    missing = next((option for option in ("--data", "--name") if option not in given), None)
    if missing:
        raise UsageError(f"{missing} is missing. Write: {USAGE}")

    def one(option: str, default: str = "") -> str:
        return given.get(option, [default])[0]

    return Request(
        model,
        one("--data"),
        scoring_words.variable(one("--name")),
        tuple(scoring_words.columns(given.get("--features", ()))),
        one("--output", Request.output),
        one("--on-error", Request.on_error),
        scoring_words.batch_rows(one("--batch-size", str(Request.batch_rows))),
    )


def predict(request: Request, session: Session, namespace: MutableMapping[str, Any]) -> str:
    """Define the new DataFrame; returns a line that says its new columns.

    Raises:
        UsageError: there is no such model or DataFrame, or it cannot be scored.
    """
    cluster = session.cluster
    try:
        model = scored_model.find(request.model, session)
        if isinstance(cluster, LivyCluster):
            asked = {
                "data": request.data,
                "name": request.name,
                "features": model.features(request.features),
                "output": request.output,
                "batch_rows": request.batch_rows,
                "on_error": request.on_error,
                "transform": model.transform,
            }
            columns = cluster.predict(model.key, model.file, asked)["columns"]
            where = f" on {cluster.name}"
        else:
            columns, where = _predict_here(request, model, namespace), ""
    except (CannotScore, LookupError) as error:
        raise UsageError(str(error)) from None
    listed = ", ".join(f"{name} ({kind})" for name, kind in columns)
    return f"{request.name}{where} is {request.data} with {listed}; its rows are scored when they are needed"


def frame_here(name: str, namespace: Mapping[str, Any]) -> Any:
    """A DataFrame of the notebook. `CannotScore` where there is none of this name."""
    if name not in namespace:
        raise CannotScore(f"--data: there is no DataFrame {name}.{nearest(name, frames(namespace))}")
    return namespace[name]


def _predict_here(request: Request, model: ScoredModel, namespace: MutableMapping[str, Any]) -> list[tuple[str, str]]:
    frame = frame_here(request.data, namespace)
    if not is_frame(namespace.get(request.name, frame)):
        raise CannotScore(f"--name {request.name}: there is another variable of that name; choose another")
    scored = scoring.predict(
        frame,
        model.file,
        features=model.features(request.features),
        output=request.output,
        batch_size=request.batch_rows,
        on_error=request.on_error,
        **model.transform_here(namespace),
    )
    namespace[request.name] = scored
    return [(each.name, each.dataType.simpleString()) for each in scored.schema.fields[len(frame.columns) :]]
