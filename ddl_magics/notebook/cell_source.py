"""The Python source of a notebook's cell for the workers; its mistakes are shown before anything starts."""

from __future__ import annotations

import re
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.errors import CellSyntaxError
from ddl_magics.runtime.cell import notebook_only

#: The compiler's messages for await, async for, async with or an asynchronous comprehension outside of a function.
_AWAITS = re.compile(r"'(await|async for|async with)' outside|asynchronous comprehension outside")


def source_of(shell: Any, line: str, cell: str) -> str:
    """The cell's Python source, which compiles; its line numbers are those of the notebook's cell.

    Raises:
        CellSyntaxError: it does not compile; shown as IPython shows a SyntaxError, at the notebook's line.
        UsageError: the cell is empty, or uses what workers do not have: magics, shell commands, get_ipython, input.
    """
    if not cell.strip():
        raise UsageError("the cell is empty: write the training below %%distributed.")
    if all(not text.strip() or text.lstrip().startswith("#") for text in cell.split("\n")):
        raise UsageError("the cell has only comments: write the training below %%distributed.")
    try:
        return _compiled(shell, line, cell)
    except UnicodeEncodeError:
        raise UsageError("the cell has characters that are in no valid UTF-8 text: write them as escapes.") from None
    except (RecursionError, MemoryError):
        raise UsageError("the cell nests deeper than Python can compile: split the expression.") from None


def _compiled(shell: Any, line: str, cell: str) -> str:
    # IPython removes leading blank lines, and the magic's own line: put back, so that line numbers are the notebook's.
    blank = next(i for i, text in enumerate(cell.split("\n")) if text.strip())
    source = "\n" * (1 + blank) + str(shell.input_transformer_manager.transform_cell(cell))
    # IPython finds the text of a traceback's lines by this name.
    filename = shell.compile.cache(f"%%distributed {line}\n{cell}", _number(shell))
    # The compiler also finds mistakes that the parser accepts, such as a `return` outside of a function.
    try:
        compile(source, filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        if _AWAITS.search(str(error.msg)):
            raise UsageError(
                f"line {error.lineno}: workers have no event loop for await at a cell's top level; put it into an "
                "async def and call asyncio.run(...)."
            ) from None
        raise CellSyntaxError(shell, error) from None
    except ValueError as error:  # a null byte, before Python 3.12
        if isinstance(error, UnicodeEncodeError):
            raise
        raise UsageError(f"the cell cannot be compiled: {error}.") from None
    _refuse_notebook_features(source, cell)
    return source


def _number(shell: Any) -> int:
    """The number of the cell that runs: of its input, as newer versions of IPython count on before they run it."""
    return max(0, len(shell.history_manager.input_hist_parsed) - 1)


def _refuse_notebook_features(source: str, cell: str) -> None:
    use = notebook_only.find(source)
    if use is None:
        return
    lines = cell.split("\n")
    # IPython turns a magic into a call of get_ipython, and keeps the number of lines.
    written = lines[use.line - 2] if 0 <= use.line - 2 < len(lines) else ""
    if use.name == notebook_only.GET_IPYTHON and use.name not in written:
        raise UsageError(
            f"line {use.line}: magics and shell commands do not run on workers; move them to another cell."
        )
    raise UsageError(f"line {use.line}: {use.reason}.")
