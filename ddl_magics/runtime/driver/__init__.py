"""On the driver: launch, poll and stop runs; their jobs, attempts and results."""
