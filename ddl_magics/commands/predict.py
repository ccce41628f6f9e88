"""`%ddl predict`: a DataFrame with predictions where the notebook's DataFrames are.

The new DataFrame is lazy; the next cell uses it like any other DataFrame of the Livy session or of this kernel.
"""

from __future__ import annotations

from ddl_magics.commands import scored_model
from ddl_magics.commands.kernel import Kernel


def predict(
    kernel: Kernel,
    model: str,
    data: str,
    name: str,
    features: tuple[str, ...],
    output: str,
    on_error: str,
    batch_size: int,
) -> str:
    """Define the DataFrame `name`; returns a line with its new columns.

    Raises:
        UsageError, CannotScore, LookupError: there is no such model or DataFrame, or it cannot be scored.
    """
    cluster = kernel.session.cluster
    scoring = scored_model.find(model, kernel.session).request(data, features, batch_size)
    columns = cluster.predict(scoring, name, output, on_error, kernel.namespace)
    location = "" if cluster.in_kernel else f" on {cluster.name}"
    listed = ", ".join(f"{column} ({kind})" for column, kind in columns)
    return f"{name}{location} is {data} with {listed}; its rows are scored when they are needed"
