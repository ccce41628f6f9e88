"""What a verb works with: the session of a kernel, and what shows its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from ddl_magics.clusters.choice import Choice
from ddl_magics.runs import Run, ending
from ddl_magics.runs.ending import Ending
from ddl_magics.search import Search
from ddl_magics.session.session import Session


def _ask(session: Session, name_or_id: str) -> Ending:
    return ending.ask(session.find(name_or_id))


class Display:
    """The display of a terminal: shows nothing besides the text that a verb returns."""

    def show_live(self, started: Run | Search) -> bool:
        """Display a live view. Returns False where nobody can click: the caller then prints text."""
        return False

    def show_static(self, run: Run, text: str) -> bool:
        """Print the text, and display below it the block that needs no kernel. Returns False where none can be shown:
        the caller then prints the text.
        """
        return False

    def insert_cell(self, cell: str) -> None:
        """Insert a cell below the one that is executed."""


@dataclass(frozen=True)
class Kernel:
    """The kernel, or the process of the terminal, in which a verb runs.

    Attributes:
        session: its runs.
        namespace: the notebook's variables.
        settings: returns the values of %config Distributed, by field of `RunSpec`.
        display: shows runs.
        choice: the clusters that the kernel can use.
        end_run: ends a run of the session or the store, by name or id.
    """

    session: Session
    namespace: MutableMapping[str, Any] = field(default_factory=dict)
    settings: Callable[[], Mapping[str, Any]] = dict
    display: Display = field(default_factory=Display)
    choice: Choice = field(default_factory=lambda: Choice(None))
    end_run: Callable[[Session, str], Ending] = _ask
