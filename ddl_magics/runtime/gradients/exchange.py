"""The exchange of gradients in every step of an all-reduce run.

Gradients are weighted by rows: the sum of rows_k g_k over the sum of rows_k is the gradient of the mean over the global
batch. Dense gradients are summed in one flat buffer for each dtype. A large one would double the memory that they take:
it goes through a small buffer in sections, and each sum is put where TensorFlow has the gradient. Sparse ones
(IndexedSlices, as an Embedding has) are concatenated in order of rank, which is what one process has of the whole
batch, repeated indices included.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from ..collectives import collective
from ..collectives.announcement import STEP, Announcement
from ..keras_types import Gradient, Tensor
from ..rank.peers import Peers
from ..rank.rank import HookErrors
from ..stopping import NAN_ADVICE, NOT_FINITE, UNCHECKED, NotANumber
from ..transport.buffers import ALIGNMENT_BYTES, Buffers
from .batch import Share, fingerprint, same_batch

#: The sections in which a larger flat buffer is summed. Each costs every rank some barriers more.
SECTION_BYTES = 8 << 20

#: More sparse gradients than this of one variable and rank are refused rather than held in memory n times.
MAX_SPARSE_BYTES = 1 << 30

#: The fingerprints of a run's first batches are compared, then one in so many. Shuffles that differ show in the first.
FIRST_FINGERPRINTS, FINGERPRINT_EVERY = 16, 16

_WEIGHT = struct.Struct("=d")

#: Fewer different rows of a table may be what rows of several ranks have by chance, in the same order.
_ALIKE_BY_CHANCE = 3


class GradientExchange:
    """Sums the gradients of one optimizer over the ranks, inside the training step."""

    def __init__(self, peers: Peers, errors: HookErrors, check_finite: bool) -> None:
        """check_finite: raise `NotANumber` on all ranks for a gradient that is NaN or infinite."""
        self._peers, self._errors, self._check_finite = peers, errors, check_finite
        self._buffers = Buffers()
        self._sections: list[Section] | None = None
        self._total = 1.0  # rows of the last step

    def __call__(self, gradients: Sequence[Gradient], share: Share | None) -> Sequence[Gradient]:
        """The gradients of the whole job. Called while the step is traced.

        gradients: of any shapes and floating dtypes; None stays None. The result has the same order, kinds, shapes and
        dtypes. share: the `Share` in work, or None outside of `fit`: then ranks count alike. In the step it raises
        `Diverged`, `PeerLost` and `NotANumber`.
        """
        dense = [i for i, gradient in enumerate(gradients) if tf.is_tensor(gradient) and not is_sparse(gradient)]
        sparse = [i for i, gradient in enumerate(gradients) if is_sparse(gradient)]
        inputs = self._to_write([gradients[i] for i in dense])
        for i in sparse:
            inputs += [gradients[i].indices, gradients[i].values]
        batch_tensors, carried = self.batch_tensors(share), self.carried()
        begin, end = len(batch_tensors), len(batch_tensors) + len(dense)

        def exchange(*arrays: np.ndarray) -> Sequence[np.ndarray]:
            dense_arrays, sparse_arrays = arrays[begin:end], arrays[end : len(arrays) - len(carried)]
            batch = self.batch(arrays[:begin], sparse_arrays)
            return self.exchanged(batch, dense_arrays, sparse_arrays, arrays[len(arrays) - len(carried) :])

        dtypes = [tensor.dtype for tensor in inputs]
        reduced = answers(tf.numpy_function(self._errors.guarded(exchange), batch_tensors + inputs + carried, dtypes))
        result = list(gradients)
        for i, after in zip(dense, reduced):
            after.set_shape(gradients[i].shape)
            result[i] = after
        pairs = iter(reduced[len(dense) :])
        for i in sparse:
            indices, values = next(pairs), next(pairs)
            indices.set_shape([None])
            values.set_shape([None] + gradients[i].values.shape.as_list()[1:])
            result[i] = tf.IndexedSlices(values, indices, gradients[i].dense_shape)
        return result

    def carried(self) -> list[Tensor]:
        """Tensors that the exchange gets beside gradients."""
        return []

    def exchanged(
        self,
        batch: WeightedBatch,
        dense: Sequence[np.ndarray],
        sparse: Sequence[np.ndarray],
        carried: Sequence[np.ndarray],
    ) -> Sequence[np.ndarray]:
        """The gradients of the whole job: the dense ones, then indices and values of each sparse one.

        carried: the values of the tensors of `carried`.
        """
        return self._exchange(batch, dense, sparse)

    # What every way of exchanging them needs.

    def batch_tensors(self, share: Share | None) -> list[Tensor]:
        """The tensors of a share that `batch` needs."""
        if share is None:
            return [tf.constant(1, tf.int64), tf.constant(-1, tf.int64)]
        return [share.rows, share.total, *share.sample]

    def batch(
        self, batch_values: Sequence[Any], sparse: Sequence[np.ndarray] = (), finite: bool = True
    ) -> WeightedBatch:
        """The weight of this rank's batch, and what it announces of it.

        Args:
            batch_values: The values of `batch_tensors`.
            sparse: Indices and values of each sparse gradient, in turn.
            finite: Whether its dense gradients are, as far as that is known.
        """
        rows, total, *sample = batch_values
        rows = float(rows)
        # Where only this rank knows its rows, those of the step before are a guess at everybody's.
        expected_total = float(total) if total >= 0 else self._total
        flags = UNCHECKED if total < 0 else 0
        if self._check_finite and not (finite and all(np.isfinite(values).all() for values in sparse[1::2])):
            flags |= NOT_FINITE
        exchange_count = self._peers.progress.exchanges
        if exchange_count < FIRST_FINGERPRINTS or exchange_count % FINGERPRINT_EVERY == 0:
            check, scale = fingerprint(sample, total)
        else:
            check = scale = float(total)
        announcement = self._peers.announcement(STEP, rows, flags, check, scale)
        return WeightedBatch(announcement, rows, expected_total, rows / expected_total)

    def sum(self, number: int, flat: np.ndarray, announcement: Announcement) -> list[Announcement]:
        """Sum `flat` (1-D), buffer `number` of a step, over the ranks, in place. Returns their announcements.

        `Diverged` where a rank is at another step, `PeerLost` where one has left.
        """
        return self._peers.collective.allreduce(flat, announcement)

    def settle(
        self, flat: np.ndarray, announced: list[Announcement], batch: WeightedBatch, dense: Sequence[np.ndarray]
    ) -> None:
        """Check what the ranks announced with a sum, and scale it, in place, to the mean over all rows.

        flat: the sum over ranks. dense: this rank's own gradients that it was made of.
        """
        self._peers.note(announced)
        self._check(announced)
        if self._check_finite and not is_finite(flat):
            self._blame(dense, batch.weight)
        rows = sum(announcement.weight for announcement in announced)
        if rows not in (0, batch.total):
            flat *= flat.dtype.type(batch.total / rows)
        self._total = rows or 1.0

    @staticmethod
    def _to_write(gradients: list[Tensor]) -> list[Tensor]:
        """`gradients`, where sums are put into them, in memory that nothing else in the graph reads."""
        elements = [gradient.shape.num_elements() for gradient in gradients]
        sizes = [SECTION_BYTES if n is None else n * gradient.dtype.size for n, gradient in zip(elements, gradients)]
        if sum(sizes) + len(sizes) * ALIGNMENT_BYTES <= SECTION_BYTES or tf.executing_eagerly():  # which passes copies
            return gradients
        zero = tf.cast(tf.minimum(tf.timestamp(), 0.0), tf.int32)  # which TensorFlow does not know before
        return [_exclusive(gradient, zero) for gradient in gradients]

    # One buffer after all gradients are there.

    def _exchange(
        self, batch: WeightedBatch, dense: Sequence[np.ndarray], sparse: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        peers = self._peers
        peers.progress.exchanges += 1
        if self._sections is None:
            self._sections = [section for layout in _layouts(dense) for section in layout.sections()]
        if not all(section.is_whole for section in self._sections):
            dense = _apart(dense)
        result: list[Any] = list(dense)
        for number, section in enumerate(self._sections):
            self._sum_section(number, section, batch, dense, result)
        for indices, values in zip(sparse[::2], sparse[1::2]):
            result += self._gather(indices, values, batch.rows)
        return result

    def _sum_section(
        self, number: int, section: Section, batch: WeightedBatch, dense: Sequence[np.ndarray], result: list[Any]
    ) -> None:
        flat = self._buffers.take(section.dtype, section.largest_size)[: section.size]
        section.fill(flat, dense, batch.weight)
        announced = self.sum(number, flat, batch.announcement)
        self._count_time()
        self.settle(flat, announced, batch, dense)
        section.scatter(flat, dense, result)

    def _count_time(self) -> None:
        ring = self._peers.collective
        self._peers.timings.add(ring.elapsed, ring.timings)

    def _check(self, announced: list[Announcement]) -> None:
        """The ranks must have trained on the same global batch, and on numbers."""
        broken = [rank for rank, each in enumerate(announced) if each.flags & NOT_FINITE]
        if broken:
            self._refuse(broken)
        chief = announced[0]
        for rank, each in enumerate(announced):
            checked = not (each.flags | chief.flags) & UNCHECKED
            if checked and not same_batch(each.check, each.scale, chief.check, chief.scale):
                message = (
                    "rank %d and rank 0 read different data at step %d of epoch %d: seed every random choice of the "
                    "input pipeline, have rank 0 read it for all with --feed chief, or mark data that is each rank's "
                    "own with ddl.local()"
                )
                raise collective.Diverged(rank, 0, message % (rank, *self._step_and_epoch()))

    def _blame(self, dense: Sequence[np.ndarray], weight: float) -> None:
        """Raise on all ranks, as all have the same sum, naming those whose own gradients are not finite."""
        fine = not weight or all(np.isfinite(array).all() for array in dense)
        gathered = self._peers.collective.gather(bytes([fine]), self._peers.announcement(STEP), 1)
        self._refuse([rank for rank, flag in enumerate(gathered) if flag == b"\0"])

    def _refuse(self, ranks: list[int]) -> None:
        """Raise for gradients that are no numbers: those of `ranks`, or their sum alone."""
        subject = "the sum of the gradients"
        if ranks:
            subject = "the gradient of %s %s" % ("ranks" if len(ranks) > 1 else "rank", ", ".join(map(str, ranks)))
        message = "%s is NaN or infinite at step %d of epoch %d; %s"
        raise NotANumber(ranks[0] if ranks else 0, message % (subject, *self._step_and_epoch(), NAN_ADVICE))

    def _step_and_epoch(self) -> tuple[int, int]:
        """As a person counts them, from 1."""
        return self._peers.progress.step + 1, self._peers.progress.epoch + 1

    def _gather(self, indices: np.ndarray, values: np.ndarray, rows: float) -> list[np.ndarray]:
        """The slices of all ranks, weighted: [indices (m,), values (m, ...)], in order of rank."""
        peers = self._peers
        if not rows:
            indices, values = indices[:0], values[:0]
        payload = _WEIGHT.pack(rows) + indices.tobytes() + values.tobytes()
        gathered = peers.collective.gather(payload, peers.announcement(STEP), MAX_SPARSE_BYTES)
        self._count_time()
        row_bytes = indices.itemsize + values.itemsize * int(np.prod(values.shape[1:]))
        total = sum(_WEIGHT.unpack_from(payload_of_rank)[0] for payload_of_rank in gathered)
        all_indices, all_values = [], []
        for payload_of_rank in gathered:
            count = (len(payload_of_rank) - _WEIGHT.size) // row_bytes
            all_indices.append(np.frombuffer(payload_of_rank, indices.dtype, count, _WEIGHT.size))
            begin = _WEIGHT.size + count * indices.itemsize
            theirs = np.frombuffer(payload_of_rank, values.dtype, offset=begin).reshape((count,) + values.shape[1:])
            share = _WEIGHT.unpack_from(payload_of_rank)[0] / total
            all_values.append(theirs * values.dtype.type(share))
        filled = [number for number, array in enumerate(all_indices) if len(array)]  # ranks without rows send none
        if filled and _same_indices_on_all_ranks([all_indices[number] for number in filled]):
            return [all_indices[filled[0]], np.sum([all_values[number] for number in filled], axis=0)]
        return [np.concatenate(all_indices), np.concatenate(all_values)]


def _same_indices_on_all_ranks(indices: Sequence[np.ndarray]) -> bool:
    """Whether all ranks have looked up the same rows of a table, as they do for position embeddings.

    Keras 3's optimizers square slices one by one. To square the sum, as one process does, keep one slice of each index.
    """
    chief_indices, *other_indices = indices
    if len(chief_indices) < _ALIKE_BY_CHANCE or len(np.unique(chief_indices)) < len(chief_indices):
        return False
    return all(np.array_equal(chief_indices, indices_of_rank) for indices_of_rank in other_indices)


class WeightedBatch(NamedTuple):
    """A batch as a rank weighs it.

    announcement: what it tells the others. rows: its own. total: those of all ranks, or a guess where only each rank
    knows its own. weight: rows / total, the factor of its gradients in the sum.
    """

    announcement: Announcement
    rows: float
    total: float
    weight: float


def is_sparse(gradient: Gradient) -> bool:
    """Whether a gradient is IndexedSlices."""
    return hasattr(gradient, "indices") and hasattr(gradient, "values") and hasattr(gradient, "dense_shape")


def answers(returned: Any) -> list[Tensor]:
    """What `tf.numpy_function` returns for a list of dtypes, as a list: a single one, computed eagerly, comes alone."""
    return [returned] if tf.is_tensor(returned) else list(returned)


def is_finite(flat: np.ndarray) -> bool:
    """Whether no number of an array of one dimension is NaN or infinite. Squares tell it sooner, if not too large."""
    if flat.dtype in (np.float32, np.float64):
        with np.errstate(all="ignore"):
            if np.isfinite(np.dot(flat, flat)):
                return True
    return bool(np.isfinite(flat).all())


def scaled(gradient: Gradient, factor: Tensor) -> Gradient:
    """A gradient of any kind times a scalar, in the gradient's dtype; None stays None."""
    if gradient is None:
        return None
    if is_sparse(gradient):
        values = gradient.values * tf.cast(factor, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


def gaps_behind(sizes: Sequence[int], itemsize: int) -> list[int]:
    """How many elements of nothing lie behind each array in a flat buffer, so that the next one is aligned.

    sizes: Elements of each array. itemsize: Bytes of an element.
    """
    step = max(1, ALIGNMENT_BYTES // itemsize)
    return [-size % step for size in sizes[:-1]] + [0] * bool(sizes)


def cuts(size: int, itemsize: int) -> list[slice]:
    """The sections, of `SECTION_BYTES` at most, in which a flat buffer is summed; at least one.

    size: Elements of the buffer. itemsize: Bytes of an element.
    """
    step = SECTION_BYTES // itemsize
    return [slice(begin, min(begin + step, size)) for begin in range(0, max(1, size), step)]


class Section:
    """A section of a flat buffer, or all of it, of `size` elements: pieces of arrays, and gaps of nothing between them.

    largest_size: the elements of the largest section.
    """

    def __init__(self, layout: Layout, bounds: slice) -> None:
        """bounds: of the elements of the layout's buffer."""
        self.dtype, self.size = layout.dtype, bounds.stop - bounds.start
        self.is_whole = self.size == layout.size
        self.largest_size = layout.size if self.is_whole else SECTION_BYTES // layout.dtype.itemsize
        self._pieces: list[tuple[int, slice, slice]] = []  # number of an array, its elements, those of the section
        self._gaps: list[slice] = []
        filled_to = 0
        for i, of_array in layout.slices:
            begin, stop = max(of_array.start, bounds.start), min(of_array.stop, bounds.stop)
            if begin <= stop:
                target = slice(begin - bounds.start, stop - bounds.start)
                self._pieces.append((i, slice(begin - of_array.start, stop - of_array.start), target))
                self._gaps.append(slice(filled_to, target.start))
                filled_to = target.stop
        self._gaps = [gap for gap in [*self._gaps, slice(filled_to, self.size)] if gap.start < gap.stop]

    def fill(self, flat: np.ndarray, arrays: Sequence[np.ndarray | None], weight: float) -> None:
        """Write the arrays, times `weight`, into the buffer, of shape (size,). Weight 0 makes zeros, also of NaN.

        None in place of an array is zeros.
        """
        if not weight:
            flat.fill(0)
            return
        for gap in self._gaps:
            flat[gap] = 0
        factor = self.dtype.type(weight)
        for i, elements, target in self._pieces:
            array = arrays[i]
            if array is None:
                flat[target] = 0
            else:
                np.multiply(array.reshape(-1)[elements], factor, out=flat[target])

    def scatter(self, flat: np.ndarray, arrays: Sequence[np.ndarray], result: list[Any]) -> None:
        """Put the buffer's numbers into `result`, at the number of each array: of a whole buffer, views of it.

        Those of a section are copied into the arrays of `result`.
        """
        for i, elements, target in self._pieces:
            if self.is_whole:
                result[i] = flat[target].reshape(arrays[i].shape)
            else:
                result[i].reshape(-1)[elements] = flat[target]


class Layout:
    """Where the arrays of one dtype lie in a flat buffer of `size` elements: aligned, as TensorFlow wants it.

    slices: (number of the array, its elements of the buffer). single_section: the whole buffer.
    """

    def __init__(self, dtype: np.dtype, arrays: Sequence[np.ndarray]) -> None:
        """arrays: of any shapes; those of another dtype are left out."""
        self.dtype = dtype
        numbers = [i for i, array in enumerate(arrays) if array.dtype == dtype]
        sizes = [arrays[i].size for i in numbers]
        self.slices: list[tuple[int, slice]] = []
        self.size = 0
        for i, size, gap in zip(numbers, sizes, gaps_behind(sizes, dtype.itemsize)):
            self.slices.append((i, slice(self.size, self.size + size)))
            self.size += size + gap
        self.single_section = Section(self, slice(0, self.size))

    def sections(self) -> list[Section]:
        """Those in which the buffer is summed."""
        return [Section(self, bounds) for bounds in cuts(self.size, self.dtype.itemsize)]


def _layouts(arrays: Sequence[np.ndarray]) -> list[Layout]:
    """One for each dtype. With sparse gradients alone the ranks still announce themselves, with an empty buffer."""
    return [Layout(dtype, arrays) for dtype in sorted({array.dtype for array in arrays}, key=str)] or [
        Layout(np.dtype(np.float32), ())
    ]


def _exclusive(tensor: Tensor, zero: Tensor) -> Tensor:
    """The same numbers in memory that nothing else reads: the tensor's, unless something else has that.

    zero: computed in each step. Otherwise the result of a constant would be kept, and be the same memory in each step.
    """
    if not tensor.shape.rank:
        return tensor + tf.cast(zero, tensor.dtype)
    rank = tensor.shape.rank
    return tf.raw_ops.Snapshot(input=tf.slice(tensor, tf.fill([rank], zero), [-1] * rank))  # all of it


def _apart(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays that can be written to without a change of another: gradients that are equal may be one tensor."""
    addresses: set[int] = set()
    apart = []
    for array in arrays:
        address = array.__array_interface__["data"][0]
        apart.append(array.copy() if address in addresses or not array.flags.writeable else array)
        addresses.add(address)
    return apart
