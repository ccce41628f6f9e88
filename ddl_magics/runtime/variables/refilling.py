"""A list, a dict, a set, a deque or an array gets the content of another one, and keeps its identity."""

from __future__ import annotations

import collections
from typing import Any

_WITH_UPDATE = (dict, set)
_WITH_EXTEND = (list, bytearray, collections.deque)


def refill(target: Any, content: Any) -> bool:
    """Whether it could be done. content: it may be what `target` wraps, as Keras 2 wraps lists."""
    if _are_both(target, content, _WITH_UPDATE):
        items = content.copy()
        target.clear()
        target.update(items)
    elif _are_both(target, content, _WITH_EXTEND):
        items = list(content)
        target.clear()
        target.extend(items)
    elif _fits(target, content):
        target[...] = content
    else:
        return False
    return True


def _are_both(target: Any, content: Any, kinds: tuple[type, ...]) -> bool:
    return any(isinstance(target, kind) and isinstance(content, kind) for kind in kinds)


def _fits(target: Any, content: Any) -> bool:
    kinds = {(type(value).__module__, type(value).__name__) for value in (target, content)}
    if kinds != {("numpy", "ndarray")}:
        return False
    return bool(target.shape == content.shape and target.dtype == content.dtype and target.flags.writeable)
