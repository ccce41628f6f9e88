"""`RunSpec`: the options of one `%%distributed` cell, for the notebook, the driver and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

#: Fields of a spec that no option of the cell's line sets.
NO_OPTIONS = ("run", "cell", "checkpoints", "resume_uri", "folder", "parent", "trial", "epochs", "monitor")

#: Name of a field in stored runs of 0.1.0 -> its name now.
FORMER_NAMES = {"spare": "prewarm"}


def under_current_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """A stored spec, which may be one of 0.1.0, with the current names of its fields."""
    return {FORMER_NAMES.get(name, name): value for name, value in record.items()}


@dataclass(frozen=True)
class RunSpec:
    """What a cell asks for. `to_record` makes the JSON object for `driver.launch` and the store.

    `rule` and `window` are None for a run without an update rule, `ps` for one without parameter servers, `batch_size`
    without `data`. `resume` is the name or id of a run, for the driver always its id; `checkpoints` is then the folder
    with that run's files on the notebook's machine, and `resume_uri` its --checkpoint. `prewarm`, `provenance` and
    `reference` None mean True, `release` None means no. `folder` is the notebook's, to which the paths of `files` are
    relative.
    `set` holds values of the cell's parameters, as text. `trials` makes a search of the cell; its trials are runs with
    the id of the search as `parent`, and the number of the trial in it. `warm_start` is the name or id of an earlier
    search, in the stored spec of a search always its id. `epochs` is where every `fit` ends at the latest, in the runs
    of a scaling report, whose `parent` is the run whose cell they measure. `tensorboard` and `mlflow` are where the
    notebook writes the run while it trains.
    `monitor` is what a monitor watches, which is no training: it has the strategy "monitor", and no workers.
    `wait`, `dry_run` and `send` are for the notebook alone: `wait` None means to wait where nobody can click, and
    `send` holds names of the notebook's variables.
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
    where: str | None = None
    cache: str | None = None
    features: tuple[str, ...] | None = None
    label: str | None = None
    weight: str | None = None
    transform: str | None = None
    sparse: tuple[str, ...] | None = None
    batch_size: int | None = None
    validation: float | str | None = None
    sequence_length: int | None = None
    order_by: str | None = None
    horizon: int | None = None
    sequence_stride: int | None = None
    group_by: tuple[str, ...] | None = None
    seed: int | None = None
    timeout: float | None = None
    out: str | None = None
    gpus: int | None = None
    compression: str | None = None
    sync_batchnorm: bool | None = None
    sync_noise: bool | None = None
    gather: str | None = None
    encrypt: str | None = None
    attempts: int | None = None
    stall: float | None = None
    target: str | None = None
    checkpoint: str | None = None
    checkpoint_every: int | None = None
    resume: str | None = None
    checkpoints: str | None = None
    resume_uri: str | None = None
    prewarm: bool | None = None
    release: str | None = None
    provenance: bool | None = None
    tensorboard: str | None = None
    mlflow: str | None = None
    reference: bool | None = None
    set: Mapping[str, str] | None = None
    trials: int | None = None
    search: str | None = None
    prune: str | None = None
    objective: str | None = None
    parallel: int | None = None
    warm_start: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    wait: bool | None = None
    dry_run: bool | None = None
    send: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None
    folder: str | None = None
    parent: str | None = None
    trial: int | None = None
    epochs: int | None = None
    monitor: Mapping[str, Any] | None = None

    def to_record(self) -> dict[str, Any]:
        record = asdict(self)
        del record["wait"], record["send"], record["dry_run"]
        for name in ("features", "group_by", "files", "sparse"):
            record[name] = None if record[name] is None else list(record[name])
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RunSpec:
        """The spec of a stored run, without fields that this version does not know.

        Raises:
            ValueError: a field has a value of another type than it can have.
        """
        values = {name: value for name, value in under_current_names(record).items() if name in _TYPES}
        for name, value in values.items():
            if type(value) not in _TYPES[name] or (type(value) is list and not all(type(v) is str for v in value)):
                raise ValueError(f"{name} cannot be {value!r:.40}")
            if type(value) is list:
                values[name] = tuple(value)
        return cls(**values)


#: Type of a field -> the types in which JSON stores it, where they are others.
_STORED: Mapping[Any, set[type]] = {float: {float, int}, tuple: {list}, Mapping: {dict}}


def _stored_types(hint: Any) -> set[type]:
    types = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    plain = (get_origin(each) or each for each in types)
    return {stored for each in plain for stored in _STORED.get(each, {each})}


_TYPES = {name: _stored_types(hint) for name, hint in get_type_hints(RunSpec).items()}
