"""`%ddl predict`: the options, and a DataFrame with predictions where the notebook's DataFrames are.

It is a line, and no cell: in the next cell, `scored` is a DataFrame like any other, of the session or of this kernel.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.commands import scored_model, scoring_words
from ddl_magics.errors import CannotScore
from ddl_magics.session.session import Session

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
        scoring = model.request(request.data, request.features, request.batch_rows)
        columns = cluster.predict(scoring, request.name, request.output, request.on_error, namespace)
    except (CannotScore, LookupError) as error:
        raise UsageError(str(error)) from None
    where = "" if cluster.in_kernel else f" on {cluster.name}"
    listed = ", ".join(f"{name} ({kind})" for name, kind in columns)
    return f"{request.name}{where} is {request.data} with {listed}; its rows are scored when they are needed"
