"""A notebook's cell as the source that workers run, with its mistakes shown before anything starts."""

from __future__ import annotations

import ast
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.errors import CellSyntaxError


def source_of(shell: Any, line: str, cell: str) -> str:
    """The cell's Python source, checked to compile; its line numbers are those of the notebook's cell.

    Raises:
        CellSyntaxError: as IPython shows it for a cell of its own, at the notebook's line.
        UsageError: the cell is empty, or uses a magic or a shell command, which workers do not have.
    """
    if not cell.strip():
        raise UsageError("the cell is empty: write the training below %%distributed.")
    # IPython takes blank lines away, and the magic's own line is gone: with them, line numbers are the notebook's.
    blank = next(i for i, text in enumerate(cell.split("\n")) if text.strip())
    source = "\n" * (1 + blank) + shell.input_transformer_manager.transform_cell(cell)
    # By this name IPython finds the text that it shows.
    filename = shell.compile.cache(f"%%distributed {line}\n{cell}", shell.execution_count)
    # The compiler finds mistakes that the parser lets pass, such as a `return` at the top.
    try:
        compile(source, filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise CellSyntaxError(shell, error) from None
    _refuse_magics(ast.parse(source), cell)
    return source


def _refuse_magics(tree: ast.AST, cell: str) -> None:
    if "get_ipython" in cell:
        return  # the user's own call: it is theirs to fail
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "get_ipython":
            raise UsageError(
                f"line {node.lineno}: magics and shell commands do not run on workers; move them to another cell."
            )
