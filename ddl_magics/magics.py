"""`%%distributed` and `%ddl`: read the line, call, display. What they do is elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class

from ddl_magics import check, display, option_help, parsing, store, verbs
from ddl_magics.cell import source_of
from ddl_magics.clusters.choice import Choice
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.clusters.livy_wish import LivyWish, lifetime
from ddl_magics.config import Distributed, configured
from ddl_magics.run import Run
from ddl_magics.session import Session
from ddl_magics.waiting import wait_in_cell
from ddl_magics.wording import nearest

VERBS = ("use", "check", "runs", "show", "logs", "stop", "attach")
CLUSTERS = ("auto", "embedded", "livy")
LATER_VERBS = ("compare", "replay", "predict")

DDL_HELP = """%ddl VERB: what runs and ran.

  use auto            run on the kernel's sparkmagic session, else on this machine
  use embedded        run on this machine
  use livy [URL] [--session ID|NAME] [--detached]
                      run on a Livy session: sparkmagic's, the one named, or a new one;
                      a detached one outlives this kernel
  check               whether runs can be executed, and on what
  runs                the newest runs, of all notebooks
  show RUN            a run's figures, or its live view while it goes on
  logs RUN [RANK]     what a run printed
  stop RUN            end a run after its current step; history and model are kept
  attach RUN          go on with a run whose kernel is gone, where its Livy session lives"""


@magics_class
class DistributedMagics(Magics):
    """The magics of one kernel; `session` is what they work on."""

    shell: Any

    def __init__(self, shell: Any, session: Session, choice: Choice) -> None:
        super().__init__(shell)
        self.session = session
        self.choice = choice
        self.defaults = Distributed(parent=shell)
        shell.configurables.append(self.defaults)

    @line_cell_magic
    def distributed(self, line: str, cell: str | None = None) -> None:
        """Train the cell's Keras model on several workers: %%distributed --help."""
        self._train(line, cell)

    @line_cell_magic
    def ddl_distributed(self, line: str, cell: str | None = None) -> None:
        """%%distributed under a name that no other extension has."""
        self._train(line, cell)

    def _train(self, line: str, cell: str | None = None) -> None:
        if parsing.wants_help(line):
            print(option_help.help_text())
            return
        if cell is None:
            raise UsageError("%%distributed stands in the first line of a cell, with two percent signs.")
        spec = parsing.parse(line, configured(self.defaults))
        spec = dataclasses.replace(spec, cell=source_of(self.shell, line, cell))
        run = self.session.submit(spec, self.shell.user_ns)
        self.shell.user_ns[run.name] = run
        clickable = display.can_click(self.shell)
        waiting = not clickable if spec.wait is None else spec.wait
        if clickable:
            display.show_live(run, waiting)
        if not waiting:
            return
        try:
            wait_in_cell(run, text=not clickable)
        finally:
            if display.in_notebook(self.shell) and not clickable:
                display.show_static(run)

    @line_magic
    def ddl(self, line: str) -> None:
        """What runs and ran: %ddl --help."""
        words = parsing.words(line)
        if not words or words[0] in ("--help", "-h", "help"):
            print(DDL_HELP)
            return
        verb, arguments = words[0], words[1:]
        if verb in LATER_VERBS:
            raise UsageError(f"%ddl {verb} is not built yet: it comes with a later release.")
        if verb not in VERBS:
            raise UsageError(f"%ddl has no verb {verb}; it has {', '.join(VERBS)}.{nearest(verb, VERBS)}")
        getattr(self, f"_{verb}")(arguments)

    def _use(self, arguments: list[str]) -> None:
        if not arguments:
            raise UsageError("write: %ddl use auto|embedded|livy")
        kind, rest = arguments[0], arguments[1:]
        if kind not in CLUSTERS:
            known = ", ".join(CLUSTERS)
            raise UsageError(f"%ddl use has no cluster {kind}; it has {known}.{nearest(kind, CLUSTERS)}")
        if kind == "livy":
            self._use_livy(rest)
        elif rest:
            raise UsageError(f"write: %ddl use {kind}")
        elif kind == "embedded":
            self.choice.embedded()
        else:
            self.choice.auto()
        print(f"runs are executed on {self.session.cluster.name}")

    def _use_livy(self, arguments: list[str]) -> None:
        asked = LivyWish.read(arguments)
        try:
            session = self.choice.livy(asked.url, asked.session, asked.detached)
        except NoSession as error:
            raise UsageError(str(error)) from None
        if session is not None:
            print(lifetime(session))

    def _check(self, arguments: list[str]) -> None:
        print(check.report(self.session.cluster))

    def _runs(self, arguments: list[str]) -> None:
        print(verbs.runs_table(store.list_runs()))

    def _show(self, arguments: list[str]) -> None:
        run = self.session.find(_one(arguments, "%ddl show RUN"))
        if display.can_click(self.shell) and run in self.session.live():
            display.show_live(run, waiting=False)
            return
        print(verbs.describe(run))
        if display.in_notebook(self.shell):
            display.show_static(run)

    def _attach(self, arguments: list[str]) -> None:
        run = self.session.attach(_one(arguments, "%ddl attach RUN"), self.choice.at)
        there = self.shell.user_ns.get(run.name)
        if there is None or isinstance(there, Run):
            self.shell.user_ns[run.name] = run
        else:
            print(f"{run.name} is a variable of yours and stays; %ddl show {run.id} shows the run")
        if display.can_click(self.shell):
            display.show_live(run, waiting=False)
        else:
            print(f"{run.name} is {run.state} on {run.cluster}; {run.name}.wait() waits for its end")

    def _logs(self, arguments: list[str]) -> None:
        if len(arguments) not in (1, 2) or not all(word.isdigit() for word in arguments[1:]):
            raise UsageError("write: %ddl logs RUN [RANK]")
        run = self.session.find(arguments[0])
        print(run.logs(int(arguments[1]) if len(arguments) == 2 else None), end="")

    def _stop(self, arguments: list[str]) -> None:
        print(verbs.stop(self.session.find(_one(arguments, "%ddl stop RUN"))))


def _one(arguments: list[str], usage: str) -> str:
    if len(arguments) != 1:
        raise UsageError(f"write: {usage}")
    return arguments[0]
