"""`--send NAME`: small values of the notebook as text that a Livy session reads back, without pickle."""

from __future__ import annotations

import ast
import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddl_magics.spec import RunSpec
from ddl_magics.wording import nearest

#: A value's text must fit into one statement, which Livy and sparkmagic keep in their logs.
MOST_CHARACTERS = 2**19


class CannotSend(Exception):
    """One line that names the variable and says what to do."""


@dataclass(frozen=True)
class Sent:
    """`encoding` is "literal" (Python's own notation) or "npy" (NumPy's file in base64)."""

    name: str
    encoding: str
    text: str


def values(spec: RunSpec, namespace: Mapping[str, Any]) -> list[Sent]:
    """The variables that a cell sends.

    Raises:
        CannotSend: one is missing, too large, or not of a kind that can be sent.
    """
    return [_encoded(name, namespace) for name in spec.send or ()]


def _encoded(name: str, namespace: Mapping[str, Any]) -> Sent:
    if name not in namespace:
        hint = nearest(name, [word for word in namespace if not word.startswith("_")])
        raise CannotSend(f"--send {name}: this notebook has no variable {name}.{hint}")
    value = namespace[name]
    sent = _array(name, value) or _literal(name, value)
    if sent is None:
        kind = type(value).__name__
        raise CannotSend(
            f"--send {name}: a {kind} cannot be sent; numbers, text, lists, tuples, dicts, sets and NumPy arrays can. "
            "Make it in a cell of the session, or in the training cell."
        )
    if len(sent.text) > MOST_CHARACTERS:
        raise CannotSend(
            f"--send {name} is too large ({len(sent.text) >> 10} kB of {MOST_CHARACTERS >> 10}): write it to the "
            "cluster's storage and read it in the cell."
        )
    return sent


def _array(name: str, value: Any) -> Sent | None:
    import numpy as np

    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.hasobject:
        return None
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return Sent(name, "npy", base64.b64encode(file.getvalue()).decode())


def _literal(name: str, value: Any) -> Sent | None:
    text = repr(value)
    try:
        if ast.literal_eval(text) == value:
            return Sent(name, "literal", text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        pass  # it is not written as it is read
    return None
