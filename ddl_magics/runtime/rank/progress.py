"""How far a rank is in its training, and how long its step has taken."""

from __future__ import annotations

from dataclasses import dataclass

from ..collectives.collective import Timings


@dataclass
class Progress:
    """Counters that the ranks compare in their collectives, all from 0; fit is -1 before the first.

    step: batches of this epoch. sync_rounds: exchanges of ranks with updates of their own, in this epoch.
    cell_collectives: those that the cell itself has called. exchanges: of gradients, in the run. evaluated: batches of
    validation, in the run. row_blocks: of --data, exchanged by the ranks. training: a fit, or a loop of the cell's own,
    is in progress.
    """

    fit: int = -1
    epoch: int = 0
    step: int = 0
    sync_rounds: int = 0
    cell_collectives: int = 0
    exchanges: int = 0
    evaluated: int = 0
    row_blocks: int = 0
    training: bool = False

    def begin_fit(self) -> None:
        """A fit, or a loop of the cell's own, begins."""
        self.fit += 1
        self.epoch = self.step = 0
        self.training = True


@dataclass
class StepTimings:
    """Seconds of the step in progress.

    waited: in collectives, or for the parameter server. Of these, copied: to move and add data on this host; and wired:
    on the network. hidden: for which data was moved while the step computed; not waited.
    """

    waited: float = 0.0
    copied: float = 0.0
    wired: float = 0.0
    hidden: float = 0.0

    def reset(self) -> None:
        self.waited = self.copied = self.wired = self.hidden = 0.0

    def add(self, seconds: float, timings: Timings, hidden: float = 0.0) -> None:
        """Count a collective: its `elapsed` and `timings`, or `waited`, `timings` and `hidden` of `Buckets`."""
        self.hidden += hidden
        self.waited += seconds
        self.copied += timings.copy
        self.wired += timings.wire
