"""Finds out by trial what a loss, a metric, a step or a model does to the rows of a batch. Import it from here.

`try_loss` and `adds_up` try losses and metrics; `training/step_trial.py` tries whole steps, within a `Sandbox`.
"""

from .assignments import depends_on_rows, recorded_assignments, set_alike
from .inlined_functions import inlined_functions
from .loss_trial import try_loss
from .metric_trial import adds_up, starts_at_zero
from .row_trial import COUPLED, INPUT, MEAN, OUTPUT, SUM, TARGET, WEIGHT, Leaf, Verdict
from .sandbox import Sandbox
from .simulated_gather import SimulatedGather

__all__ = [
    "COUPLED",
    "INPUT",
    "MEAN",
    "OUTPUT",
    "SUM",
    "TARGET",
    "WEIGHT",
    "Leaf",
    "Sandbox",
    "SimulatedGather",
    "Verdict",
    "adds_up",
    "depends_on_rows",
    "inlined_functions",
    "recorded_assignments",
    "set_alike",
    "starts_at_zero",
    "try_loss",
]
