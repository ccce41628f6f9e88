"""The compiled update of an optimizer: what Keras computes, by XLA where that is sure to know all of it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from ddl_magics.runtime.training import compiled_update


class Own(keras.optimizers.SGD):
    """A user's."""


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.1),
    "clipped": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1, global_clipnorm=0.5),
    "scheduled": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.3, 4, 0.7), momentum=0.9),
}


def variables():
    random = np.random.default_rng(0)
    return [keras.Variable(random.normal(size=shape).astype("float32")) for shape in ((5, 3), (3,))]


def step(make, changed, gradients=None):
    """(a function that makes one step on `changed`, the names of what it calls that XLA must compile)."""
    optimizer = make()
    given = gradients or [tf.constant(np.ones(one.shape, "float32")) for one in changed]

    @tf.function
    def run():
        compiled_update.apply(optimizer.apply, optimizer, given, changed)

    calls = [op for op in run.get_concrete_function().graph.get_operations() if "Call" in op.type]
    return run, [op.name for op in calls if _must_compile(op)]


def _must_compile(op):
    try:
        return op.get_attr("_XlaMustCompile")
    except ValueError:
        return False


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_compiled_and_computes_the_same(name):
    ours, plain = variables(), variables()
    run, compiled = step(OPTIMIZERS[name], ours)
    assert compiled
    expected = OPTIMIZERS[name]()
    for _ in range(5):
        run()
        expected.apply([tf.ones(one.shape) for one in plain], plain)
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)


def slices(shape):
    return tf.IndexedSlices(tf.ones((2, *shape[1:])), tf.constant([1, 1]), tf.constant(shape))


LEFT_ALONE = {
    "a user's optimizer": (lambda: Own(0.1), variables, None),
    "a user's schedule": (lambda: keras.optimizers.SGD(lambda: 0.1), variables, None),
    "sparse gradients": (lambda: keras.optimizers.SGD(0.1), lambda: variables()[:1], lambda: [slices((5, 3))]),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_what_xla_might_not_know_is_left_alone_and_works(what):
    make, made, gradients = LEFT_ALONE[what]
    changed = made()
    before = [one.numpy() for one in changed]
    run, compiled = step(make, changed, gradients and gradients())
    run()
    assert not compiled
    assert all((one.numpy() != old).any() for one, old in zip(changed, before, strict=True))


def test_a_users_constraint_is_left_alone():
    one = keras.Variable(np.ones((3,), "float32"))
    one.constraint = lambda value: tf.maximum(value, 0.5)
    run, compiled = step(lambda: keras.optimizers.SGD(1.0), [one])
    run()
    assert not compiled and one.numpy().tolist() == [0.5] * 3
