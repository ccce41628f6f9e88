"""Fingerprints of a notebook's values: type, shape, size and a hash that is the same wherever the value is the same.

Pickles are no fingerprints: they change with versions and with the line of a function. Of large values some parts that
lie evenly are hashed, so that a fingerprint costs milliseconds; it then says so.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
from typing import Any, Dict, Iterable, List, Mapping

import numpy as np

from ..redaction import is_secret

#: A field is missing where it does not apply: type, shape, dtype, bytes, length, sha256, sampled.
Fingerprint = Dict[str, Any]

#: Of arrays up to so many bytes all are hashed; of larger ones so many blocks of so many bytes.
WHOLE_BYTES = 16 << 20
BLOCKS, BLOCK_BYTES = 64, 256 << 10
#: So many elements of containers, and rows of DataFrames, are hashed.
MOST_ELEMENTS = 10_000
MOST_ROWS = 100_000
#: So many variables are described, and containers followed so deep.
MOST_VALUES = 200
MOST_DEPTH = 20


class _Unknown(Exception):
    """A value of a type that has no fingerprint."""


def fingerprints(values: Mapping[str, Any]) -> dict[str, Fingerprint]:
    """Of each variable; modules are left out, as packages say more.

    Of one whose name says that it is a secret there is the type alone: the hash of a short text can be guessed.
    """
    variables = [(name, value) for name, value in values.items() if not isinstance(value, types.ModuleType)]
    return {
        name: {"type": fingerprint(value)["type"]} if is_secret(name) else fingerprint(value)
        for name, value in variables[:MOST_VALUES]
    }


def fingerprint(value: Any) -> Fingerprint:
    """Of one value. Without `sha256` where its type has none: of an object of the user's own class, for example."""
    kind = type(value)
    unqualified = kind.__module__ in ("builtins", "__main__")
    described: Fingerprint = {
        "type": kind.__qualname__ if unqualified else "%s.%s" % (kind.__module__, kind.__qualname__)
    }
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape):
        described["shape"] = list(shape)
    if hasattr(value, "dtype"):
        described["dtype"] = str(value.dtype)
    if isinstance(getattr(value, "nbytes", None), int):
        described["bytes"] = int(value.nbytes)
    if isinstance(value, (str, bytes, list, tuple, dict, set, frozenset)):
        described["length"] = len(value)
    hashed = _Hash()
    try:
        hashed.add(value)
    except Exception:  # a value's own methods may raise anything; it has no fingerprint then
        return described
    described["sha256"] = hashed.digest()
    if hashed.sampled:
        described["sampled"] = True
    return described


class _Hash:
    def __init__(self) -> None:
        self.sampled = False
        self._sha = hashlib.sha256()
        self._elements_left = MOST_ELEMENTS

    def digest(self) -> str:
        return self._sha.hexdigest()[:32]

    def add(self, value: Any, depth: int = 0) -> None:
        if depth > MOST_DEPTH:
            raise _Unknown
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            self._text("%s %r" % (type(value).__name__, value))
        elif isinstance(value, (bytes, bytearray)):
            self._array(np.frombuffer(bytes(value), np.uint8))
        elif isinstance(value, (np.ndarray, np.generic)):
            self._array(np.asarray(value), depth)
        elif isinstance(value, Mapping):
            self._elements("dict", len(value), (element for item in value.items() for element in item), depth)
        elif isinstance(value, (set, frozenset)):
            self._elements("set", len(value), sorted(value, key=repr), depth)
        elif isinstance(value, (list, tuple)):
            self._elements(type(value).__name__, len(value), value, depth)
        elif isinstance(value, (types.FunctionType, types.MethodType, type)):
            self._source(value)
        elif type(value).__module__.startswith("pandas."):
            self._pandas(value)
        elif callable(getattr(value, "get_weights", None)):  # a Keras model or layer
            self._text(type(value).__qualname__)
            self.add(list(value.get_weights()), depth + 1)
        else:
            raise _Unknown

    def _text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self._sha.update(b"%d:" % len(data))
        self._sha.update(data)

    def _elements(self, kind: str, length: int, elements: Iterable[Any], depth: int) -> None:
        self._text("%s %d" % (kind, length))
        for element in elements:
            if self._elements_left <= 0:
                self.sampled = True
                return
            self._elements_left -= 1
            self.add(element, depth + 1)

    def _array(self, array: np.ndarray, depth: int = 0) -> None:
        self._text("array %s %s" % (array.dtype.str, array.shape))
        if array.dtype.hasobject:
            self._elements("objects", array.size, array.ravel().tolist(), depth)
            return
        if array.nbytes <= WHOLE_BYTES:
            self._sha.update(np.ascontiguousarray(array).tobytes())
            return
        self.sampled = True
        for block in _blocks(array):
            self._sha.update(block)

    def _source(self, value: Any) -> None:
        try:
            text = inspect.getsource(value)
        except (OSError, TypeError):
            code = getattr(value, "__code__", None)
            if code is None:
                raise _Unknown from None
            text = "%r %r" % (code.co_code, [c for c in code.co_consts if not isinstance(c, types.CodeType)])
        self._text(text)

    def _pandas(self, value: Any) -> None:
        if hasattr(value, "columns"):
            self._text(repr([(str(name), str(dtype)) for name, dtype in zip(value.columns, value.dtypes)]))
        rows = len(value)
        self._text("rows %d" % rows)
        if rows > MOST_ROWS:
            self.sampled = True
            value = value.iloc[np.linspace(0, rows - 1, MOST_ROWS).astype(np.int64)]
        hashes = sys.modules["pandas"].util.hash_pandas_object(value)
        self._sha.update(np.ascontiguousarray(hashes.to_numpy()).tobytes())


def _blocks(array: np.ndarray) -> List[bytes]:
    """Bytes of a large array that lie evenly, its first and its last among them."""
    if array.flags.c_contiguous:
        data = array.reshape(-1).view(np.uint8)
        starts = np.linspace(0, len(data) - BLOCK_BYTES, BLOCKS).astype(np.int64)
        return [data[start : start + BLOCK_BYTES].tobytes() for start in starts]
    rows = max(1, min(len(array), BLOCKS * BLOCK_BYTES // max(1, array.nbytes // len(array))))
    row_indices = np.linspace(0, len(array) - 1, rows).astype(np.int64)
    return [np.ascontiguousarray(array[row]).tobytes() for row in row_indices]
