"""What several tests share: clusters, kernels, runs and peers of theirs. `from support import launch`."""
