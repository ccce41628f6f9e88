"""The runtime's side of Spark: slots, GPUs, storage, the task of a rank, a context of its own, and Spark's errors."""
