"""Shows a run, or a search, in the notebook: a live widget, and a static block that stays in the saved notebook."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddl_magics.commands.kernel import Display
from ddl_magics.dashboard import pictures
from ddl_magics.runs import Run
from ddl_magics.runtime import events as ev
from ddl_magics.search import Search
from ddl_magics.search.text import summary
from ddl_magics.search.view import SearchView

#: How often the static block is refreshed during a run: a saved notebook shows it as it was then.
REFRESH_SECONDS = 30.0

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

    from ddl_magics.dashboard.live import LiveView, LiveWidget


def in_notebook(shell: Any) -> bool:
    """Whether the shell is a kernel's, so that a front end shows MIME bundles or stores them."""
    return getattr(shell, "kernel", None) is not None


def can_click(shell: Any) -> bool:
    """Whether a person can use a widget. nbclient, papermill and nbconvert allow no input, so nobody can there."""
    return in_notebook(shell) and bool(getattr(shell.kernel, "_allow_stdin", False))


class NotebookDisplay(Display):
    """Shows what a verb of `%ddl` starts or finds, in a shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def show_live(self, started: Run | Search) -> bool:
        clickable = can_click(self._shell)
        if clickable:
            show_live(started, waiting=False)
        return clickable

    def show_static(self, run: Run, text: str) -> bool:
        if in_notebook(self._shell):
            print(text)
            show_static(run)
            return True
        return False

    def insert_cell(self, cell: str) -> None:
        self._shell.set_next_input(cell, replace=False)


def show_live(started: Run | Search, waiting: bool) -> None:
    """Display the live view of a run or a search, and below it the static block that the saved notebook keeps."""
    if isinstance(started, Search):
        _show_search(started, waiting)
        return
    _show(started, _live_view(started, waiting, "view"))
    if pictures.may_show(started.spec.cell):
        _follow_pictures(started)


def _live_view(run: Run, waiting: bool, form: str) -> LiveView:
    from ddl_magics.dashboard.live import LiveView

    info = {name: value for name, value in run.summary.items() if name not in ("state", "attachable", "folder")}
    return LiveView({**info, "waiting": waiting}, run.request_stop, form, run.attachable)


def _display_widget(widget: LiveWidget) -> None:
    """Display a widget, and no text: `<RunWidget object at ...>` would stand above the block where there are none."""
    from IPython.display import display

    drawn, _ = widget._repr_mimebundle_() or ({}, {})
    display({**drawn, "text/plain": ""}, raw=True)


def _show(run: Run, view: LiveView) -> DisplayHandle:
    """Display a new view, and below it the static block; both follow the run. Returns the handle of the block."""
    from IPython.display import display

    _display_widget(view.widget)
    block: DisplayHandle = display(bundle(run), raw=True, display_id=True)

    shown_state, refreshed = run.state, time.monotonic()

    def follow(events: list[ev.RawEvent]) -> None:
        nonlocal shown_state, refreshed
        view.feed(events)
        if any(event.state in ev.TERMINAL for event in ev.select(ev.State, events)):
            block.update(bundle(run), raw=True)
        elif run.state != shown_state or time.monotonic() - refreshed > REFRESH_SECONDS:
            shown_state, refreshed = run.state, time.monotonic()
            block.update(view.static(run.summary), raw=True)

    run.listen(follow)
    return block


class Cards:
    """The live cards of a kernel's runs, which a cell displays if its last expression is a run.

    A run has one card, however often it is displayed.

    Args:
        shell: the kernel's.
        lives: whether a run of this kernel has not ended.
    """

    def __init__(self, shell: Any, lives: Callable[[Run], bool]) -> None:
        self._shell, self._lives = shell, lives
        self._cards: dict[str, tuple[LiveView, DisplayHandle]] = {}  # by id

    def show(self, run: Run) -> None:
        """Display the card of a live run.

        Raises:
            NotImplementedError: it has ended, or nobody can click: IPython shows its HTML and its text then.
        """
        from IPython.display import display

        if not can_click(self._shell) or not self._lives(run):
            raise NotImplementedError
        if run.id in self._cards:
            view, block = self._cards[run.id]
            _display_widget(view.widget)
            display(bundle(run), raw=True, display_id=block.display_id)
        else:
            view = _live_view(run, False, "card")
            self._cards[run.id] = view, _show(run, view)


def _show_search(search: Search, waiting: bool) -> None:
    from IPython.display import display

    from ddl_magics.dashboard.static import as_it_was, search_block
    from ddl_magics.search.live import LiveSearch

    def bundle(view: SearchView) -> dict[str, Any]:
        further = [] if view.state in ev.TERMINAL else ["", " ".join(as_it_was(view.name))]
        return search_block(view.id, view.state, "\n".join([summary(view), *further]))

    _display_widget(LiveSearch(search, waiting).widget)
    block = display(bundle(search.view), raw=True, display_id=True)
    displayed = (search.view.state, 0)

    def follow(view: SearchView) -> None:
        nonlocal displayed
        if displayed != (view.state, view.ended_trials):
            displayed = (view.state, view.ended_trials)
            block.update(bundle(view), raw=True)

    search.listen(follow)


def _follow_pictures(run: Run) -> None:
    """Display the run's pictures, and update them as more arrive."""
    from IPython.display import display

    drawn = pictures.bundle(run.pictures, run.name)
    handle = display(drawn, raw=True, display_id=True)

    def follow(events: list[ev.RawEvent]) -> None:
        if any(ev.select(ev.Picture, events)):
            handle.update(pictures.bundle(run.pictures, run.name), raw=True)

    run.listen(follow)


def show_static(run: Run) -> None:
    """Display the static block, which needs no kernel, with the current state of the run."""
    from IPython.display import display

    display(bundle(run), raw=True)
    if run.pictures:
        display(pictures.bundle(run.pictures, run.name), raw=True)


def bundle(run: Run) -> dict[str, Any]:
    """The static block of a run as a MIME bundle."""
    from ddl_magics.dashboard.static import static_bundle

    return static_bundle(run.summary, run.events)
