"""What a run ran with, as the driver and the ranks see it: packages, settings, values, DataFrames."""
