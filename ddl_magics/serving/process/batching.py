"""Batches the requests that arrive while the model is busy; a request never waits for later ones."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

#: Rows in one call of the model.
BATCH_ROWS = 1024


@dataclass(frozen=True)
class _Request:
    arrays: Arrays
    rows: int
    answer: asyncio.Future[Arrays]
    loop: asyncio.AbstractEventLoop

    @property
    def kind(self) -> Any:
        """Requests of equal kind can share a batch."""
        return tuple((name, array.shape[1:], array.dtype.kind) for name, array in self.arrays.items())


class Batcher:
    """Calls a model in a separate thread, with the rows of all waiting requests.

    Args:
        call: maps the input arrays, by name, to the output arrays.
    """

    def __init__(self, call: Callable[[Arrays], Arrays]) -> None:
        self._call = call
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._run, name="model", daemon=True).start()

    async def predict(self, arrays: Arrays, rows: int) -> Arrays:
        """The outputs for `rows` rows; raises the model's exceptions."""
        loop = asyncio.get_running_loop()
        request = _Request(arrays, rows, loop.create_future(), loop)
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()
        return await request.answer

    def close(self) -> None:
        """End the thread after the waiting requests."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                self._answer(batch)
            except Exception as error:
                if len(batch) == 1:
                    _fail(batch[0], error)
                for request in batch if len(batch) > 1 else ():  # one of them may be the cause
                    try:
                        self._answer([request])
                    except Exception as request_error:
                        _fail(request, request_error)

    def _next_batch(self) -> list[_Request]:
        """Wait for the next batch; it is empty when closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            batch: list[_Request] = []
            rows = 0
            while self._waiting and (not batch or rows + self._waiting[0].rows <= BATCH_ROWS):
                if batch and self._waiting[0].kind != batch[0].kind:
                    break
                batch.append(self._waiting.popleft())
                rows += batch[-1].rows
            return batch

    def _answer(self, batch: list[_Request]) -> None:
        arrays = batch[0].arrays
        if len(batch) > 1:
            arrays = {name: np.concatenate([request.arrays[name] for request in batch]) for name in arrays}
        outputs, start = self._in_pieces(arrays, sum(request.rows for request in batch)), 0
        for request in batch:
            request_outputs = {name: values[start : start + request.rows] for name, values in outputs.items()}
            start += request.rows
            request.loop.call_soon_threadsafe(_set, request.answer, request_outputs)

    def _in_pieces(self, arrays: Arrays, rows: int) -> Arrays:
        """Call the model in slices of `BATCH_ROWS`, which bound the memory of a large request."""
        if rows <= BATCH_ROWS:
            return self._call(arrays)
        starts = range(0, rows, BATCH_ROWS)
        pieces = [self._call({n: array[i : i + BATCH_ROWS] for n, array in arrays.items()}) for i in starts]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _set(answer: asyncio.Future[Arrays], outputs: Arrays) -> None:
    if not answer.done():  # the client may have disconnected
        answer.set_result(outputs)


def _fail(request: _Request, error: Exception) -> None:
    def fail() -> None:
        if not request.answer.done():
            request.answer.set_exception(error)

    request.loop.call_soon_threadsafe(fail)
