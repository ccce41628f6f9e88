"""On the executors: a Spark task's supervisor, and the process of the rank that it starts."""
