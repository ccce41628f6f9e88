"""`RunSpec`: all that a cell asks for, as one frozen value, from the notebook to the driver, the ranks and the store.

An option is a row of ddl_magics/options/table.py, a field of `RunSpec`, and the code that reads `spec.FIELD`; on a rank
that is `config.spec.FIELD`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Mapping

from .strategies import ELASTIC, ENSEMBLE

#: Fields of a spec that no option of the cell's line sets.
NO_OPTIONS = (
    "run",
    "cell",
    "min_workers",
    "continues_streams",
    "checkpoints",
    "resume_uri",
    "folder",
    "parent",
    "trial",
    "epochs",
    "monitor",
    "stall_notice",
)

#: Name of a field in stored runs of 0.1.0 -> its name now.
FORMER_NAMES = {"spare": "prewarm"}

#: Fields that only the notebook reads.
_NOT_STORED = ("wait", "send", "dry_run")


def under_current_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """A stored spec, which may be one of 0.1.0, with the current names of its fields."""
    return {FORMER_NAMES.get(name, name): value for name, value in record.items()}


@dataclass(frozen=True)
class ErrorMetric:
    """The error of a row that a monitor compares with that of the training.

    kind: as `labels.errors` takes it. name: for people. before: its mean at training time, if that is known.
    """

    kind: str = "absolute"
    name: str = "error"
    before: float | None = None


@dataclass(frozen=True)
class MonitorSpec:
    """What a monitor watches, and how.

    reference: a `monitoring.reference.Reference`. log, labels, checkpoint: addresses; labels may name a DataFrame.
    window, every: seconds. delay, label_delay: as Spark writes intervals. once: end after catching up with the log.
    model: its name. cell: the cell that trains it again.
    """

    reference: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    checkpoint: str = ""
    window: float = 60.0
    delay: str = "10 minutes"
    label_delay: str = "1 day"
    labels: str | None = None
    every: float | None = None
    once: bool = False
    model: str = ""
    cell: str = ""
    error: ErrorMetric = ErrorMetric()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> MonitorSpec:
        """Of its JSON object. Raises ValueError as `RunSpec.from_record` does."""
        values = _checked(cls, record)
        if "error" in values:
            values["error"] = ErrorMetric(**_checked(ErrorMetric, values["error"]))
        return cls(**values)


@dataclass(frozen=True)
class RunSpec:
    """What a cell asks for. `to_record` makes the JSON object for `driver.launch`, the ranks and the store.

    `rule` and `window` are None for a run without an update rule, `ps` for one without parameter servers, `batch_size`
    without `data`. `data` names a DataFrame or has the URI of files; `validation` is a fraction of the rows, the name
    of a DataFrame, or a date. `seed` is None until the notebook has chosen one;
    `continues_streams` says that it has, and that ranks take over the session's random numbers if that has seeded them.
    `min_workers` is the MIN of --workers MIN..MAX, whose MAX is `workers`; None where one number was given.
    `timeout` and `stall` are in seconds;
    `exclude` is "bad" where the run is not to start on bad executors.
    `stall_notice`, which only tests set, is after how many seconds a stall is reported. `out`, `checkpoint` and
    `resume_uri` are URIs of folders.
    `resume` is the name or id of a run, for the driver always its id; `checkpoints` is then the folder with that run's
    files on the notebook's machine, and `resume_uri` its --checkpoint. `prewarm`, `provenance`, `reference` and
    `variables` None mean True, `release` None means no, `gather`, `shard_optimizer` and `encrypt` None mean "auto".
    `folder` is the notebook's, to which the paths of `files` are relative, or None where executors have no such folder.
    `set` holds values of the cell's parameters, as text. `trials` makes a search of the cell; its trials are runs with
    the id of the search as `parent`, and the number of the trial in it. `warm_start` is the name or id of an earlier
    search, in the stored spec of a search always its id. `epochs` caps every `fit`; scaling runs set it, whose `parent`
    is the run whose cell they measure. `tensorboard` and `mlflow` are where the notebook writes the run while it
    trains.
    `monitor` is for a monitor, which trains nothing: it has the strategy "monitor", and no workers.
    `wait`, `dry_run` and `send` are for the notebook alone: `wait` None means to wait where nobody can click, and
    `send` holds names of the notebook's variables.
    """

    run: str = ""
    name: str = ""
    cell: str = ""
    strategy: str = "allreduce"
    rule: str | None = None
    workers: int = 2
    min_workers: int | None = None
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
    pad: tuple[str, ...] | None = None
    batch_size: int | None = None
    validation: float | str | None = None
    sequence_length: int | None = None
    order_by: str | None = None
    horizon: int | None = None
    sequence_stride: int | None = None
    group_by: tuple[str, ...] | None = None
    seed: int | None = None
    continues_streams: bool = False
    timeout: float | None = None
    out: str | None = None
    gpus: int | None = None
    compression: str | None = None
    sync_batchnorm: bool | None = None
    sync_noise: bool | None = None
    feed: str | None = None
    gather: str | None = None
    shard_optimizer: str | None = None
    encrypt: str | None = None
    attempts: int | None = None
    stall: float | None = None
    exclude: str | None = None
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
    variables: bool | None = None
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
    monitor: MonitorSpec | None = None
    stall_notice: float | None = None

    @property
    def ranks(self) -> int:
        """How many ranks train: the workers that are asked for, but one where the strategy is single."""
        return 1 if self.strategy == "single" else self.workers

    @property
    def may_change(self) -> bool:
        """Whether ranks may come and go while the others train on, as far as the options tell.

        For that each rank must have all that the others have: not so with a sharded optimizer. What compression carries
        over to the next step would be lost with a rank.
        """
        apart = self.compression or self.shard_optimizer == "yes"
        return self.min_workers is not None and self.strategy in ELASTIC and not apart

    @property
    def min_slots(self) -> int:
        """With how many slots it begins, and goes on, where there are no more."""
        return self.ranks if self.min_workers is None else self.min_workers

    @property
    def bounds(self) -> str:
        """The value of --workers."""
        return str(self.workers) if self.min_workers is None else "%d..%d" % (self.min_workers, self.workers)

    @property
    def returns_variables(self) -> bool:
        """Whether the cell's variables come back: of one training of one model, and not of trials and measurements."""
        return self.variables is not False and self.parent is None and self.strategy not in (ENSEMBLE, "monitor")

    def to_record(self) -> dict[str, Any]:
        """A JSON object of plain values, which `from_record` reads."""
        record = {name: value for name, value in asdict(self).items() if name not in _NOT_STORED}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in record.items()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RunSpec:
        """The spec of a stored run, without fields that this version does not know.

        Raises:
            ValueError: a field has a value of another type than it can have.
        """
        values = _checked(cls, under_current_names(record))
        if values.get("monitor") is not None:
            values["monitor"] = MonitorSpec.from_record(values["monitor"])
        return cls(**values)


#: Annotation of a field -> the types that its values have in JSON.
_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "None": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "tuple[str, ...]": (list,),
    "Mapping[str, str]": (dict,),
    "Mapping[str, Any]": (dict,),
    "ErrorMetric": (dict,),
    "MonitorSpec": (dict,),
}


def _json_types(spec: type) -> dict[str, set[type]]:
    """Field of the dataclass -> types. Annotations are text: Python 3.8 cannot evaluate `int | None`."""
    annotations = {attribute.name: str(attribute.type).split(" | ") for attribute in fields(spec)}
    return {
        name: {json_type for kind in kinds for json_type in _JSON_TYPES[kind]} for name, kinds in annotations.items()
    }


_SPECS: tuple[type, ...] = (ErrorMetric, MonitorSpec, RunSpec)
_FIELDS = {kind: _json_types(kind) for kind in _SPECS}


def _checked(kind: type, record: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for the dataclass from its JSON object, without fields that it does not have; or ValueError."""
    types = _FIELDS[kind]
    values = {name: value for name, value in record.items() if name in types}
    for name, value in values.items():
        if type(value) not in types[name] or (type(value) is list and not all(type(item) is str for item in value)):
            raise ValueError("%s cannot be %.40r" % (name, value))
        if type(value) is list:
            values[name] = tuple(value)
    return values
