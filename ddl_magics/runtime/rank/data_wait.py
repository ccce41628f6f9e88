"""How long a rank's training has waited for the next batches of tf.data.

The time is taken around TensorFlow's operations that read an iterator: by Python where Python calls them, and by
operations of the graph in what tf.function compiles, as Keras does with a step. A call of several steps reads the next
batch while a step computes. There the steps are timed as well: what they leave of the call is the most that it waited.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any, Callable, NamedTuple

#: The functions of TensorFlow's `gen_dataset_ops` by which Python reads an iterator.
READERS = ("iterator_get_next", "iterator_get_next_as_optional")

#: Of TensorFlow, which has no types: one of its functions, a tensor or variable.
Operation = Callable[..., Any]
Tensor = Any


class Sums(NamedTuple):
    """Seconds since the process began: in reads, and in steps of calls that make several."""

    reads: float
    steps: float


class DataWait:
    """Sums up what a rank's process waits. Counts nothing before `install`."""

    def __init__(self) -> None:
        self.outside_graphs = 0.0  # seconds, in reads that Python itself has made
        self._reads: Tensor = None  # a variable, once a function that reads was traced
        self._steps: Tensor = None

    def install(self) -> None:
        """Count each read from now on, where TensorFlow has the operations of `READERS`."""
        try:
            from tensorflow.python.ops import gen_dataset_ops
        except ImportError:
            return
        for name in READERS:
            original = getattr(gen_dataset_ops, name, None)
            if original is not None:
                setattr(gen_dataset_ops, name, self._counted(original))

    def sums(self) -> Sums:
        """Of all that has been counted. Between steps this takes some 0.3 ms: their data have displaced the code."""
        reads, steps = (0.0 if sum_ is None else float(value_of(sum_)) for sum_ in (self._reads, self._steps))
        return Sums(self.outside_graphs + reads, steps)

    def timed_step(self, step: Operation, batch: Any, written: Callable[[], list[Tensor]]) -> Any:
        """step(batch), traced within a call of several steps. written(): the variables that it has changed."""
        import tensorflow as tf

        self._steps = _variable() if self._steps is None else self._steps
        began, batch = _after(batch)
        result = step(batch)
        outputs = [tensor for tensor in tf.nest.flatten(result, expand_composites=True) if tf.is_tensor(tensor)]
        with tf.control_dependencies(outputs + [variable.read_value() for variable in written()]):
            self._steps.assign_add(_timestamp() - began)
        return result

    def _counted(self, original: Operation) -> Operation:
        import tensorflow as tf

        @functools.wraps(original)
        def read(*args: Any, **kwargs: Any) -> Any:
            if tf.executing_eagerly():
                began = time.perf_counter()
                try:
                    return original(*args, **kwargs)
                finally:
                    self.outside_graphs += time.perf_counter() - began
            if tf.distribute.has_strategy():
                return original(*args, **kwargs)
            return self._read_in_graph(lambda: original(*args, **kwargs))

        return read

    def _read_in_graph(self, read: Callable[[], Any]) -> Any:
        import tensorflow as tf

        # A variable of its own: one that steps change as well would have a read wait for the end of the step before.
        self._reads = _variable() if self._reads is None else self._reads
        began = _timestamp()
        with tf.control_dependencies([began]):
            values = read()
        finished, values = _after(values)
        self._reads.assign_add(finished - began)
        return values


def value_of(variable: Tensor) -> Any:
    """The number in a tf.Variable, also while a function is traced. `variable.numpy()` takes twice as long."""
    import tensorflow as tf

    with contextlib.nullcontext() if tf.executing_eagerly() else tf.init_scope():
        return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype).numpy()


def _after(values: Any) -> tuple[Tensor, Any]:
    """(the time at which all tensors of `values` are there, the same values, which nothing can use before that).

    TensorFlow may have a single thread for its operations, and then takes the time when it has done the others.
    """
    import tensorflow as tf

    tensors = tf.nest.flatten(values, expand_composites=True)
    with tf.control_dependencies([tensor for tensor in tensors if tf.is_tensor(tensor)]):
        timestamp = _timestamp()
    with tf.control_dependencies([timestamp]):
        tensors = [tf.identity(tensor) if tf.is_tensor(tensor) else tensor for tensor in tensors]
    return timestamp, tf.nest.pack_sequence_as(values, tensors, expand_composites=True)


def _variable() -> Tensor:
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(0.0, trainable=False, dtype=tf.float64)


def _timestamp() -> Tensor:
    import tensorflow as tf

    with tf.device("CPU:0"):
        return tf.timestamp()
