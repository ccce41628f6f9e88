"""The settings of a Spark application."""

from __future__ import annotations

from .pyspark_types import SparkConf, SparkContext


def conf_of(sc: SparkContext) -> SparkConf:
    """The settings of a context, to be read. `sc.getConf` copies them, with two calls to the JVM for each."""
    return sc._conf
