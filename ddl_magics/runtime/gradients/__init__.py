"""What ranks sum within and after a training step: gradients, metrics, statistics of the batch."""
