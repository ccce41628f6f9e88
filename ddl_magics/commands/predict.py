"""`%ddl predict`: a DataFrame with predictions where the notebook's DataFrames are.

The new DataFrame is lazy; the next cell uses it like any other DataFrame of the Livy session or of this kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from IPython.core.error import UsageError

from ddl_magics.commands import scored_model
from ddl_magics.commands.kernel import Kernel
from ddl_magics.errors import CannotScore


@dataclass(frozen=True)
class PredictRequest:
    """The model and the DataFrame that it scores, by their names; `name` is the new DataFrame's."""

    model: str
    data: str
    name: str
    features: tuple[str, ...]
    output: str
    on_error: str
    batch_size: int


def predict(request: PredictRequest, kernel: Kernel) -> str:
    """Define the new DataFrame; returns a line with its new columns.

    Raises:
        UsageError: there is no such model or DataFrame, or it cannot be scored.
    """
    cluster = kernel.session.cluster
    try:
        model = scored_model.find(request.model, kernel.session)
        scoring = model.request(request.data, request.features, request.batch_size)
        columns = cluster.predict(scoring, request.name, request.output, request.on_error, kernel.namespace)
    except (CannotScore, LookupError) as error:
        raise UsageError(str(error)) from None
    location = "" if cluster.in_kernel else f" on {cluster.name}"
    listed = ", ".join(f"{name} ({kind})" for name, kind in columns)
    return f"{request.name}{location} is {request.data} with {listed}; its rows are scored when they are needed"
