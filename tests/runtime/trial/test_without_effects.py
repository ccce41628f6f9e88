"""What a trial calls leaves no trace: neither lines nor summaries nor rows in a list of the cell."""

import threading

import numpy as np
import tensorflow as tf

from ddl_magics.runtime.trial.without_effects import without_effects


def test_prints_summaries_and_functions_without_result_are_left_out(capfd, tmp_path):
    seen, doubled = [], []
    writer = tf.summary.create_file_writer(str(tmp_path))

    def step(x, number):
        print("print", number)
        tf.print("tf.print", number)
        tf.py_function(lambda values: seen.extend(values.numpy().tolist()), [x], [])
        tf.numpy_function(lambda values: seen.extend(values.tolist()), [x], Tout=[])
        tf.summary.write("sum", tf.reduce_sum(x), step=number)
        doubled.append(np.asarray(tf.numpy_function(lambda values: 2 * values, [x], tf.float32)).tolist())

    with writer.as_default():
        with without_effects():
            step(tf.constant([1.0]), 1)
            elsewhere = threading.Thread(target=print, args=("another thread",))
            elsewhere.start()
            elsewhere.join()
        step(tf.constant([2.0]), 2)
    writer.close()
    assert seen == [2.0, 2.0] and doubled == [[2.0], [4.0]]
    printed = capfd.readouterr()
    assert printed.out == "another thread\nprint 2\n"
    assert "tf.print 2" in printed.err and "tf.print 1" not in printed.err
    (file,) = tmp_path.iterdir()
    steps = [event.step for event in tf.compat.v1.train.summary_iterator(str(file)) if event.summary.value]
    assert steps == [2]


def test_what_is_traced_meanwhile_keeps_its_effects():
    seen = []

    @tf.function
    def see(x):
        tf.numpy_function(lambda value: seen.append(float(value)), [x], [])

    with without_effects():
        see(tf.constant(1.0))
    see(tf.constant(2.0))
    assert seen == [1.0, 2.0]
