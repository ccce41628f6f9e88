"""Names for the objects of pyspark, of which private parts without types are used, and which need not be installed."""

from typing import Any

SparkContext = Any
SparkConf = Any
TaskContext = Any
Rdd = Any
DataFrame = Any
