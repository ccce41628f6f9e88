"""Whether the connections of a run are encrypted: where Spark encrypts its own, or the run asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import strategies
from ..run_spec import RunSpec
from ..spark import certificates
from ..spark.settings import conf_of

if TYPE_CHECKING:
    from pyspark import SparkContext


#: Any of these has Spark encrypt something of its own.
_OF_SPARK = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.io.encryption.enabled")
#: This one encrypts the connections over which Spark hands out the run's secret and certificate.
_OF_ITS_CONNECTIONS = _OF_SPARK[0]

_REFUSED = (
    "%s, and TensorFlow's own connections, which --strategy %s uses, cannot be encrypted: use --strategy allreduce or "
    "ps, or --encrypt no"
)
_CLEAR_TEXT = (
    "Spark encrypts (%s), and this run's connections are not encrypted, because of --encrypt no: gradients, weights, "
    "metrics and printed lines cross the network between %d hosts in clear text"
)
KEYS_IN_THE_CLEAR = (
    "the workers' connections are encrypted, and Spark hands out their keys over connections that are not: set %s"
    % _OF_ITS_CONNECTIONS
)


def certificate(sc: SparkContext, spec: RunSpec) -> str | None:
    """`Credentials.certificate` of a run. ValueError for a strategy whose connections cannot be encrypted."""
    choice = spec.encrypt or "auto"
    by_spark = next(iter(settings(sc)), None)
    if choice == "no" or (choice == "auto" and by_spark is None):
        return None
    if spec.strategy in strategies.TF_DISTRIBUTE:
        reason = "--encrypt yes is set" if by_spark is None else "%s is set" % by_spark
        raise ValueError(_REFUSED % (reason, spec.strategy))
    return certificates.make(sc, spec.run)


def settings(sc: SparkContext) -> list[str]:
    """The names of Spark's settings that encrypt something of its own."""
    return [name for name in _OF_SPARK if _is_set(sc, name)]


def clear_text_warning(sc: SparkContext, hosts: set[str]) -> str | None:
    """What to tell a user whose Spark encrypts, of a run that does not; None where it has one host or Spark does not.

    hosts: of the workers and of the driver.
    """
    by_spark = settings(sc)
    return _CLEAR_TEXT % (", ".join(by_spark), len(hosts)) if by_spark and len(hosts) > 1 else None


def keys_are_exposed(sc: SparkContext) -> bool:
    """Whether who listens on the network reads the secrets that Spark hands out to its executors."""
    return not _is_set(sc, _OF_ITS_CONNECTIONS) and not (sc.master or "").startswith("local")


def _is_set(sc: SparkContext, name: str) -> bool:
    return (conf_of(sc).get(name) or "").strip().lower() == "true"
