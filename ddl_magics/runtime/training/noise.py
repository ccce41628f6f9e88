"""Random numbers of a training step: each rank draws its own, so that a batch has as many as in one process.

All ranks have the same seeds, and draw alike: initial weights, shuffles, augmentation before the batch is cut. Within a
step the rank's number is folded into the seed of what is drawn, whoever draws: TensorFlow's random operations, with
seeds or without, its generators, and Keras' of either generation, which are made of these. No generator's state is
changed by that: the ranks' states stay equal.

With --sync-noise, what has this rank's rows as its first axis is drawn for the whole batch, alike on all ranks, and
each takes its rows: the numbers of one process.

Numpy and Python's random draw in an eager step from streams of their own, whose seeds are those of the cell with the
rank folded in.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import threading
import zlib
from typing import Any, Callable, Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import structured_function
from tensorflow.python.data.util import random_seed as data_seed
from tensorflow.python.framework import random_seed, tensor_util
from tensorflow.python.ops import (
    gen_stateless_random_ops,
    gen_stateless_random_ops_v2,
    random_ops,
    stateful_random_ops,
    stateless_random_ops,
)

from ..gradients.batch import LocalShare
from ..gradients.traced_step import TracedStep
from ..gradients.within_step import WithinStep
from ..keras_types import Tensor
from ..rank.config import RankConfig
from ..trial.patching import wrap
from ..trial.private_streams import PrivateStreams
from .placement import Placement

#: What a rank adds to a seed is a multiple of this prime, larger than the numbers by which seeds usually differ.
_STRIDE = 15_485_863
_SEEDS = 2**31 - 1

#: TensorFlow's operations that are given a seed of two numbers; all others use `stateless_random_get_key_counter`.
_SEEDED = (
    "stateless_multinomial",
    "stateless_parameterized_truncated_normal",
    "stateless_random_binomial",
    "stateless_random_poisson",
)

#: Functions of a shape that draw, by the name under which TensorFlow exports them.
_OF_SHAPE = {
    random_ops: {"random_normal": "normal", "random_uniform": "uniform", "truncated_normal": "truncated_normal"},
    stateless_random_ops: {
        "stateless_random_normal": "stateless_normal",
        "stateless_random_uniform": "stateless_uniform",
        "stateless_truncated_normal": "stateless_truncated_normal",
    },
}
_METHODS = ("normal", "uniform", "truncated_normal")


class Noise:
    """Whether the random operations that this thread makes or traces are a rank's own (`apart`).

    A step that is tried draws alike, so that all ranks find the same out about it.
    """

    def __init__(self, config: RankConfig, traced: TracedStep, within: WithinStep, placement: Placement) -> None:
        self._config, self._fold, self._traced, self._within = config, config.rank * _STRIDE, traced, within
        self._placement = placement
        self._thread = _Thread()
        self._streams: PrivateStreams | None = None

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Around a training step of this rank, or the trace of one."""
        with contextlib.ExitStack() as in_step:
            if tf.executing_eagerly():
                self._streams = self._streams or _streams_of_steps(self._fold)
                in_step.enter_context(self._streams.drawn())
            in_step.enter_context(self._set(True))
            yield

    def alike(self) -> contextlib.AbstractContextManager[None]:
        """Around what all ranks make alike, also within a step: weights, data, updates."""
        return self._set(False)

    @contextlib.contextmanager
    def _set(self, apart: bool) -> Iterator[None]:
        before, self.apart = self.apart, apart
        try:
            yield
        finally:
            self.apart = before

    @property
    def apart(self) -> bool:
        return self._thread.apart

    @apart.setter
    def apart(self, value: bool) -> None:
        self._thread.apart = value

    @property
    def _folds(self) -> bool:
        return self.apart and bool(self._fold) and not self._traced.trial

    @property
    def _position(self) -> Any:
        return self._placement.position if self._config.regroups else self._config.rank

    @property
    def _size(self) -> Any:
        return self._placement.size if self._config.regroups else self._config.size

    def install(self, layer: type) -> None:
        """Hook TensorFlow; layer: the class of Keras' layers."""
        wrap(random_seed, "get_seed", self._get_seed)
        wrap(gen_stateless_random_ops_v2, "stateless_random_get_key_counter", self._with_seed)
        for name in _SEEDED:
            wrap(gen_stateless_random_ops, name, self._with_seed)
        wrap(stateful_random_ops.Generator, "_preprocess_key", self._preprocess_key)
        alike = [(layer, "_maybe_build"), (layer, "add_weight"), (data_seed, "get_seed")]
        for owner, name in [*alike, (structured_function.StructuredFunctionWrapper, "__init__")]:
            wrap(owner, name, self._call_alike)
        if self._config.spec.sync_noise:
            self._install_whole()

    def _install_whole(self) -> None:
        for module, names in _OF_SHAPE.items():
            for name, exported in names.items():
                wrap(module, name, self._of_whole_batch)
                for public in {tf.random, tf.compat.v2.random}:
                    setattr(public, exported, getattr(module, name))
        for name in _METHODS:
            wrap(stateful_random_ops.Generator, name, self._of_whole_batch)

    def _of_whole_batch(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `original`, a function of a shape, draws for the whole batch, of which this rank takes its rows.

        What has another first axis than this rank's rows is drawn alike on all ranks, as it is for all rows.
        """
        share = self._traced.share
        if not self.apart or self._traced.trial or share is None or isinstance(share, LocalShare):
            return original(*args, **kwargs)
        if self._within.alone():
            return original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        shape = tf.cast(tf.convert_to_tensor(bound.arguments["shape"]), tf.int64)
        static = tensor_util.constant_value_as_shape(shape)
        is_broadcast = not tf.executing_eagerly() and static.rank and static[0] == 1
        with self.alike():
            if static.rank == 0 or is_broadcast:
                return original(*args, **kwargs)
            has_rows = tf.equal(shape[0], tf.maximum(share.rows, 1))
            begin = tf.minimum(share.total * self._position // self._size, share.total - 1)
            begin = tf.where(has_rows, begin, 0)
            bound.arguments["shape"] = tf.concat([[tf.where(has_rows, share.total, shape[0])], shape[1:]], 0)
            drawn = original(*bound.args, **bound.kwargs)[begin : begin + shape[0]]
        drawn.set_shape(static)
        return drawn

    def _get_seed(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[int | None, int | None]:
        """The two seeds of an operation with a state; the second is the operation's own."""
        global_seed, second = original(*args, **kwargs)
        if not self._folds or second is None:
            return global_seed, second
        second = (second + self._fold) % _SEEDS
        return global_seed, second if global_seed or second else _SEEDS

    def _with_seed(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._folds:
            return original(*args, **kwargs)
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        seed = tf.convert_to_tensor(arguments["seed"])
        arguments["seed"] = seed + tf.cast(tf.constant([self._fold, 0], tf.int64), seed.dtype)
        return original(**arguments)

    def _preprocess_key(self, original: Callable[..., Any], *args: Any) -> Tensor:
        key = original(*args)
        if not self._folds:
            return key
        return tf.bitcast(tf.bitcast(key, tf.int64) + self._fold, tf.uint64)

    def _call_alike(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.alike():
            return original(*args, **kwargs)


class _Thread(threading.local):
    """Of a thread of an input pipeline, too, which makes what all ranks make alike."""

    apart = False


def _streams_of_steps(fold: int) -> PrivateStreams:
    """Seeded with the present states of the process' streams and `fold`."""
    numpy = np.asarray(np.random.get_state(legacy=False)["state"]["key"])
    return PrivateStreams((zlib.crc32(repr(random.getstate()).encode() + numpy.tobytes()) + fold) % 2**32)
