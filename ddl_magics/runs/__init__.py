"""Runs in a kernel: started, followed, recorded, ended, attached again."""

from ddl_magics.runs.run import Run
from ddl_magics.runs.run_queue import RunQueue
from ddl_magics.runs.timeline import Timeline

__all__ = ["Run", "RunQueue", "Timeline"]
