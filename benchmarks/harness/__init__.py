"""What the benchmarks share: their report, the processes that they drive, and the environments that they measure in."""
