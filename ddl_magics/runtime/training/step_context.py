"""What takes part in the steps of a rank, beside Keras: made once, when Keras is hooked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..gradients.batch_loss import BatchLoss
from ..gradients.metric_sums import MetricSums
from ..gradients.sync_batchnorm import SyncBatchNorm
from ..gradients.traced_step import TracedStep
from ..gradients.whole_metrics import WholeMetrics
from ..gradients.within_step import WithinStep
from ..rank.config import RankConfig
from ..rank.rank import Rank
from .batch_lengths import BatchLengths
from .calls import Calls
from .noise import Noise
from .placement import Placement
from .rows import RowCounter
from .step_trial import StepTrial
from .step_weighing import StepWeighing


@dataclass(frozen=True)
class StepContext:
    """calls: the calls of Keras in progress. traced: the step that is being traced. within: exchanges in mid-step.

    metric_sums: sums the states of metrics over ranks; whole_metrics: updates those that do not add up with the rows of
    all ranks. lengths: agrees on lengths that a step takes from its rows. trial: finds out what a step does to rows;
    weighing: weighs its losses accordingly. placement: which rows are this rank's, where ranks come and go.
    """

    rank: Rank
    calls: Calls
    rows: RowCounter
    traced: TracedStep
    within: WithinStep
    noise: Noise
    lengths: BatchLengths
    batchnorm: SyncBatchNorm
    batch_loss: BatchLoss
    metric_sums: MetricSums
    whole_metrics: WholeMetrics
    weighing: StepWeighing
    trial: StepTrial
    placement: Placement

    @property
    def config(self) -> RankConfig:
        return self.rank.config

    @classmethod
    def of_rank(cls, rank: Rank, layer_class: Any, batchnorm_class: type) -> StepContext:
        """layer_class, batchnorm_class: of the Keras in use."""
        config, reporter, traced = rank.config, rank.reporter, TracedStep()
        within, metric_sums = WithinStep(rank.peers, rank.errors, traced), MetricSums(rank.peers)
        placement = Placement(rank.peers)
        gather, noise = config.spec.gather or "auto", Noise(config, traced, within, placement)
        weighing = StepWeighing(traced, within, reporter)
        return cls(
            rank=rank,
            calls=Calls(),
            rows=RowCounter(),
            traced=traced,
            within=within,
            noise=noise,
            lengths=BatchLengths(traced, within, noise),
            batchnorm=SyncBatchNorm(config, reporter, traced, within, batchnorm_class),
            batch_loss=BatchLoss(traced, within, reporter, gather),
            metric_sums=metric_sums,
            whole_metrics=WholeMetrics(traced, within, reporter, metric_sums, gather, config.local_updates),
            weighing=weighing,
            trial=StepTrial(weighing, layer_class),
            placement=placement,
        )
