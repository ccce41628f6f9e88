"""The package of the runtime that is sent to a cluster: a zip of `ddl_magics.runtime`, named after its content.

Each version of the runtime has a module name of its own, so that two can be in one Python. Where Spark runs in the
notebook's process, the same zip is unpacked and imported: the tested code is the shipped code.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import importlib.util
import io
import re
import sys
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from ddl_magics.runtime import package, scratch

SOURCE = Path(__file__).resolve().parent.parent / "runtime"
PREFIX = "ddl_runtime_"
HASH_LETTERS = 12
_MODULE = re.compile(rf"{PREFIX}[0-9a-f]{{{HASH_LETTERS}}}")


@dataclass(frozen=True)
class RuntimePackage:
    """module: the package's name where it is imported. data: the bytes of its zip.

    Raises ValueError for another name: it becomes part of statements and of a pickle that is written by hand.
    """

    module: str
    data: bytes

    def __post_init__(self) -> None:
        if not _MODULE.fullmatch(self.module):
            raise ValueError(f"{self.module[:80]!r} is not the name of a runtime of ddl_magics")


def pack(source: Path = SOURCE) -> RuntimePackage:
    """Zip the Python files under `source`, in a folder named after their content."""
    files = package.sources(source)
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    module = PREFIX + digest.hexdigest()[:HASH_LETTERS]
    return RuntimePackage(module, package.zipped(module, files))


@cache
def _unpacking_folder() -> Path:
    return Path(scratch.make("driver"))


@atexit.register
def clear() -> None:
    """Remove the unpacked files. Called when the process exits."""
    if _unpacking_folder.cache_info().currsize:
        scratch.remove(str(_unpacking_folder()))


def load(runtime: RuntimePackage) -> ModuleType:
    """Unpack the package and import it in this process; `sys.path` is not changed."""
    if runtime.module in sys.modules:
        return sys.modules[runtime.module]
    folder = _unpacking_folder()
    with zipfile.ZipFile(io.BytesIO(runtime.data)) as archive:
        archive.extractall(folder)
    home = folder / runtime.module
    spec = importlib.util.spec_from_file_location(
        runtime.module, home / "__init__.py", submodule_search_locations=[str(home)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[runtime.module] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[runtime.module]
        raise
    return module


def load_driver() -> ModuleType:
    """The module `driver.api` of the shipped package."""
    return importlib.import_module(f"{load(pack()).__name__}.driver.api")
