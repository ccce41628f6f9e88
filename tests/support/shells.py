"""An IPython shell of this process: what a user types, and what is printed."""

from traitlets.config import Config

#: At the end of Python a shell writes its history, into a folder that may be gone by then.
NO_HISTORY = Config({"HistoryManager": {"enabled": False}})


def session(shell):
    return shell._ddl_magics[0].session


def run(shell, cell, capsys):
    """(what was printed, the error) of a cell."""
    capsys.readouterr()
    result = shell.run_cell(cell)
    captured = capsys.readouterr()
    return captured.out + captured.err, result.error_before_exec or result.error_in_exec
