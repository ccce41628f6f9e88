"""Scaling reports: one cell with several numbers of workers, what was measured, and what other numbers would do."""

from ddl_magics.scaling.report import ScalingReport

__all__ = ["ScalingReport"]
