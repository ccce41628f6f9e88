"""Functions that Spark's executors run, which cannot import this package: they travel by value.

A module of such functions has no class, and imports nothing relative but for the type checker.
"""

from __future__ import annotations

import importlib.util
from typing import Any


def functions_of(module: Any) -> dict[str, Any]:
    """The functions of a self-contained module, such that Spark pickles them whole instead of as names to import.

    The source is executed under a name that is no module, as the executors' Python cannot import this package.
    """
    functions: dict[str, Any] = {"__name__": "_ddl_by_value"}
    exec(compile(source_of(module.__name__), module.__name__.rsplit(".", 1)[-1] + ".py", "exec"), functions)
    return functions


def source_of(name: str) -> str:
    """The text of a module, which may be in a zip."""
    specification = importlib.util.find_spec(name)
    assert specification is not None
    loader: Any = specification.loader  # typeshed's Loader lacks get_source, which every loader of source has
    source: str | None = loader.get_source(name)
    assert source is not None, "only the compiled module is there"
    return source
