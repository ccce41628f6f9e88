"""Streams of Python's and NumPy's random numbers for one thread.

`random.random()` and `np.random.rand()` draw from streams of the whole process. While a step runs or is tried, a thread
of the cell's input pipeline draws ahead from these. What the step draws must not change them, nor may their states be
put back.
"""

from __future__ import annotations

import contextlib
import functools
import random
import threading
from typing import Any, Callable, Iterator

import numpy as np

from .patching import Patch, patched_for_all

#: Functions of `np.random` that are no methods of its stream, and the methods that they call.
_NUMPYS = {"seed": "seed", "ranf": "random_sample", "sample": "random_sample"}


class PrivateStreams:
    """What a thread draws from, in place of the streams of the process."""

    def __init__(self, seed: int) -> None:
        self._python, self._numpy = random.Random(seed), np.random.RandomState(seed)
        self.others_drew = False  # in the last `drawn`, as far as they have called the functions of the modules

    @contextlib.contextmanager
    def drawn(self) -> Iterator[None]:
        """The functions of `random` and `np.random` draw from here in this thread, and as ever in others."""
        self.others_drew, thread = False, threading.get_ident()

        def replacement(original: Callable[..., Any], private: Callable[..., Any]) -> Callable[..., Any]:
            def draw(*args: Any, **kwargs: Any) -> Any:
                if threading.get_ident() == thread:
                    return private(*args, **kwargs)
                self.others_drew = True
                return original(*args, **kwargs)

            return draw

        with patched_for_all(self._patches(replacement)):
            yield

    def _patches(self, replacement: Callable[..., Any]) -> Iterator[Patch]:
        streams: Any = ((random, random.Random, self._python), (np.random, np.random.RandomState, self._numpy))
        for module, kind, private in streams:
            for name in _methods(module, kind):
                yield module, name, functools.partial(replacement, private=getattr(private, name))
        for name, method in _NUMPYS.items():
            yield np.random, name, functools.partial(replacement, private=getattr(self._numpy, method))


@functools.lru_cache(maxsize=None)
def _methods(module: Any, kind: type) -> list[str]:
    """The names in a module of methods of its stream, which have the same names in its class."""
    return [name for name, value in vars(module).items() if isinstance(getattr(value, "__self__", None), kind)]
