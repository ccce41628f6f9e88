"""What a `%%distributed` cell asks for, as the notebook, the driver and the store know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

#: Fields of a spec that no option of the cell's line sets.
NO_OPTIONS = ("run", "cell", "checkpoints", "resume_uri")


@dataclass(frozen=True)
class RunSpec:
    """What a cell asks for. `to_record` is the JSON object that `driver.launch` and the store get.

    `rule` and `window` are None where the strategy has no update rule, `ps` unless it is "ps", `batch_size` without
    `data`. `resume` names a run, for the driver by its id; `checkpoints` is the folder where the notebook has that
    one's files, `resume_uri` what its --checkpoint was. `spare` False means that no process is kept for the next run.
    `wait` and `send` are the notebook's own: `wait` None means "where nobody can click", `send` are names of its
    variables.
    """

    run: str = ""
    name: str = ""
    cell: str = ""
    strategy: str = "allreduce"
    rule: str | None = None
    workers: int = 2
    window: int | None = None
    ps: int | None = None
    data: str | None = None
    features: tuple[str, ...] | None = None
    label: str | None = None
    batch_size: int | None = None
    validation: float | str | None = None
    seed: int | None = None
    timeout: float | None = None
    out: str | None = None
    gpus: int | None = None
    compression: str | None = None
    sync_batchnorm: bool | None = None
    attempts: int | None = None
    checkpoint: str | None = None
    checkpoint_every: int | None = None
    resume: str | None = None
    checkpoints: str | None = None
    resume_uri: str | None = None
    spare: bool | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    wait: bool | None = None
    send: tuple[str, ...] | None = None

    def to_record(self) -> dict[str, Any]:
        record = asdict(self)
        del record["wait"], record["send"]
        record["features"] = None if self.features is None else list(self.features)
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RunSpec:
        """The spec of a stored run; what this version does not know is left out."""
        known = {f.name for f in fields(cls)}
        values = {k: v for k, v in record.items() if k in known}
        if values.get("features") is not None:
            values["features"] = tuple(values["features"])
        return cls(**values)
