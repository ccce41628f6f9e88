"""Checkpoints: their file, the driver's copies, and those in the cluster's storage."""
