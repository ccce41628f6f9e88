"""`%%distributed` and `%ddl`: parse the line, submit the run or call the verb, display the result."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand

from ddl_magics.clusters.choice import Choice
from ddl_magics.commands import help
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.table import find
from ddl_magics.notebook import display
from ddl_magics.notebook.cell_source import source_of
from ddl_magics.notebook.config import Distributed, DistributedStore, configured
from ddl_magics.options import parsing, words
from ddl_magics.options.help import help_text
from ddl_magics.runs import Run, run_text
from ddl_magics.scaling import ScalingReport
from ddl_magics.search import Search
from ddl_magics.session import dry_run
from ddl_magics.session.session import Session
from ddl_magics.session.waiting import wait_in_cell


@magics_class
class DistributedMagics(Magics):
    """The magics of one kernel, which act on its `session`."""

    shell: Any

    def __init__(self, shell: Any, session: Session, choice: Choice) -> None:
        super().__init__(shell)
        self.session = session
        self.defaults = Distributed(parent=shell)
        self.store = DistributedStore(parent=shell)
        self.kernel = Kernel(
            session, shell.user_ns, lambda: configured(self.defaults), display.NotebookDisplay(shell), choice
        )
        shell.configurables += [self.defaults, self.store]

    @no_var_expand
    @line_cell_magic
    def distributed(self, line: str, cell: str | None = None) -> None:
        """Train the cell's Keras model on several workers: %%distributed --help."""
        self._train(self._expanded(line), cell)

    @no_var_expand
    @line_cell_magic
    def ddl_distributed(self, line: str, cell: str | None = None) -> None:
        """%%distributed under a name that no other extension uses."""
        self._train(self._expanded(line), cell)

    def _expanded(self, line: str) -> str:
        """Expand {expression} and $name as IPython does, but keep the {5} of regular expressions."""
        hidden = re.sub(r"(?<!\{)\{(\d+(?:,\d*)?)\}(?!\})", "\ue000\\1\ue001", line)
        expanded: str = self.shell.var_expand(hidden, depth=3)
        return expanded.replace("\ue000", "{").replace("\ue001", "}")

    def _train(self, line: str, cell: str | None = None) -> None:
        if words.wants_help(words.split(line)):
            print(help_text())
            return
        if cell is None:
            if line.startswith("%%"):  # as the input transformer of `extension` writes it
                raise UsageError(f"there is no cell magic {line.strip()}. Did you mean %%distributed?")
            raise UsageError(
                "%%distributed is a cell magic: write it, with two percent signs, in a cell's first line, and move "
                "what stands above it to another cell."
            )
        spec = parsing.parse(line, configured(self.defaults))
        spec = dataclasses.replace(spec, cell=source_of(self.shell, line, cell))
        if spec.dry_run:
            print(dry_run.report(spec, self.session.cluster, self.shell.user_ns))
            return
        submit = self.session.submit if spec.trials is None else self.session.search
        started: Run | Search = submit(spec, self.shell.user_ns)
        self.shell.user_ns[started.name] = started
        for line in self.session.cluster.notices(started.spec, self.shell.user_ns):
            print(f"{started.name}  {line}")
        self.store.clean()
        clickable = display.can_click(self.shell)
        waiting = not clickable if spec.wait is None else spec.wait
        if clickable:
            display.show_live(started, waiting)
        if not waiting:
            return
        try:
            wait_in_cell(started, text=not clickable)
        finally:
            if isinstance(started, Search) and not clickable:
                print(started)
            elif isinstance(started, Run) and not clickable and display.in_notebook(self.shell):
                display.show_static(started)

    @line_magic
    def ddl(self, line: str) -> Any:
        """Choose the cluster; list, show, stop and remove runs: %ddl --help."""
        verb, arguments = (*line.split(None, 1), "", "")[:2]
        if not verb:
            print(f"{run_text.next_steps(self.session.newest)}\n\n{help.overview()}")
            return None
        if verb in ("--help", "-h", "help"):
            print(help.of_command(find(arguments.split()[0])) if arguments.strip() else help.overview())
            return None
        command = find(verb)
        texts = command.split(arguments)
        if words.wants_help(texts):
            print(help.of_command(command))
            return None
        result = command.execute(self.kernel, texts)
        if isinstance(result, ScalingReport):
            return result
        if str(result):
            print(result)
        return None
