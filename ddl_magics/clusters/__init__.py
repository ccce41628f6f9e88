"""Where a run is executed."""
