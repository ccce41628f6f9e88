"""A rank of a run: its configuration, the state of its training, what it reports, how it meets the others."""

from .config import JobConfig, RankConfig
from .rank import Rank

__all__ = ["JobConfig", "Rank", "RankConfig"]
