"""Noise that is the same for the same rows, while a function is tried with all rows of a batch and with parts."""

from __future__ import annotations

import contextlib
import functools
import importlib
import random
import threading
import types
from typing import Any, Callable, Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import (
    gen_random_ops,
    gen_stateful_random_ops,
    gen_stateless_random_ops,
    gen_stateless_random_ops_v2,
    stateless_random_ops,
)

from .patching import Patch, patched
from .private_streams import PrivateStreams

_SEED = 20011

_KERAS, _SEEDED = "of Keras", "with a seed"

_STATELESS = {
    "normal": stateless_random_ops.stateless_random_normal,
    "uniform": stateless_random_ops.stateless_random_uniform,
    "truncated_normal": stateless_random_ops.stateless_truncated_normal,
}
#: Functions of a shape and a seed, by the names under which TensorFlow calls them itself, and exports them.
_WITH_SEED = {
    "stateless_random_normal": "stateless_normal",
    "stateless_random_uniform": "stateless_uniform",
    "stateless_truncated_normal": "stateless_truncated_normal",
    "stateless_random_poisson": "stateless_poisson",
    "stateless_random_binomial": "stateless_binomial",
    "stateless_random_gamma": "stateless_gamma",
}


#: Where all that draws in TensorFlow ends.
_OPERATIONS = (gen_random_ops, gen_stateless_random_ops, gen_stateless_random_ops_v2, gen_stateful_random_ops)


class RepeatableNoise:
    """Draws for `rows` rows from `begin`, of `whole` rows: what has another first axis is drawn alike every time.

    unaligned: something was drawn otherwise, so that the same rows may have had other noise.
    """

    def __init__(self, all_rows: int) -> None:
        self._all_rows = self._rows = all_rows
        self._begin = self._calls = 0
        self.unaligned = self._within = False

    def begin_call(self, begin: int, rows: int, all_rows: int = 0) -> None:
        """The function is called again, with these rows, of `all_rows` if there is another number of them."""
        self._all_rows = all_rows or self._all_rows
        self._begin, self._rows, self._calls = begin, rows, 0

    @contextlib.contextmanager
    def drawn(self) -> Iterator[None]:
        """Functions that draw draw from here; what else is drawn from is put back afterwards."""
        states, private = (random.getstate(), np.random.get_state()), PrivateStreams(_SEED)
        tensorflow = context.context()
        seeds = getattr(tensorflow, "_rng", None)  # of its operations that run at once
        drawing: list[Patch] = [
            (owner, name, functools.partial(self._replacement, kind=kind, is_method=isinstance(owner, type)))
            for owner, name, kind in _drawing()
        ]
        drawing += [(owner, name, self._noting) for owner, name in _operations()]
        try:
            if seeds is not None:
                tensorflow._rng = _OfThread(seeds)
            with patched(drawing), private.drawn():
                yield
        finally:
            if not private.others_drew:  # a library has drawn from the streams themselves, as scikit-learn does
                random.setstate(states[0])
                np.random.set_state(states[1])
            if seeds is not None:
                tensorflow._rng = seeds

    def _replacement(self, original: Callable[..., Any], kind: str, is_method: bool) -> Callable[..., Any]:
        """What draws in place of `original`, which is of a kind as `_drawing` has it."""

        def of_keras(shape: Any, *args: Any, **kwargs: Any) -> Any:
            self._calls += 1
            if not isinstance(kwargs.get("seed"), int):  # as initializers have it, whose weights stay
                kwargs["seed"] = _SEED + self._calls
            return self._of_rows(shape, lambda full_shape: original(full_shape, *args, **kwargs))

        def of_given_seed(shape: Any, seed: Any, *args: Any, **kwargs: Any) -> Any:
            return self._of_rows(shape, lambda full_shape: original(full_shape, seed, *args, **kwargs))

        def of_own_seed(shape: Any, *args: Any, **kwargs: Any) -> Any:
            self._calls += 1
            seed = [_SEED, self._calls]
            kwargs = {key: value for key, value in kwargs.items() if key not in ("seed", "name")}
            return self._of_rows(shape, lambda full_shape: _STATELESS[kind](full_shape, seed, *args[:3], **kwargs))

        def of_generator(generator: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
            return of_own_seed(shape, *args, **kwargs)

        if kind == _KERAS:
            return of_keras
        if kind == _SEEDED:
            return of_given_seed
        return of_generator if is_method else of_own_seed

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`original`, an operation that draws."""

        def draw(*args: Any, **kwargs: Any) -> Any:
            self.unaligned = self.unaligned or not self._within
            return original(*args, **kwargs)

        return draw

    def _of_rows(self, shape: Any, draw: Callable[[Any], Any]) -> Any:
        before, self._within = self._within, True
        try:
            return self._aligned(shape, draw)
        finally:
            self._within = before

    def _aligned(self, shape: Any, draw: Callable[[Any], Any]) -> Any:
        static = tf.get_static_value(tf.convert_to_tensor(shape))
        if static is None:  # in a function that TensorFlow traces
            self.unaligned = True
            return draw(shape)
        sizes = [int(size) for size in static.reshape(-1)]
        if not sizes or sizes[0] != self._rows:
            self.unaligned = self.unaligned or (bool(sizes) and sizes[0] > self._rows and not sizes[0] % self._rows)
            return draw(sizes)
        try:
            return draw([self._all_rows, *sizes[1:]])[self._begin : self._begin + self._rows]
        except (ValueError, tf.errors.InvalidArgumentError):  # its other arguments have rows, too
            return draw(sizes)


class _OfThread:
    """A generator of Python's; for this thread, a copy of it."""

    def __init__(self, generator: random.Random) -> None:
        self._generator, self._copy, self._thread = generator, random.Random(), threading.get_ident()
        self._copy.setstate(generator.getstate())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copy if threading.get_ident() == self._thread else self._generator, name)


def _operations() -> Iterator[tuple[Any, str]]:
    for module in _OPERATIONS:
        for name, value in vars(module).items():
            if isinstance(value, types.FunctionType) and not name.startswith("_") and not name.endswith("_fallback"):
                yield module, name


def _drawing() -> Iterator[tuple[Any, str, str]]:
    """(owner, name, kind) of the functions of a shape that draw.

    kind: _KERAS for one of Keras 3, which takes a seed; _SEEDED for one of TensorFlow that is given a seed; else the
    name in _STATELESS of what draws alike with a seed.
    """
    for name in _STATELESS:
        yield tf.random, name, name
        yield tf.random.Generator, name, name
    for name, exported in _WITH_SEED.items():
        yield stateless_random_ops, name, _SEEDED
        yield tf.random, exported, _SEEDED
    try:
        module = importlib.import_module("keras.src.backend.tensorflow.random")
    except ImportError:  # Keras 2
        module = importlib.import_module("keras").backend
        yield module, "random_normal", "normal"
        yield module, "random_uniform", "uniform"
    else:
        for name in ("normal", "uniform", "truncated_normal", "randint"):
            yield module, name, _KERAS
