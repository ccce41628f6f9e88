"""What ranks are told before they start: made from the spec of a run on the driver, in one place, and frozen.

To have an option known on the ranks, give `JobConfig` a field, and `JobConfig.from_spec` its value.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Mapping, TypeVar

from .. import strategies, target
from ..checkpoints.checkpoint import Position
from ..collectives import compression
from ..collectives.compression import Compression
from ..histories import History
from ..parameter_server import update_rules
from ..parameter_server.rule_spec import RuleSpec
from ..target import Target
from ..transport.credentials import Credentials

if TYPE_CHECKING:
    from ..data.records import CacheUse, Manifest

Config = TypeVar("Config", bound="JobConfig")


@dataclass(frozen=True)
class JobConfig:
    """What all ranks of an attempt have in common.

    credentials: of all connections. driver: (host, port) of its listener. spark: Spark's version.
    workers: the number of ranks. executor_cores: of each executor. manifest: of the rows that --data gave each rank,
    as `feed.Feed` has it, or None; cache: where they may be, and are to be kept. batch_size: as --batch-size says, or
    None without --data. transform: as --transform says, or None.
    prewarm: keep a process with TensorFlow imported for the next run. attempt: from 1; of a rank that is started again
    alone, its own. resume: the checkpoints that the attempt continues from. resumes_run: they are another run's.
    stall: seconds without a step that count as the death of a rank, or None. stall_notice: seconds after which they are
    reported, or None for the usual.
    folder: the notebook's, which may be on the ranks' machines; None where it is not.
    target: at which every fit ends. epochs: where it ends at the latest, or None.
    set: values of the cell's parameters as text, by name. trial: the run's number in its search; None outside of one.
    provenance: report which packages the rank has. reference: report how the rows of --data are distributed.
    reported: {fit: history} so far, for a rank that is started again while the others continue; else None.
    """

    cell: str
    credentials: Credentials
    driver: tuple[str, int]
    spark: str
    strategy: str
    workers: int
    executor_cores: int
    seed: int
    rule: RuleSpec | None = None
    window: int | None = None
    parameter_servers: int = 1
    batch_size: int | None = None
    manifest: Manifest | None = None
    transform: str | None = None
    cache: CacheUse | None = None
    compression: Compression | None = None
    sync_batchnorm: bool = False
    sync_noise: bool = False
    gather: str = "auto"
    checkpoint_every: int | None = None
    prewarm: bool = True
    resumes_run: bool = False
    folder: str | None = None
    stall: float | None = None
    stall_notice: float | None = None
    target: Target | None = None
    epochs: int | None = None
    set: Mapping[str, str] | None = None
    trial: int | None = None
    provenance: bool = True
    reference: bool = True
    attempt: int = 1
    resume: tuple[Position, ...] = ()
    reported: Mapping[int, History] | None = None

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], **of_the_job: Any) -> JobConfig:
        """The configuration for `spec`, the JSON of a RunSpec; of_the_job: the fields that a spec does not have."""
        return cls(
            cell=spec["cell"],
            strategy=spec["strategy"],
            seed=spec["seed"],
            rule=update_rules.parse(spec["rule"]) if spec["rule"] else None,
            window=spec["window"],
            parameter_servers=spec.get("ps") or 1,
            batch_size=spec["batch_size"],
            transform=spec.get("transform"),
            compression=compression.read(spec["compression"]) if spec.get("compression") else None,
            sync_batchnorm=bool(spec.get("sync_batchnorm")),
            sync_noise=bool(spec.get("sync_noise")),
            gather=spec.get("gather") or "auto",
            checkpoint_every=spec.get("checkpoint_every"),
            prewarm=spec.get("prewarm") is not False,
            resumes_run=bool(spec.get("resume")),
            folder=spec.get("folder"),
            stall=spec.get("stall"),
            stall_notice=spec.get("stall_notice"),
            target=target.read(spec["target"]) if spec.get("target") else None,
            epochs=spec.get("epochs"),
            set=spec.get("set"),
            trial=spec.get("trial"),
            provenance=spec.get("provenance") is not False,
            reference=spec.get("reference") is not False,
            **of_the_job,
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads: of plain values, as Spark's workers know no class of this package."""
        value: dict[str, Any] = json.loads(json.dumps({**asdict(self), "credentials": self.credentials.to_json()}))
        return value

    @classmethod
    def from_json(cls: type[Config], value: Mapping[str, Any]) -> Config:
        known = {one.name for one in fields(cls)}
        given = {name: each for name, each in value.items() if name in known}
        given["credentials"] = Credentials.from_json(given["credentials"])
        given["driver"] = tuple(given["driver"])
        for name, kind in (("rule", RuleSpec), ("compression", Compression), ("target", Target)):
            if given[name] is not None:
                given[name] = kind(*given[name])
        given["resume"] = tuple(Position(*each) for each in given["resume"])
        if given["reported"] is not None:
            given["reported"] = {int(fit): history for fit, history in given["reported"].items()}
        return cls(**given)

    def of_rank(self, rank: int, host: str, scratch: str, gpus: list[str] | None = None) -> RankConfig:
        """The configuration of one rank; the arguments are `RankConfig`'s fields."""
        given = {one.name: getattr(self, one.name) for one in fields(JobConfig)}
        return RankConfig(rank=rank, host=host, scratch=scratch, gpus=gpus, **given)

    @property
    def in_ensemble(self) -> bool:
        """Whether each rank trains a model of its own."""
        return self.strategy == strategies.ENSEMBLE

    @property
    def models(self) -> int:
        """How many models the ranks train: all together one, or each its own."""
        return self.workers if self.in_ensemble else 1

    @property
    def uses_tf_distribute(self) -> bool:
        """Whether the processes exchange what TensorFlow has them exchange, and not this library."""
        return self.strategy in strategies.TF_DISTRIBUTE

    @property
    def size(self) -> int:
        """How many ranks this library trains a model on together."""
        return 1 if self.in_ensemble or self.uses_tf_distribute else self.workers

    @property
    def local_updates(self) -> bool:
        """Whether each rank updates its own weights with its own batches, and meets the others now and then."""
        return strategies.local_updates(self.strategy, self.rule)

    @property
    def reduces_gradients(self) -> bool:
        """Whether all ranks take every step together: gradients are summed over them."""
        return self.strategy == "allreduce" and self.size > 1 and not self.local_updates


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
