"""`%ddl spark`: define spark, the SparkSession of this machine's runs, before the first run."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from IPython.core.error import UsageError

from ddl_magics.clusters.base import Ready
from ddl_magics.clusters.local_spark import CannotStart
from ddl_magics.commands.kernel import Kernel
from ddl_magics.options.parsing import make_spec
from ddl_magics.wording import counted


def start(kernel: Kernel, workers: int | None, conf: Mapping[str, str] | None) -> str:
    """Start the session. workers, conf: None for the defaults of the kernel."""
    cluster, variable = kernel.session.cluster, kernel.namespace.get("spark")
    if not cluster.in_kernel:
        return f"spark is a variable of {cluster.name}, and needs no start"
    if variable is not None and not hasattr(variable, "sparkContext"):
        raise UsageError(f"your variable spark ({type(variable).__name__}) would be replaced: del spark, or rename it.")
    typed = {"workers": workers, "conf": conf}
    spec = make_spec({name: value for name, value in typed.items() if value is not None}, kernel.settings())
    refused = cluster.check(spec, kernel.namespace)
    if refused is not None:
        raise UsageError(refused.message)
    try:
        with ThreadPoolExecutor(1) as background:
            kernel.namespace["spark"] = background.submit(cluster.spark, spec).result()
    except CannotStart as error:
        raise UsageError(str(error)) from None
    status = cluster.status()
    slots = f", with {counted(status.slots, 'slot')}" if isinstance(status, Ready) else ""
    return f"spark runs on {cluster.name}{slots}"
