"""The graphs of a batch are one graph: its parts have rows of atoms and rows of molecules.

Like: graph/mpnn_molecular_graphs
Refused: allreduce: the parts of a batch have
Refused: allreduce: couples the rows of a batch
"""

random = np.random.default_rng(64)


def batches():
    for _ in range(4):
        atoms = np.repeat(np.arange(6), random.integers(2, 5, 6))
        yield (random.normal(size=(len(atoms), 4)), atoms), random.integers(0, 2, (6, 1))


spec = (
    (tf.TensorSpec((None, 4), tf.float64), tf.TensorSpec((None,), tf.int64)),
    tf.TensorSpec((6, 1), tf.int64),
)
data = tf.data.Dataset.from_generator(batches, output_signature=spec).cache()


class Readout(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(6, activation="relu"), layers.Dense(1, activation="sigmoid")

    def call(self, inputs):
        return self.out(tf.math.unsorted_segment_sum(self.hidden(inputs[0]), inputs[1], 6))


model = Readout()
model.compile("adam", "binary_crossentropy")
history = model.fit(data, epochs=2, verbose=0)
