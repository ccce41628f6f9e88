"""Functions of TensorFlow, Keras or Python that are others, for a while or for good."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Callable, Iterable, Iterator, Tuple

#: (module or class, name in it, what makes the replacement of the original).
Patch = Tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]


def patched(replacements: Iterable[Patch]) -> contextlib.AbstractContextManager[None]:
    """Put other functions in place of some, for this thread: others, as an input pipeline has, call the originals."""
    thread = threading.get_ident()
    of_thread = [(owner, name, functools.partial(_of_thread, thread, wrap)) for owner, name, wrap in replacements]
    return patched_for_all(of_thread)


@contextlib.contextmanager
def patched_for_all(replacements: Iterable[Patch]) -> Iterator[None]:
    """Put other functions in place of some; the originals are back afterwards."""
    originals = []
    try:
        for owner, name, wrap in list(replacements):
            original = getattr(owner, name)
            originals.append((owner, name, original))
            setattr(owner, name, wrap(original))
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _of_thread(thread: int, wrap: Callable[..., Any], original: Any) -> Any:
    """What `wrap` makes of a function in one thread, and the function in others. Of anything else: what it makes."""
    replacement = wrap(original)
    if not callable(original):
        return replacement

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (replacement if threading.get_ident() == thread else original)(*args, **kwargs)

    call.autograph_info__ = {}  # type: ignore[attr-defined]  # AutoGraph does not convert it
    return call


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Have `wrapper(original, ...)` called for the function or method `name` of a module or class, from now on."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    hooked.autograph_info__ = {}  # type: ignore[attr-defined]  # AutoGraph does not convert it
    setattr(owner, name, hooked)
