"""Functions of tf.function within a step: parts of its graph, converted by AutoGraph."""

import tensorflow as tf

from ddl_magics.runtime.trial.inlined_functions import inlined_functions


class Doubled:
    @tf.function
    def method(self, x):
        return x * 2.0 if x > 1.0 else self.other(x)

    @tf.function
    def other(self, x):
        return -x


def test_a_function_is_no_trace_of_its_own():
    doubled, inner = Doubled(), tf.Variable(0)

    @tf.function(autograph=False)
    def step(x):
        with inlined_functions():
            return doubled.method(x) + tf.cast(inner, tf.float32)

    assert [float(step(tf.constant(x))) for x in (3.0, 0.5)] == [6.0, -0.5]
    called = [node.op for node in step.get_concrete_function(tf.constant(1.0)).graph.as_graph_def().node]
    assert "PartitionedCall" not in called and "StatefulPartitionedCall" not in called
    with inlined_functions():
        assert float(doubled.method(tf.constant(3.0))) == 6.0


def test_branches_of_the_step_after_a_function_are_executed():
    """What assigns to a variable in a branch, and gives nothing that is used, is executed by its control dependency."""
    doubled, variable = Doubled(), tf.Variable(0.0)

    def assigned():
        variable.assign(5.0)
        return tf.constant(0)

    @tf.function(autograph=False)
    def step(x):
        with inlined_functions():
            y = doubled.method(x)
            tf.cond(x > 1.0, assigned, lambda: tf.constant(0))
        return y

    step(tf.constant(3.0))
    assert float(variable) == 5.0
