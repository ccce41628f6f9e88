"""How a run is shown where: a live widget and a lasting block in a notebook, text where nobody can click."""

from __future__ import annotations

from typing import Any

from ddl_magics.run import Run
from ddl_magics.runtime import events as ev
from ddl_magics.timeline import Event


def in_notebook(shell: Any) -> bool:
    """Whether the shell is a kernel's, so that MIME bundles are shown or stored."""
    return getattr(shell, "kernel", None) is not None


def can_click(shell: Any) -> bool:
    """Whether somebody sits before the cell: nbclient, papermill and nbconvert say that they cannot be asked."""
    return in_notebook(shell) and bool(getattr(shell.kernel, "_allow_stdin", False))


def show_live(run: Run, waiting: bool) -> None:
    """Display the live view and below it the block that stays in the saved notebook; both follow the run."""
    from IPython.display import display

    from ddl_magics.dashboard.live import LiveView

    view = LiveView(
        run_id=run.id,
        name=run.name,
        strategy=run.spec.strategy,
        workers=run.spec.workers,
        cluster=run.cluster,
        on_stop=run.request_stop,
        waiting=waiting,
    )
    display(view.widget)
    block = display(bundle(run), raw=True, display_id=True)

    def follow(events: list[Event]) -> None:
        view.feed(events)
        if any(event["kind"] == "state" and event["state"] in ev.TERMINAL for event in events):
            block.update(bundle(run), raw=True)

    run.listen(follow)


def show_static(run: Run) -> None:
    """Display the block that stays readable without a kernel, as the run stands now."""
    from IPython.display import display

    display(bundle(run), raw=True)


def bundle(run: Run) -> dict[str, Any]:
    """The lasting block of a run as a MIME bundle."""
    from ddl_magics.dashboard.static import static_bundle

    about = {
        "id": run.id,
        "name": run.name,
        "strategy": run.spec.strategy,
        "workers": run.spec.workers,
        "cluster": run.cluster,
        "state": run.state,
    }
    return static_bundle(about, run.events)
