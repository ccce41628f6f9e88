"""The clusters that execute runs: an embedded Spark, and the Spark of a Livy session."""
