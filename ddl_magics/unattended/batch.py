"""The run of a file with one `%%distributed` cell, for a batch: there is no notebook, and no session with variables."""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.options import parsing
from ddl_magics.options.values import SEED_LIMIT
from ddl_magics.runtime.cell import notebook_only
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search import space
from ddl_magics.unattended import source

_MAGIC = re.compile(r"%%(?:ddl_)?distributed\b(?P<line>.*)")
#: Fields of options that a notebook, a session or a kernel's disk must be there for.
_NOT_IN_A_BATCH = (
    *("trials", "send", "files", "resume", "release", "tensorboard", "mlflow", "dry_run"),
    *("warm_start", "checkpoints"),
)


def spec_of(path: Path, options: Sequence[str]) -> RunSpec:
    """The run of the only cell in a file, with its id, name and seed.

    Args:
        path: of the file.
        options: of `%%distributed`, for a script.

    Raises:
        UsageError: the file has other cells, or its cell cannot be trained in a batch.
    """
    cells = [cell.source for cell in source.read(path, options).cells if cell.cell_type == "code"]
    cells = [cell for cell in cells if cell.strip() and cell.strip() != "%load_ext ddl_magics"]
    if len(cells) != 1:
        raise UsageError(f"--batch takes a file of one %%distributed cell, and {path} has {len(cells)} cells.")
    line, _, text = cells[0].lstrip().partition("\n")
    magic = _MAGIC.fullmatch(line)
    if magic is None:
        raise UsageError(f"--batch takes a file of one %%distributed cell, and the cell of {path} is none.")
    spec = parsing.parse(magic["line"])
    _check(spec)
    code = _checked_source(text)
    space.check_values(code, spec.set or {})
    return dataclasses.replace(
        spec,
        cell=code,
        run=store.new_run_id(),
        name=spec.name or re.sub(r"\W", "_", path.stem),
        seed=secrets.randbelow(SEED_LIMIT) if spec.seed is None else spec.seed,
        variables=False,
    )


def _check(spec: RunSpec) -> None:
    """Raises UsageError for what a batch does not have."""
    for name in _NOT_IN_A_BATCH:
        if getattr(spec, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} needs a kernel, which a batch does not have: leave {flag} or --batch out.")
    for flag, value in (("--data", spec.data), ("--validation", spec.validation)):
        if isinstance(value, str) and value.isidentifier():
            raise UsageError(
                f"{flag} {value}: a batch has no variables of a session. Name files, such as --data hdfs:///rows."
            )
    if not spec.out:
        raise UsageError(
            "--batch needs --out in the cell's line, a folder that the cluster reaches: hdfs:///models/mnist, "
            "abfs://..., s3a://..., file:///..."
        )


def _checked_source(text: str) -> str:
    """The cell, which compiles; its line numbers are those of the cell with its magic. Raises UsageError."""
    code = "\n" + text
    if not text.strip():
        raise UsageError("the cell is empty: write the training below %%distributed.")
    try:
        compile(code, "<cell>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UsageError(f"the cell cannot be compiled: {f'line {line}: ' if line else ''}{error.args[0]}.") from None
    use = notebook_only.find(code)
    if use is not None:
        raise UsageError(f"line {use.line}: {use.reason}.")
    return code
