"""`--send NAME`: encodes small values of the notebook as text that a Livy session decodes, without pickle."""

from __future__ import annotations

import ast
import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import nearest

#: The text must fit into one statement, which Livy and sparkmagic log.
MAX_CHARACTERS = 2**19


class CannotSend(Exception):
    """One line that names the variable and says what to do."""


@dataclass(frozen=True)
class EncodedValue:
    """A variable as text. `encoding`: "literal" (Python's notation) or "npy" (NumPy's file format in base64)."""

    name: str
    encoding: str
    text: str


def values(spec: RunSpec, namespace: Mapping[str, Any]) -> list[EncodedValue]:
    """The encoded variables of --send.

    Raises:
        CannotSend: a variable is missing, too large, or of a type that cannot be sent.
    """
    return [_encoded(name, namespace) for name in spec.send or ()]


def _encoded(name: str, namespace: Mapping[str, Any]) -> EncodedValue:
    if name not in namespace:
        hint = nearest(name, [variable for variable in namespace if not variable.startswith("_")])
        raise CannotSend(f"--send {name}: this notebook has no variable {name}.{hint}")
    value = namespace[name]
    encoded = _array(name, value) or _literal(name, value)
    if encoded is None:
        kind = type(value).__name__
        raise CannotSend(
            f"--send {name}: a {kind} cannot be sent; numbers, text, lists, tuples, dicts, sets and NumPy arrays can. "
            "Create it in a cell of the session, or in the training cell."
        )
    if len(encoded.text) > MAX_CHARACTERS:
        raise CannotSend(
            f"--send {name} is too large ({len(encoded.text) >> 10} kB of {MAX_CHARACTERS >> 10}): write it to the "
            "cluster's storage and read it in the cell."
        )
    return encoded


def _array(name: str, value: Any) -> EncodedValue | None:
    import numpy as np

    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.hasobject:
        return None
    if isinstance(value, (np.ma.MaskedArray, np.matrix)):  # the file would have neither the mask nor the type
        return None
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return EncodedValue(name, "npy", base64.b64encode(file.getvalue()).decode())


def _literal(name: str, value: Any) -> EncodedValue | None:
    text = repr(value)
    try:
        if ast.literal_eval(text) == value:
            return EncodedValue(name, "literal", text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        pass  # its text is not a literal
    return None
