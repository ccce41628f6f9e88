"""What ranks exchange in the middle of a step, for losses and metrics of the whole batch. Ranks are threads here."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from support.channels import SentFrames
from support.rings import ThreadRing, rank_on

from ddl_magics.runtime.collectives.announcement import EPOCH
from ddl_magics.runtime.gradients import batch_loss, masked_loss, reduce, whole_metrics
from ddl_magics.runtime.gradients.batch import LocalShare, Share
from ddl_magics.runtime.gradients.batch_loss import BatchLoss, Loss, of_loss
from ddl_magics.runtime.gradients.gathering import all_gather
from ddl_magics.runtime.gradients.metric_sums import MetricSums
from ddl_magics.runtime.gradients.traced_step import TracedStep
from ddl_magics.runtime.gradients.whole_metrics import WholeMetrics
from ddl_magics.runtime.gradients.within_step import WithinStep
from ddl_magics.runtime.trial import MEAN, OUTPUT, SUM, TARGET

#: Of each rank. The one without rows computes on one row, which does not count.
ROWS = (3, 0, 2)
OUTPUTS = np.random.default_rng(3).normal(size=(5, 2))
TARGETS = np.array([0, 1, 1, 0, 1])
#: What the rows of the ranks are in the batch.
SLICES = (slice(0, 3), slice(0, 1), slice(3, 5))


class Step:
    """A rank while a step is traced."""

    def __init__(self, ring, rows=ROWS, local=False, gather="auto", apart=False):
        self.channel = SentFrames()
        self.rank = rank_on(ring, self.channel)
        self.traced = TracedStep()
        own, total = (tf.constant(value, tf.int64) for value in (rows[ring.rank], -1 if local else sum(rows)))
        self.traced.enter((LocalShare if local else Share)(None, own, total))
        self.within = WithinStep(self.rank.peers, self.rank.errors, self.traced)
        self.loss = BatchLoss(self.traced, self.within, self.rank.reporter, gather)
        self.sums = MetricSums(self.rank.peers)
        self.metrics = WholeMetrics(self.traced, self.within, self.rank.reporter, self.sums, gather, apart)
        self.outputs, self.targets = OUTPUTS[SLICES[ring.rank]], TARGETS[SLICES[ring.rank]]

    def said(self):
        return [event["message"] for _, events in self.channel.sent for event in events]


@pytest.fixture(autouse=True)
def one_trial_at_a_time(monkeypatch):
    """A trial changes classes of TensorFlow, which these ranks share."""
    lock = threading.Lock()

    def alone(trial):
        def call(*args, **kwargs):
            with lock:
                return trial(*args, **kwargs)

        return call

    monkeypatch.setattr(batch_loss, "try_loss", alone(batch_loss.try_loss))
    monkeypatch.setattr(whole_metrics, "adds_up", alone(whole_metrics.adds_up))


@pytest.fixture
def ring():
    with ThreadRing(len(ROWS)) as ring:
        yield ring


def each(ring, function, **options):
    """What a function of a step gives on all ranks, and the steps."""
    steps = [Step(rank, **options) for rank in ring.ranks]
    found = ring.each(lambda rank: function(steps[rank.rank]))
    return found, steps


def spread(y_true, y_pred):
    """It looks at the whole batch."""
    of_class = tf.cast(y_true, y_pred.dtype)[:, tf.newaxis]
    return tf.math.reduce_std(y_pred * (1 + of_class)) ** 3


def squares(y_true, y_pred):
    return tf.reduce_sum(y_pred**2 * tf.cast(y_true + 1, y_pred.dtype)[:, tf.newaxis])


def mean_squares(y_true, y_pred):
    return tf.reduce_mean(y_pred**2 * tf.cast(y_true + 1, y_pred.dtype)[:, tf.newaxis])


def learn(loss, outputs, targets):
    """(value, gradient) by the outputs."""
    outputs, targets = tf.constant(outputs), tf.constant(targets)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = loss(targets, outputs)
    return value.numpy(), tape.gradient(value, outputs).numpy()


def weighted(gradients, rows=ROWS):
    """The gradient of all rows, as the exchange of gradients weighs those of the ranks."""
    return np.concatenate([part * (count / sum(rows)) for part, count in zip(gradients, rows, strict=True) if count])


@pytest.mark.parametrize(
    ("function", "kind", "gather", "gathers", "local"),
    [
        (spread, None, "auto", True, False),
        (spread, None, "auto", True, True),
        (squares, None, "auto", False, False),
        (squares, SUM, "no", False, True),
        (mean_squares, None, "auto", False, False),
        (mean_squares, MEAN, "no", False, True),
        (mean_squares, MEAN, "yes", True, False),
    ],
)
def test_losses_and_their_gradients_are_those_of_the_whole_batch(ring, function, kind, gather, gathers, local):
    def computed(step):
        loss = Loss(function, "mine", function, kind)
        return learn(lambda *values: step.loss(loss, of_loss(values, (TARGET, OUTPUT))), step.outputs, step.targets)

    value, gradient = learn(function, OUTPUTS, TARGETS)
    found, steps = each(ring, computed, gather=gather, local=local)
    np.testing.assert_allclose(weighted([of_rank for _, of_rank in found]), gradient)
    values = [of_rank for of_rank, _ in found]
    np.testing.assert_allclose(np.average(values, weights=ROWS), value)
    said = steps[0].said()
    assert len(said) == (gathers and gather == "auto")
    assert all(
        "the loss mine looks at the whole batch: outputs are exchanged in each step, 0." in line for line in said
    )
    if gathers:  # every rank has the loss of all rows
        np.testing.assert_allclose(values, value)


def test_a_loss_of_the_whole_batch_is_refused_where_outputs_stay(ring):
    def computed(step):
        values = tf.constant(step.targets), tf.constant(step.outputs)
        return step.loss(Loss(spread, "mine", spread), of_loss(values, (TARGET, OUTPUT)))

    for error in each(ring, computed, gather="no")[0]:
        assert "neither a mean nor a sum over the rows of a batch, and --gather no forbids" in str(error)


def test_a_loss_without_rows_is_taken_for_a_mean(ring):
    def computed(step):
        loss = Loss(lambda y: y * 2, "mine", None)
        return step.loss(loss, of_loss((tf.constant(3.0),), (OUTPUT,))).numpy()

    found, steps = each(ring, computed)
    assert found == [6, 6, 6]
    assert len(steps[0].said()) == 1 and "the loss mine gets a " in steps[0].said()[0]


@pytest.mark.parametrize("alone", [False, True])
def test_where_a_rank_has_the_whole_batch_nothing_is_exchanged(ring, alone):
    step = Step(ring.ranks[0])
    step.traced.leave()
    loss = Loss(squares, "mine", squares, SUM)
    with step.traced.state(alone=alone, share=Share(None, tf.constant(5), tf.constant(10)) if alone else None):
        value = step.loss(loss, of_loss((tf.constant(TARGETS), tf.constant(OUTPUTS)), (TARGET, OUTPUT)))
    np.testing.assert_allclose(value, squares(TARGETS, OUTPUTS))


def test_masks_of_outputs_go_along(ring):
    def masked_spread(y_true, y_pred):
        kept = getattr(y_pred, "_keras_mask", tf.fill(len(y_pred), True))
        return tf.math.reduce_std(tf.boolean_mask(y_pred, kept)) ** 3

    def computed(step):
        outputs = tf.constant(step.outputs)
        outputs._keras_mask = outputs[:, 1] > 0
        targets = tf.constant(step.targets)
        return step.loss(Loss(masked_spread, "mine", 1), of_loss((targets, outputs), (TARGET, OUTPUT))).numpy()

    kept = OUTPUTS[:, 1] > 0
    found, steps = each(ring, computed)
    np.testing.assert_allclose(found, OUTPUTS[kept].std() ** 3)
    assert "the loss mine looks at the whole batch" in steps[0].said()[0]


def test_the_rows_of_all_are_had_with_gradients(ring):
    def computed(step):
        outputs = tf.constant(step.outputs)
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            rows = all_gather(step.within, step.traced, outputs)
            value = tf.math.reduce_std(rows) ** (2 + step.rank.config.rank)  # each has a loss of its own
        return rows.numpy(), tape.gradient(value, outputs).numpy()

    def whole(outputs):
        powers = [tf.math.reduce_std(outputs) ** (2 + rank) * (count / sum(ROWS)) for rank, count in enumerate(ROWS)]
        return tf.add_n(powers)

    _, gradient = learn(lambda _, outputs: whole(outputs), OUTPUTS, TARGETS)
    found, _ = each(ring, computed)
    for rows, _ in found:
        np.testing.assert_array_equal(rows, OUTPUTS)
    np.testing.assert_allclose(weighted([of_rank for _, of_rank in found]), gradient)
    assert not found[1][1].any()
    step = Step(ring.ranks[0])
    with step.traced.state(alone=True):
        assert all_gather(step.within, step.traced, OUTPUTS) is OUTPUTS and step.traced.gathers


def test_rows_of_any_type_are_gathered_in_order_of_rank(ring):
    sizes = []

    def computed(step):
        tensors = [tf.constant(step.targets), tf.constant(step.outputs), tf.constant(step.targets > 0)]
        gathered = step.within.gather(tensors, sizes.append)
        assert all(begin.dtype == tf.int64 for begin in gathered.begins)
        return [tensor.numpy() for tensor in gathered.tensors], int(gathered.begins[0]), float(gathered.factor)

    found, steps = each(ring, computed)
    for tensors, *_ in found:
        for ours, expected in zip(tensors, (TARGETS, OUTPUTS, TARGETS > 0), strict=True):
            np.testing.assert_array_equal(ours, expected)
    assert [begin for _, begin, _ in found] == [0, 3, 3]
    assert [factor for *_, factor in found] == [5 / 3, 0, 5 / 2]
    assert len(set(sizes)) == 1 and sizes[0] > OUTPUTS.nbytes + TARGETS.nbytes
    assert all(step.rank.peers.timings.waited > 0 for step in steps)


def test_what_xla_compiles_exchanges_nothing_and_says_whether_it_would(ring):
    step = Step(ring.ranks[0])
    with step.within.omitted() as omitted:
        pass
    assert not omitted.occurred
    with step.within.omitted() as omitted:
        assert step.within.total(5, 0) == 5
        assert step.within.gather([OUTPUTS]).tensors[0] is OUTPUTS
    assert omitted.occurred
    assert not step.within.alone()


@pytest.mark.parametrize("local", [False, True])
def test_the_rows_of_the_batch_over_a_rank_s_own(ring, local):
    found, _ = each(ring, lambda step: float(step.within.rows_over_own()), local=local)
    assert found == [5 / 3, 5, 5 / 2]
    step = Step(ring.ranks[0])
    with step.traced.state(factor=7.0):
        assert step.within.rows_over_own() == 7
    step.traced.leave()
    assert step.within.rows_over_own() == 3


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_masks_keep_a_mean_over_the_entries_of_the_whole_batch(ring, reduction):
    """`weigh` is Keras', in short: a mask, scaled by (all / kept) for a mean."""
    masks = [np.array([True, True, False]), np.array([True]), np.array([False, False])]

    def weigh(mask, reduction):
        weights = tf.cast(mask, tf.float64)
        return weights if reduction == "sum" else weights * (len(mask) / tf.reduce_sum(weights))

    def computed(step):
        mask = masks[step.rank.config.rank]
        with step.traced.state(trial=True):
            in_trial = masked_loss.masked(step.traced, step.within, lambda r: weigh(mask, r), mask, reduction)
            np.testing.assert_array_equal(in_trial, mask)
        return masked_loss.masked(step.traced, step.within, lambda r: weigh(mask, r), mask, reduction).numpy()

    found, (step, *_) = each(ring, computed)
    scale = 5 / 2 if reduction == "mean" else 1
    for weights, mask in zip(found, masks, strict=True):
        np.testing.assert_array_equal(weights, mask * scale)
    step.traced.leave()
    outside = masked_loss.masked(step.traced, step.within, lambda r: weigh(masks[0], r), masks[0], reduction)
    np.testing.assert_array_equal(outside, weigh(masks[0], reduction))


class Largest(tf.keras.metrics.Metric):
    """It does not add up over ranks."""

    def __init__(self):
        super().__init__(name="largest", dtype="float64")
        self.value = self.add_weight(shape=(), initializer="zeros", name="value", dtype="float64")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.reduce_max(y_pred)))

    def result(self):
        return self.value


class Count(tf.keras.metrics.Metric):
    """It does."""

    def __init__(self):
        super().__init__(name="count", dtype="float64")
        self.value = self.add_weight(shape=(), initializer="zeros", name="value", dtype="float64")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign_add(tf.cast(tf.shape(y_pred)[0], "float64"))

    def result(self):
        return self.value


def updated(step, kind, times=1):
    metric = kind()
    step.metrics.take(None)  # as Keras may have in a list
    step.metrics.take(metric)
    step.metrics.take(metric)
    for _ in range(times):
        metric.update_state(tf.constant(step.targets), tf.constant(step.outputs))
    return metric.result().numpy(), metric in step.sums.gathered


def test_a_metric_that_does_not_add_up_gets_the_rows_of_all(ring):
    found, _ = each(ring, lambda step: updated(step, Largest))
    assert found == [(OUTPUTS.max(), True)] * 3
    # One after the other, as they exchange nothing: the trial of one would undo the update of another.
    assert [updated(Step(rank), Count, times=2) for rank in ring.ranks] == [(6, False), (2, False), (4, False)]
    for error in each(ring, lambda step: updated(step, Largest), gather="no")[0]:
        assert "the metric 'largest' does not add up over workers, and --gather no forbids" in str(error)


def test_where_ranks_have_batches_of_their_own_a_metric_is_only_reported(ring):
    steps = [Step(rank, apart=True) for rank in ring.ranks]
    found = [updated(step, Largest) for step in steps]
    assert found == [(step.outputs.max(), False) if step.outputs.max() > 0 else (0, False) for step in steps]
    assert [len(step.said()) for step in steps] == [1, 0, 0]
    assert "which is not what one process computes" in steps[0].said()[0]


# Between steps.


@pytest.mark.parametrize("value", [3, 2.5, np.arange(6).reshape(2, 3), np.ones((2, 1), "float32")])
def test_the_cell_s_own_all_reduce(ring, value):
    def summed(rank):
        mine = rank_on(rank)
        total = reduce.allreduce(mine.peers, value * (1 + rank.rank), "sum")
        means = [reduce.allreduce(mine.peers, each, "mean") for each in (value, np.asarray(value) > rank.rank + 2)]
        true = reduce.allreduce(mine.peers, np.asarray(value) > rank.rank + 2, "sum")
        return total, *means, true, mine.progress.cell_collectives

    value = np.asarray(value)
    for total, mean, share, true, count in ring.each(summed):
        assert (total.shape, total.dtype, mean.shape) == (value.shape, value.dtype, value.shape)
        np.testing.assert_array_equal(total, value * 6)
        np.testing.assert_allclose(mean, value)
        np.testing.assert_allclose(share, np.mean([value > rank + 2 for rank in range(3)], axis=0))
        np.testing.assert_array_equal(true, 3 * share)
        assert mean.dtype == (value.dtype if value.dtype.kind == "f" else np.float64) and count == 4
        assert true.dtype == np.int64
    with pytest.raises(ValueError, match="op is 'max'; it must be 'mean' or 'sum'"):
        reduce.allreduce(rank_on(ring.ranks[0]).peers, value, "max")


def test_one_worker_s_all_reduce_has_the_dtypes_of_several():
    config, progress = SimpleNamespace(spec=SimpleNamespace(strategy="allreduce")), SimpleNamespace(cell_collectives=0)
    peers = SimpleNamespace(config=config, size=1, progress=progress, regrouping=None)
    assert [reduce.allreduce(peers, True, op).dtype for op in ("sum", "mean")] == [np.int64, np.float64]
    assert reduce.allreduce(peers, np.float32(1.5), "mean").dtype == np.float32
    assert progress.cell_collectives == 3


def test_of_a_rank_that_comes_to_where_the_others_are_it_is_the_own_value():
    """They have made it before, and the next one counts from theirs."""
    config, progress = SimpleNamespace(spec=SimpleNamespace(strategy="allreduce")), SimpleNamespace(cell_collectives=7)
    peers = SimpleNamespace(config=config, size=2, progress=progress, regrouping=SimpleNamespace(catches_up=True))
    assert (reduce.allreduce(peers, 2.5, "mean"), progress.cell_collectives) == (2.5, 7)


def test_the_logs_and_stops_of_all_ranks_and_the_weights_of_the_chief(ring):
    def met(ring):
        rank = rank_on(ring)
        rows = ROWS[ring.rank]
        logs = {"loss": float(ring.rank), "count": 2.0, "other": 1.0 if rows else np.nan}
        means = reduce.mean_logs(rank.peers, EPOCH, logs, rows, ["count"])
        rank.stop.requested = ring.rank == 2
        stops = reduce.agree_on_stop(rank.peers)
        weights = [tf.Variable([[ring.rank + 1.0, 2.0]]), tf.Variable(ring.rank, dtype=tf.int64), tf.Variable([0.5])]
        reduce.broadcast_weights(rank.peers, weights)
        return means, stops, rank.stop.agreed, [weight.numpy().tolist() for weight in weights]

    for means, stops, agreed, weights in ring.each(met):
        assert means == {"loss": 2 * 2 / 5, "count": 4.0, "other": 1.0}
        assert stops == [False, False, True] and agreed
        assert weights == [[[1.0, 2.0]], 0, [0.5]]


def test_variables_are_filled_from_a_buffer_and_added_to():
    variables = [tf.Variable([[1.0, 2.0]]), tf.Variable(3, dtype=tf.int32), tf.Variable([4.0], dtype=tf.float16)]
    flat = reduce.flat(variables)
    assert flat.tolist() == [1, 2, 3, 4]
    reduce.assign(variables, flat * 2)
    reduce.add(variables, flat)
    assert [variable.numpy().tolist() for variable in variables] == [[[3, 6]], 9, [12]]
