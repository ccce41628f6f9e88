"""The notebook that started a run: its path, and its cells as last saved, without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ddl_magics.options.redaction import masked_source

#: Larger files are not read. Cells are copied up to this number of characters.
MAX_BYTES = 64 << 20
MAX_CHARACTERS = 2**20


def copy(path: str, folder: str | None) -> dict[str, Any]:
    """The part `notebook` of a `Provenance`: the path alone where there is no such notebook.

    Secrets in the cells are masked.

    Args:
        path: as Jupyter names it, absolute or relative to the kernel's folder; or empty.
        folder: the kernel's.
    """
    if not path:
        return {}
    file = Path(folder or "", path)
    if file.suffix != ".ipynb":
        file = Path(folder or "", Path(path).name)
    try:
        status = file.stat()
        if file.suffix != ".ipynb" or status.st_size > MAX_BYTES:
            return {"path": path}
        cells = json.loads(file.read_bytes())["cells"]
        copied, remaining = [], MAX_CHARACTERS
        for cell in cells:
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            if len(source) > remaining:
                break
            remaining -= len(source)
            copied.append(
                {"type": str(cell["cell_type"]), "id": str(cell.get("id", "")), "source": masked_source(source)}
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"path": path}
    return {"path": path, "saved": status.st_mtime, "cells": copied, "cut": len(copied) < len(cells)}
