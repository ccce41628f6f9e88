"""The generators of batches that a cell passes to `fit`: no batch is lost between two fits.

Keras reads ahead, and what it has read in vain is lost with the end of a fit, more or fewer batches by chance. Workers
would go on with different ones.
"""

from __future__ import annotations

import collections
import threading
import types
from typing import Any, Iterator

import keras

#: The arguments of `fit` that may be one.
_ARGUMENTS = ("x", "validation_data")


class KeptGenerators:
    """By object; each is kept, so that no other gets its id."""

    def __init__(self) -> None:
        self._generators: dict[int, KeptGenerator] = {}

    def pass_on(self, arguments: dict[str, Any], every: int = 1) -> tuple[Any, bool]:
        """Have a fit read from the generators among its arguments here: (a callback for it, whether one goes on).

        every: This rank trains on every so many batches, and the others on those between.
        """
        arguments_of_fit = {name: arguments.get(name) for name in _ARGUMENTS}
        generators = {name: value for name, value in arguments_of_fit.items() if isinstance(value, types.GeneratorType)}
        if len(set(map(id, generators.values()))) < len(generators):
            generators = {}  # one for both: Keras decides who reads which batch
        kept_generators = {
            name: self._generators.setdefault(id(value), KeptGenerator(value)) for name, value in generators.items()
        }
        goes_on = any(value.began for value in kept_generators.values())
        arguments.update({name: value.reader() for name, value in kept_generators.items()})
        training, validation = (kept_generators.get(name) for name in _ARGUMENTS)
        return _UsageCallback(training, validation, every, arguments.get("steps_per_epoch")), goes_on


class KeptGenerator:
    """A generator with the batches that were read from it and not used. began: it was read from."""

    def __init__(self, generator: Iterator[Any]) -> None:
        self._generator, self._lock = generator, threading.Lock()
        self._read: collections.deque[Any] = collections.deque()  # and not used yet
        self._unused: collections.deque[Any] = collections.deque()  # to be read before the generator is
        self._reader = 0
        self._ahead = 0  # batches that other ranks have used, and this one has not read yet
        self._skipped = 0  # those of them that the next reader does not give
        self.began = False

    def reader(self) -> Iterator[Any]:
        """A generator of the batches from the first unused one on; those made earlier end."""
        with self._lock:
            self._reader += 1
            self._unused.extendleft(reversed(self._read))
            self._read.clear()
            self._skipped, self._ahead = self._skipped + self._ahead, 0
        return self._batches(self._reader)

    def _batches(self, reader: int) -> Iterator[Any]:
        while True:
            with self._lock:
                if reader != self._reader:
                    return
                self.began = True
                try:
                    while self._skipped:
                        self._next()
                        self._skipped -= 1
                    batch = self._next()
                except StopIteration:
                    return
                if self._ahead:
                    self._ahead -= 1
                else:
                    self._read.append(batch)
            yield batch

    def _next(self) -> Any:
        return self._unused.popleft() if self._unused else next(self._generator)

    def use(self, count: int) -> None:
        """So many more batches were used."""
        with self._lock:
            read = min(count, len(self._read))
            for _ in range(read):
                self._read.popleft()
            self._ahead += count - read


class _UsageCallback(keras.callbacks.Callback):
    """Tells generators how many of their batches a fit has used."""

    def __init__(
        self, training: KeptGenerator | None, validation: KeptGenerator | None, every: int, steps: int | None
    ) -> None:
        """every: as of `pass_on`. steps: of an epoch, of all ranks together."""
        super().__init__()
        self._training, self._validation, self._every, self._steps = training, validation, every, steps
        self._trained = self._tested = 0  # batches of the epoch, of the evaluation

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._trained = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        trained = (batch + 1) * self._every
        self._use(trained if self._steps is None else min(trained, self._steps))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._steps is not None and self._steps - self._trained < self._every:  # it was not stopped within the epoch
            self._use(self._steps)

    def _use(self, trained: int) -> None:
        if self._training is not None:
            self._training.use(trained - self._trained)
        self._trained = trained

    def on_test_begin(self, logs: Any = None) -> None:
        self._tested = 0

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._validation is not None:
            self._validation.use(batch + 1 - self._tested)
        self._tested = batch + 1
