"""Data that rank 0 reads for all ranks, where each rank's own reading would give other rows.

A pipeline that draws in parallel calls, or with a generator of Python's, draws otherwise in each process. Then rank 0
reads it, cuts each batch as the others would cut one that they had read themselves, and sends each its rows. They cross
connections of their own, as steps may exchange gradients at the same time: shared memory on a host, the ring between
hosts. Nothing is read ahead behind them, so that all ranks read as often.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import time
from typing import Any, Iterator, Sequence

import numpy as np
import tensorflow as tf

from ..collectives import rendezvous
from ..collectives.announcement import FEED, Announcement
from ..collectives.peer_listener import PeerListener
from ..keras_types import Dataset, Tensor
from ..rank.rank import Rank
from . import share

#: The values of --feed.
AUTO, CHIEF, EACH = "auto", "chief", "each"

#: More rows of a batch cannot be dealt to a rank.
MAX_SHARE_BYTES = 1 << 30
_MAX_STATE_BYTES = 1 << 20
_CHIEFS_READ_AHEAD = 2  # batches

#: The reader's rate is measured from the third batch, when the step is traced, over so many.
_UNTIMED_BATCHES, _TIMED_BATCHES = 3, 16
_BOUNDED = 0.5  # of the time

_PARALLEL = "it draws at random in parallel calls"
_FREE_ORDER = "the order of its elements is left free (deterministic=False)"
_DIFFERENT = "the workers' first batches differ"
_ASKED = "of --feed chief"
_READ_BY_CHIEF = "one rank alone reads this data and deals the rows of each batch to the workers, because %s"
_BOUNDS = (
    "; training waits for it: let each worker read, with seeds and deterministic order, or with ddl.local(...) for "
    "data of its own"
)

_LENGTH = struct.Struct("=Q")
_DRAWING_OPERATIONS = ("Rng", "StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal", "Assign")


class ChiefFeed:
    """Decides for each dataset of a fit or a loop who reads it. All ranks must ask in the same order."""

    def __init__(self, rank: Rank) -> None:
        self._rank, self._config = rank, rank.config
        self._peeked: Any = None
        self._runs_python = False
        self._said: set[tuple[str, bool]] = set()

    def note_peeked(self, batches: Any) -> None:
        """Keras has read these batches, to be used, from the generator that it makes the next dataset of."""
        self._peeked = batches

    def is_read_apart(self, data: Any) -> bool:
        """Whether each rank reads this data, of a validation or None, for itself and without a word to the others."""
        if self._is_left_to_ranks or data is None or isinstance(data, (tuple, list)):
            return True
        return isinstance(data, tf.data.Dataset) and not (drawing(data) or runs_python(data))

    @property
    def compares(self) -> bool:
        """Whether the ranks are to compare the batches that Keras has read of the next dataset."""
        return self._peeked is not None and not self._is_left_to_ranks

    @property
    def _choice(self) -> str:
        return self._config.spec.feed or AUTO

    @property
    def _is_left_to_ranks(self) -> bool:
        """Whether each rank reads for itself, whatever the data are."""
        return self._choice == EACH or (self._choice == AUTO and "ddl.rank" in self._config.spec.cell)

    def shares(self, dataset: Dataset, of_arrays: bool = False) -> ChiefShares | None:
        """This rank's shares of what rank 0 reads; None where each rank reads `dataset` for itself.

        of_arrays: Keras has made it of arrays.
        """
        peeked, self._peeked = self._peeked, None
        if self._is_left_to_ranks or not Elements.can_pack(dataset.element_spec):
            return None
        if self._choice == CHIEF:
            return self._of_chief(dataset, _ASKED)
        if of_arrays:
            return None
        if peeked is not None:
            return self._of_chief(dataset, _DIFFERENT) if self._differ(digest(peeked)) else None
        reason = drawing(dataset)
        if reason is not None:
            return self._of_chief(dataset, reason)
        return self._after_first_batch(dataset) if runs_python(dataset) else None

    def end_fit(self) -> None:
        """Give all ranks the state of rank 0's generators of random numbers, which it alone has drawn from."""
        if not self._runs_python:
            return
        self._runs_python = False
        peers = self._rank.peers
        state = b"" if peers.position else json.dumps(_random_states()).encode()
        chiefs, *_ = peers.collective.gather(state, peers.announcement(FEED), _MAX_STATE_BYTES)
        if peers.position:
            _set_random_states(json.loads(chiefs))

    def _of_chief(self, dataset: Dataset, reason: str, first: Any = None) -> ChiefShares:
        self._connect()
        self._runs_python = self._runs_python or runs_python(dataset)
        reading = ChiefReading(self._rank, reason, self._said)
        return ChiefShares(dataset, reading, *self._rank.peers.place, first)

    def _after_first_batch(self, dataset: Dataset) -> ChiefShares:
        """Of a pipeline that runs Python: what that draws is known only when the ranks have read a batch."""
        iterator = iter(dataset.prefetch(_CHIEFS_READ_AHEAD))
        batches = [batch for batch in [next(iterator, None)] if batch is not None]
        first = (batches, iterator)
        if self._differ(digest(batches)):
            return self._of_chief(dataset, _DIFFERENT, first)
        return ChiefShares(dataset, OwnReading(), *self._rank.peers.place, first)

    def _differ(self, own_digest: bytes) -> bool:
        peers = self._rank.peers
        digests = peers.collective.gather(own_digest, peers.announcement(FEED), len(own_digest))
        return len(set(digests)) > 1

    def _connect(self) -> None:
        peers, config = self._rank.peers, self._config
        if peers.feed is None:
            position, size = peers.place
            listener = PeerListener(config.host, config.credentials, position, config.attempt, size)
            own_address = json.dumps(list(listener.address)).encode()
            payloads = peers.collective.gather(own_address, peers.announcement(FEED), _MAX_STATE_BYTES)
            host, port = zip(*map(json.loads, payloads))
            peers.feed = rendezvous.connect(listener, list(zip(host, port)))


class OwnReading:
    """Each rank has its rows of the batches that it has read itself."""

    is_chiefs = False

    def payloads(self, batches: Iterator[Sequence[bytes]]) -> Iterator[bytes]:
        return (payload for (payload,) in batches)


class ChiefReading:
    """Deals the rows of rank 0's batches to the ranks, those of one batch for each call on each rank.

    said: what has been said of the run's data.
    """

    is_chiefs = True

    def __init__(self, rank: Rank, reason: str, said: set[tuple[str, bool]]) -> None:
        self._rank, self._reason, self._said = rank, reason, said
        self._clock = _Clock()
        self._has_to_say = not rank.peers.position

    def payloads(self, batches: Iterator[Sequence[bytes]]) -> Iterator[bytes]:
        """This rank's rows of each batch. `PeerLost` where a rank has left.

        batches: On rank 0, of each batch the rows of each rank.
        """
        peers, errors = self._rank.peers, self._rank.errors
        try:
            while True:
                position, size = peers.place
                of_ranks = [] if position else self._clock.timed_next(batches) or [b""] * size
                assert peers.feed is not None
                payload = peers.feed.scatter(of_ranks, Announcement(FEED), MAX_SHARE_BYTES)
                if not payload:
                    return
                yield payload
                if self._clock.is_complete:
                    self._say()
        except Exception as error:
            errors.first = errors.first or error
            raise
        finally:
            self._say()

    def note_rows(self, rows: int) -> None:
        self._clock.note_rows(rows)

    def _say(self) -> None:
        """Once a run for each reason, and again where training waits for the reader."""
        to_say, self._has_to_say = (self._reason, self._clock.bounds), False
        if to_say not in self._said:
            self._said.add(to_say)
            text = _READ_BY_CHIEF % self._reason + self._clock.text()
            self._rank.reporter.notice_once("warning" if self._clock.bounds else "info", text)


class _Clock:
    """How fast rank 0 reads, and for how much of the time it waits for its reader."""

    def __init__(self) -> None:
        self._batches = self._rows = self._rows_of_batch = 0
        self._waited = self._begin = self._elapsed = 0.0

    def timed_next(self, batches: Iterator[Sequence[bytes]]) -> Sequence[bytes]:
        """The next batch; nothing at the end."""
        begin = time.perf_counter()
        batch = next(batches, ())
        now = time.perf_counter()
        self._batches += bool(batch)
        if batch and self._batches <= _UNTIMED_BATCHES:
            self._begin = now
        elif batch and not self.is_complete:
            self._rows += self._rows_of_batch
            self._waited += now - begin
            self._elapsed = now - self._begin
        return batch

    def note_rows(self, rows: int) -> None:
        """The next batch has so many."""
        self._rows_of_batch = rows

    @property
    def is_complete(self) -> bool:
        return self._batches > _UNTIMED_BATCHES + _TIMED_BATCHES

    @property
    def bounds(self) -> bool:
        return self._waited > _BOUNDED * self._elapsed

    def text(self) -> str:
        if not self._elapsed:
            return ""
        return ": %s rows/s" % format(round(self._rows / self._elapsed), ",") + (_BOUNDS if self.bounds else "")


class ChiefShares:
    """In place of a dataset of `Share`s; its iterators are TensorFlow's."""

    def __init__(
        self, dataset: Dataset, reading: ChiefReading | OwnReading, rank: int, size: int, first: Any = None
    ) -> None:
        """first: (a list of its first batch, the iterator that goes on), to be read before a new iterator is made."""
        self._dataset, self._reading, self._rank, self._size, self._first = dataset, reading, rank, size, first
        self._readers = range(size) if reading.is_chiefs else [rank]  # of what is read here
        self._reads = rank == 0 or not reading.is_chiefs
        self.element_spec = share.cut(dataset, rank, size).element_spec
        self._elements = Elements(self.element_spec)
        received = tf.data.Dataset.from_generator(self._payloads, output_signature=tf.TensorSpec([], tf.string))
        shares = received.map(self._elements.unpack)
        self._shares = shares.with_options(_in_step()) if reading.is_chiefs else shares.prefetch(2)

    def repeat(self) -> ChiefShares:
        """Endless: what draws in the dataset goes on."""
        first, self._first = self._first, None
        if first is not None:
            batches, iterator = first
            first = (batches, _chain(iterator, self._dataset))
        return ChiefShares(self._dataset.repeat(), self._reading, self._rank, self._size, first)

    def __iter__(self) -> Any:
        return iter(self._shares)

    def _payloads(self) -> Iterator[Any]:
        for payload in self._reading.payloads(self._packed()):
            yield np.array(payload, object)

    def _packed(self) -> Iterator[Sequence[bytes]]:
        """Of each batch that this rank reads, the shares."""
        if not self._reads:
            return
        first, self._first = self._first, None
        batches, iterator = ([], iter(self._dataset.prefetch(_CHIEFS_READ_AHEAD))) if first is None else first
        for batch in _chain(batches, iterator):
            if isinstance(self._reading, ChiefReading):
                self._reading.note_rows(_rows(batch))
            with tf.device("CPU"):
                shares = [share.share_of(batch, rank, self._size) for rank in self._readers]
                payloads = [self._elements.pack(share_of_rank) for share_of_rank in shares]
            yield payloads


def _chain(*iterables: Any) -> Iterator[Any]:
    for iterable in iterables:
        yield from iterable


class Elements:
    """A dataset's elements as bytes: dense, ragged and sparse tensors of numbers and strings, and None."""

    def __init__(self, element_spec: Any) -> None:
        self._element_spec = element_spec
        self._specs = tf.nest.flatten(element_spec)

    @staticmethod
    def can_pack(element_spec: Any) -> bool:
        """Not those that have datasets or other objects of TensorFlow in them."""
        specs = [spec for spec in tf.nest.flatten(element_spec) if not _is_none(spec)]
        components = tf.nest.flatten(specs, expand_composites=True)
        dtypes = [getattr(component, "dtype", None) for component in components]
        return bool(specs) and all(
            isinstance(dtype, tf.DType) and dtype not in (tf.variant, tf.resource) for dtype in dtypes
        )

    def pack(self, element: Any) -> bytes:
        leaves = zip(self._specs, tf.nest.flatten(element))
        tensors = [leaf for spec, leaf in leaves if not _is_none(spec)]
        pieces = []
        for tensor in tf.nest.flatten(tensors, expand_composites=True):
            piece = tf.io.serialize_tensor(tensor).numpy()
            pieces += [_LENGTH.pack(len(piece)), piece]
        return b"".join(pieces)

    def unpack(self, payload: Tensor) -> Any:
        """In a graph. payload: a scalar string, what `pack` has made. The element, of the shapes of the spec."""
        specs = [spec for spec in self._specs if not _is_none(spec)]
        components = tf.nest.flatten(specs, expand_composites=True)
        pieces = tf.numpy_function(_pieces, [payload], tf.string, stateful=False)
        pieces.set_shape([len(components)])
        tensors = []
        for number, spec in enumerate(components):
            tensor = tf.io.parse_tensor(pieces[number], spec.dtype)
            tensors.append(tf.ensure_shape(tensor, spec.shape))
        leaves = iter(tf.nest.pack_sequence_as(specs, tensors, expand_composites=True))
        return tf.nest.pack_sequence_as(
            self._element_spec, [_none_like(spec) if _is_none(spec) else next(leaves) for spec in self._specs]
        )


def _pieces(payload: bytes) -> np.ndarray:
    pieces, begin = [], 0
    while begin < len(payload):
        (length,) = _LENGTH.unpack_from(payload, begin)
        begin += _LENGTH.size + length
        pieces.append(payload[begin - length : begin])
    array = np.empty(len(pieces), object)
    array[:] = pieces
    return array


def _is_none(spec: Any) -> bool:
    is_empty_optional = isinstance(spec, tf.OptionalSpec) and spec._value_spec is None
    return type(spec).__name__ == "NoneTensorSpec" or is_empty_optional


def _none_like(spec: Any) -> Any:
    return tf.experimental.Optional.empty(None) if isinstance(spec, tf.OptionalSpec) else None


def drawing(dataset: Dataset) -> str | None:
    """Why processes of equal seeds read other rows from a tf.data.Dataset, as far as its graph tells."""
    if dataset.options().deterministic is False:
        return _FREE_ORDER
    for source in share.perhaps_unlike(dataset):
        for kind, is_ordered in _steps(source):
            if not is_ordered:
                return _FREE_ORDER
            if "Parallel" in kind and _draws(source):
                return _PARALLEL
    return None


def _steps(source: Dataset) -> Iterator[tuple[str, bool]]:
    """(its kind, whether the order of its elements is fixed) of a tf.data.Dataset; of one that has travelled, of all
    that it is made from."""
    if not hasattr(source, "_ddl_graph"):
        yield type(source).__name__, getattr(source, "_deterministic", None) != "false"
        return
    for node in share.operations([source]):
        yield node.op, "deterministic" not in node.attr or node.attr["deterministic"].s != b"false"


def runs_python(dataset: Dataset) -> bool:
    """Whether a tf.data.Dataset calls functions of Python: a generator, `tf.py_function`."""
    return any(node.op in share.PYTHON_OPERATIONS for node in share.operations(share.perhaps_unlike(dataset)))


def _draws(source: Dataset) -> bool:
    return any(
        "seed2" in node.attr or node.op in share.PYTHON_OPERATIONS or node.op.startswith(_DRAWING_OPERATIONS)
        for node in share.operations([source])
    )


def digest(batches: Any) -> bytes:
    """Of all values of a structure of arrays and tensors."""
    sums = hashlib.sha256()
    for leaf in tf.nest.flatten(batches, expand_composites=True):
        array = np.asarray(leaf)
        sums.update(repr((array.dtype.str, array.shape)).encode())
        sums.update(repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes())
    return sums.digest()


def _in_step() -> tf.data.Options:
    """Of a dataset that exchanges: nothing is read ahead, and no thread is taken from the step that it may wait for."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    options.threading.private_threadpool_size = 1
    return options


def _rows(batch: Any) -> int:
    leaf = next(iter(tf.nest.flatten(batch)), None)
    shape = getattr(leaf, "shape", None)
    return int(shape[0] or 0) if shape else 0


def _random_states() -> Sequence[Any]:
    kind, keys, *others = np.random.get_state()
    return [random.getstate(), [kind, np.asarray(keys).tolist(), *others]]


def _set_random_states(states: Sequence[Any]) -> None:
    (version, keys, gauss), (kind, numpy_keys, *others) = states
    random.setstate((version, tuple(keys), gauss))
    np.random.set_state((kind, np.array(numpy_keys, np.uint32), *others))
