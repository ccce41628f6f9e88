"""A hint below a NameError for a name that only a `%%distributed` cell defines, such as `model`.

And below an AttributeError for a method of a run without parentheses: `digits.model.predict(x)`.
"""

from __future__ import annotations

import inspect
import symtable
from collections.abc import Callable
from typing import Any

from ddl_magics.runs import Run
from ddl_magics.session.session import Session

#: Names that the workers define for a cell.
WORKER_NAMES = ("ddl", "dataset", "validation")


def after_cells(session: Session) -> Callable[[Any], None]:
    """The callback for IPython's event post_run_cell."""

    def hint(result: Any) -> None:
        error = result.error_in_exec
        if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
            name = str(error.name)
            text = session.variables.absent.get(name) or name_hint(name, list(session.runs.values()))
        elif isinstance(error, AttributeError) and inspect.isfunction(error.obj) and error.obj in vars(Run).values():
            text = f"{error.obj.__name__} is a method of the run: call it, with ()."
        else:
            return
        if text:
            print(text)

    return hint


def before_cells(session: Session) -> Callable[[Any], None]:
    """The callback for IPython's event pre_run_cell: the variables of runs that have ended meanwhile."""

    def set_variables(info: Any) -> None:
        session.variables.before_cell(str(info.raw_cell))

    return set_variables


def name_hint(name: str, runs: list[Run]) -> str | None:
    """One line that says where an undefined name is defined, or None. runs: of this kernel, the newest last."""
    for run in reversed(runs):
        if _defines(run.spec.cell, name):
            return (
                f"The cell of {run.name} has defined {name} on its workers: {run.name}.model() is the trained model, "
                f"{run.name}.history its metrics, and {run.name}.result the value of the cell's last expression."
            )
    return f"{name} is defined in %%distributed cells only." if name in WORKER_NAMES else None


def _defines(cell: str, name: str) -> bool:
    try:
        symbol = symtable.symtable(cell, "<cell>", "exec").lookup(name)
    except (KeyError, SyntaxError, ValueError):
        return False
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
