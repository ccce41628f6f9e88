"""The trial of a function: mean over rows, sum, or neither, for values that show it only now and then."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from ddl_magics.runtime.trial import row_trial
from ddl_magics.runtime.trial.comparisons import Comparisons
from ddl_magics.runtime.trial.repeatable_noise import RepeatableNoise
from ddl_magics.runtime.trial.row_trial import COUPLED, MEAN, OUTPUT, SUM, TARGET, Leaf
from ddl_magics.runtime.trial.scalar_variables import ScalarVariables


def found(function, target="float32", shape=(3,), scalars=None):
    """The verdict about a function of targets and outputs."""
    leaves = [Leaf(TARGET, shape, np.dtype(target)), Leaf(OUTPUT, shape, np.dtype("float32"))]
    noise = RepeatableNoise(row_trial.ROWS)

    def evaluate(rows, begin, size):
        noise.begin_call(begin, size, len(rows[0]))
        return [np.asarray(function(*(tf.constant(one[begin : begin + size]) for one in rows)))]

    with noise.drawn():
        return row_trial.verdict(evaluate, leaves, row_trial.look_into(function, leaves).constants, scalars).kind


def squares(y, p):
    return tf.square(tf.cast(y, p.dtype) - p)


def kept(mark):
    """A mean over the targets that are not `mark`."""

    def loss(y, p):
        wanted = tf.cast(y != mark, p.dtype)
        return tf.reduce_sum(tf.where(y != mark, squares(y, p), 0) * wanted) / tf.reduce_sum(wanted)

    return loss


def where_numbers(y, p):
    wanted = ~tf.math.is_nan(y)
    return tf.reduce_mean(tf.boolean_mask(squares(y, p), wanted))


def noisy(y, p):
    return tf.reduce_mean(squares(y, p + tf.random.normal(tf.shape(p))))


def noisy_by_a_seed(y, p):
    noise = tf.random.stateless_normal(tf.shape(p), seed=[1, 2])
    return tf.reduce_mean(squares(y, p + noise + tf.random.stateless_poisson(tf.shape(p), [3, 4], 2.0, p.dtype)))


GENERATOR = tf.random.Generator.from_seed(3)


def noisy_by_a_generator(y, p):
    return tf.reduce_sum(squares(y, p + GENERATOR.uniform(tf.shape(p), -1.0, 1.0)))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda y, p: tf.reduce_mean(squares(y, p)), MEAN),
        (lambda y, p: 0.0 * tf.reduce_sum(p), MEAN),
        (lambda y, p: tf.reduce_mean(squares(y, p)) + 3.0, MEAN),
        (noisy, MEAN),
        (noisy_by_a_seed, MEAN),
        (noisy_by_a_generator, SUM),
        (lambda y, p: tf.reduce_sum(squares(y, p)), SUM),
        (lambda y, p: tf.reduce_sum(squares(y, p)) / 32, SUM),
        (lambda y, p: tf.sqrt(tf.reduce_mean(squares(y, p))), COUPLED),
        (lambda y, p: tf.reduce_mean(tf.matmul(p, p, transpose_b=True)), COUPLED),
        (lambda y, p: tf.reduce_max(p), COUPLED),
        (lambda y, p: tf.nn.relu(tf.reduce_mean(squares(y, p)) - 60.0), COUPLED),
        (lambda y, p: tf.reduce_sum(p) / tf.cast(tf.maximum(tf.shape(p)[0], 16), p.dtype), COUPLED),
        (kept(-1.0), COUPLED),
        (kept(-999.0), COUPLED),  # a number that only the function knows
        (where_numbers, COUPLED),
        (lambda y, p: tf.reduce_mean(tf.reshape(p, [4, 3, 3])), COUPLED),  # takes the whole batch only
    ],
)
def test_what_it_does_to_rows(function, kind):
    assert found(function) == kind


@pytest.mark.parametrize("begins_at", [0.0, 2.0])
def test_a_term_whose_weight_changes(begins_at):
    """It is tried with another weight, and the variable has its own back."""
    weight, scalars = tf.Variable(begins_at, trainable=False), ScalarVariables()

    def loss(y, p):
        return tf.reduce_mean(squares(y, p)) + weight * tf.reduce_sum(tf.square(p))

    with scalars.noted():
        assert found(loss, scalars=scalars) == COUPLED
    assert weight.numpy() == begins_at


def test_a_counter_that_chooses():
    steps, scalars = tf.Variable(0, dtype=tf.int64, trainable=False), ScalarVariables()

    def loss(y, p):
        return tf.cond(steps < 10, lambda: tf.reduce_mean(squares(y, p)), lambda: tf.reduce_sum(squares(y, p)))

    with scalars.noted():
        assert found(loss, scalars=scalars) == COUPLED


def test_numbers_of_comparisons():
    y = tf.constant([1.0, -100.0])
    compared = Comparisons()
    with compared.noted():
        kept = (y != -100.0) & (y < 7) & (y > tf.reduce_mean(y))
        assert kept.numpy().tolist() == [True, False]
    assert compared.numbers[:2] == [-100.0, 7.0]


def test_a_variable_that_is_compared_is_no_number():
    compared, largest = Comparisons(), keras.Variable(3.0)
    with compared.noted():
        assert float(tf.maximum(largest, 5.0)) == 5.0
        assert bool(largest < tf.constant(4.0))
    assert compared.numbers == [4.0]


def test_labels():
    def loss(y, p):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y[:, 0], p))

    assert found(loss, "int64") == MEAN


def test_a_function_that_gives_no_number_is_told_why():
    def refuses(y, p):
        raise ValueError("no such rows\nat all")

    leaves = [Leaf(OUTPUT, (3,), np.dtype("float32"))]
    verdict = row_trial.verdict(lambda rows, begin, size: refuses(*rows, None), leaves)
    assert verdict.kind is None and verdict.reason == "ValueError: no such rows"
