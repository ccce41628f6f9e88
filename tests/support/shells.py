"""An IPython shell of this process: what a user types, and what is printed."""

import contextlib
import copy

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

#: At the end of Python a shell writes its history, into a folder that may be gone by then.
NO_HISTORY = Config({"HistoryManager": {"enabled": False}})


def session(shell):
    return shell._ddl_magics[0].session


@contextlib.contextmanager
def loaded(cluster):
    """The shell of this process, with `ddl_magics`, whose runs are executed on the cluster."""
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=copy.deepcopy(NO_HISTORY), colors="nocolor")  # tests set values in it
    shell.run_line_magic("load_ext", "ddl_magics")
    session(shell).cluster = cluster
    yield shell
    session(shell).close()
    shell.run_line_magic("unload_ext", "ddl_magics")
    InteractiveShell.clear_instance()


def run(shell, cell, capsys):
    """(what was printed, the error) of a cell."""
    capsys.readouterr()
    result = shell.run_cell(cell)
    captured = capsys.readouterr()
    return captured.out + captured.err, result.error_before_exec or result.error_in_exec
