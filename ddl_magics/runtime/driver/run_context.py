"""What the attempts of a run share: where they report, what stops them, and what ranks connect to."""

from __future__ import annotations

from dataclasses import dataclass

from ..checkpoints.checkpoint_files import CheckpointFiles
from ..monitoring.reference import Sketches
from ..provenance.packages import Distinct
from .driver_network import DriverNetwork
from .executor_watch import ExecutorWatch
from .journal import Journal
from .limits import RunLimits
from .rank_rows import RankRows
from .run_files import RunFiles
from .server_process import ParameterServers


@dataclass(frozen=True)
class RunContext:
    """sketches: of the rows of --data, for the run's reference. packages: of the ranks."""

    journal: Journal
    limits: RunLimits
    network: DriverNetwork
    rows: RankRows
    files: RunFiles
    checkpoints: CheckpointFiles
    sketches: Sketches
    packages: Distinct
    executors: ExecutorWatch
    servers: ParameterServers | None = None
