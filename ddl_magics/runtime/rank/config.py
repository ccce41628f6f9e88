"""What ranks are told before they start: the spec of the run, and what the driver adds to it; frozen."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Mapping, TypeVar

from .. import strategies, target
from ..checkpoints.checkpoint import Position
from ..collectives import compression
from ..collectives.compression import Compression
from ..histories import History
from ..parameter_server import update_rules
from ..parameter_server.rule_spec import RuleSpec
from ..run_spec import RunSpec
from ..target import Target
from ..transport.credentials import Credentials

if TYPE_CHECKING:
    from ..data.records import CacheUse, Manifest

Config = TypeVar("Config", bound="JobConfig")


@dataclass(frozen=True)
class JobConfig:
    """What all ranks of an attempt have in common.

    credentials: of all connections. driver: (host, port) of its listener. spark: Spark's version. executor_cores: of
    each executor. manifest: of the rows that --data gave each rank, as `feed.Feed` has it, or None; cache: where they
    may be, and are to be kept; whole_data: whether each rank has all of them. max_workers: how many ranks there
    may be, where they come and go. attempt: from 1; of a rank that is started again alone, its own. resume: the
    checkpoints that the attempt continues from. reported: {fit: history} so far, for a rank that is started again while
    the others continue; else None.
    """

    spec: RunSpec
    credentials: Credentials
    driver: tuple[str, int]
    spark: str
    executor_cores: int
    manifest: Manifest | None = None
    cache: CacheUse | None = None
    whole_data: bool = False
    max_workers: int = 0
    attempt: int = 1
    resume: tuple[Position, ...] = ()
    reported: Mapping[int, History] | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads: of plain values, as Spark's workers know no class of this package."""
        converted = {"credentials": self.credentials.to_json(), "spec": self.spec.to_record()}
        return dict(json.loads(json.dumps({**asdict(self), **converted})))

    @classmethod
    def from_json(cls: type[Config], value: Mapping[str, Any]) -> Config:
        names = {attribute.name for attribute in fields(cls)}
        arguments = {name: argument for name, argument in value.items() if name in names}
        arguments["spec"] = RunSpec.from_record(arguments["spec"])
        arguments["credentials"] = Credentials.from_json(arguments["credentials"])
        arguments["driver"] = tuple(arguments["driver"])
        arguments["resume"] = tuple(Position(*position) for position in arguments["resume"])
        if arguments["reported"] is not None:
            arguments["reported"] = {int(fit): history for fit, history in arguments["reported"].items()}
        return cls(**arguments)

    def of_rank(self, rank: int, host: str, scratch: str, gpus: list[str] | None = None) -> RankConfig:
        """The configuration of one rank; the arguments are `RankConfig`'s fields."""
        common = {attribute.name: getattr(self, attribute.name) for attribute in fields(JobConfig)}
        return RankConfig(rank=rank, host=host, scratch=scratch, gpus=gpus, **common)

    @property
    def workers(self) -> int:
        """The number of ranks."""
        return self.spec.ranks

    @property
    def seed(self) -> int:
        assert self.spec.seed is not None, "the notebook chooses a seed where the cell has none"
        return self.spec.seed

    @cached_property
    def rule(self) -> RuleSpec | None:
        """The update rule of --rule."""
        return update_rules.parse(self.spec.rule) if self.spec.rule else None

    @cached_property
    def compression(self) -> Compression | None:
        return compression.read(self.spec.compression) if self.spec.compression else None

    @cached_property
    def target(self) -> Target | None:
        """At which every fit ends."""
        return target.read(self.spec.target) if self.spec.target else None

    @property
    def in_ensemble(self) -> bool:
        """Whether each rank trains a model of its own."""
        return self.spec.strategy == strategies.ENSEMBLE

    @property
    def models(self) -> int:
        """How many models the ranks train: all together one, or each its own."""
        return self.workers if self.in_ensemble else 1

    @property
    def uses_tf_distribute(self) -> bool:
        """Whether the processes exchange what TensorFlow has them exchange, and not this library."""
        return self.spec.strategy in strategies.TF_DISTRIBUTE

    @property
    def changes(self) -> bool:
        """Whether ranks may come and go while the others train on; otherwise all restart with another number."""
        return self.spec.may_change and (self.manifest is None or self.whole_data)

    @property
    def regroups(self) -> bool:
        """Whether ranks that meet in collectives may come and go while the others train on."""
        return self.changes and self.spec.strategy in strategies.COLLECTIVE

    @property
    def size(self) -> int:
        """How many ranks this library trains a model on together; where they come and go, `Peers` has the number."""
        if self.in_ensemble or self.uses_tf_distribute:
            return 1
        return max(2, self.workers) if self.changes else self.workers

    def share_of_data(self, rank: int) -> tuple[int, int]:
        """(number, how many there are) of the share of --data that a rank has: the only one, where each has all."""
        return (0, 1) if self.whole_data else (rank, self.workers)

    @property
    def local_updates(self) -> bool:
        """Whether each rank updates its own weights with its own batches, and meets the others now and then."""
        return strategies.local_updates(self.spec.strategy, self.rule)

    @property
    def reduces_gradients(self) -> bool:
        """Whether all ranks take every step together: gradients are summed over them."""
        return self.spec.strategy == "allreduce" and self.size > 1 and not self.local_updates


@dataclass(frozen=True)
class RankConfig(JobConfig):
    """What one rank is told: the job's configuration, and who it is.

    host: its own address. scratch: its folder. gpus: addresses of the GPUs that Spark gave it; None where Spark
    manages none.
    """

    rank: int = 0
    host: str = "127.0.0.1"
    scratch: str = ""
    gpus: list[str] | None = None

    @property
    def is_chief(self) -> bool:
        return self.rank == 0

    @property
    def rank_seed(self) -> int:
        """The run's seed; in an ensemble each rank has its own."""
        return self.seed + (self.rank if self.in_ensemble else 0)
