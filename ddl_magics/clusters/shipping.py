"""The runtime as it is sent: one zip of `ddl_magics.runtime`, named after its content.

Two versions of the runtime never meet in one Python, since each has a module name of its own, and where Spark runs in
the notebook's process the same zip is unpacked and imported: what is tested there is what is shipped.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import importlib.util
import io
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


@dataclass(frozen=True)
class Shipment:
    """The package's name on the other side, and the zip that holds it."""

    module: str
    data: bytes


def pack(source: Path = SOURCE) -> Shipment:
    """The zip of the Python files under `source`, in a folder named after their content."""
    files = package.sources(source)
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    module = PREFIX + digest.hexdigest()[:HASH_LETTERS]
    return Shipment(module, package.zipped(module, files))


@cache
def _unpacking_folder() -> Path:
    return Path(scratch.make("driver"))


@atexit.register
def clear() -> None:
    """Remove what was unpacked: this process launches nothing any more."""
    if _unpacking_folder.cache_info().currsize:
        scratch.remove(str(_unpacking_folder()))


def load(shipment: Shipment) -> ModuleType:
    """The shipped package, unpacked and imported in this process; `sys.path` stays as it is."""
    if shipment.module in sys.modules:
        return sys.modules[shipment.module]
    folder = _unpacking_folder()
    with zipfile.ZipFile(io.BytesIO(shipment.data)) as archive:
        archive.extractall(folder)
    home = folder / shipment.module
    spec = importlib.util.spec_from_file_location(
        shipment.module, home / "__init__.py", submodule_search_locations=[str(home)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[shipment.module] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[shipment.module]
        raise
    return module


def load_driver() -> ModuleType:
    """The `driver` module of the runtime as it is shipped."""
    return importlib.import_module(f"{load(pack()).__name__}.driver")
