"""What the notebook asks a run to be: the JSON object that `api.launch` gets."""

from __future__ import annotations

from typing import Any, TypedDict


class _Required(TypedDict):
    run: str
    name: str
    cell: str
    strategy: str
    workers: int
    rule: str | None
    window: int | None
    batch_size: int | None
    seed: int


class RunSpec(_Required, total=False):
    """The record of a `RunSpec` of ddl_magics/options/spec.py. None means the same as a missing key.

    workers: as asked for; a run of the strategy "single" has one. data: the name of a DataFrame, or the URI of files.
    validation: a fraction of the rows, the name of a DataFrame, or a date. timeout: seconds. out, checkpoint,
    resume_uri: URIs of folders. resume: id of another run. checkpoints: folder on the notebook's disk with that run's
    checkpoints. prewarm: keep a process with TensorFlow imported for the next run. folder: the notebook's, if executors
    may have it. files: of --files, which `uploads` has. stall: seconds without a step that count as a worker's death.
    cache: as `CacheOption.read` takes it.
    stall_notice: seconds after which they are reported; for tests. target: text for `target.read`.
    set: values of the cell's parameters, as text. parent, trial: the search whose trial the run is, and its number
    there. epochs: where every fit ends at the latest. provenance: whether to report what the run ran with; None means
    True; reference: how its data is distributed. monitor: what `MonitorJob` needs, of a monitor, which is no training.
    """

    ps: int | None
    data: str | None
    where: str | None
    cache: str | None
    features: list[str] | None
    label: str | None
    weight: str | None
    transform: str | None
    sparse: list[str] | None
    validation: float | str | None
    sequence_length: int | None
    order_by: str | None
    horizon: int | None
    sequence_stride: int | None
    group_by: list[str] | None
    timeout: float | None
    out: str | None
    gpus: int | None
    compression: str | None
    sync_batchnorm: bool | None
    sync_noise: bool | None
    gather: str | None
    encrypt: str | None
    attempts: int | None
    checkpoint: str | None
    checkpoint_every: int | None
    resume: str | None
    checkpoints: str | None
    resume_uri: str | None
    prewarm: bool | None
    folder: str | None
    stall: float | None
    stall_notice: float | None
    target: str | None
    files: list[str] | None
    set: dict[str, str] | None
    parent: str | None
    trial: int | None
    epochs: int | None
    provenance: bool | None
    reference: bool | None
    monitor: dict[str, Any] | None
    conf: dict[str, str]
