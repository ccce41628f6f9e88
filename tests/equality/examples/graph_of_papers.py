"""Rows are numbers of nodes; the graph is a constant in the model, whose layers pass messages along its edges.

Like: graph/gnn_citations
"""

random = np.random.default_rng(63)
features, edges = random.normal(size=(30, 5)), random.integers(0, 30, (2, 80))
nodes, labels = np.tile(np.arange(30), 2), np.tile(random.integers(0, 3, 30), 2)


class Convolution(layers.Layer):
    def __init__(self):
        super().__init__()
        self.prepare, self.update = layers.Dense(6, activation="gelu"), layers.Dense(6, activation="gelu")

    def call(self, x):
        messages = tf.gather(self.prepare(x), edges[1])
        received = tf.math.unsorted_segment_mean(messages, edges[0], 30)
        return tf.math.l2_normalize(self.update(tf.concat([x, received], 1)), -1)


class Graph(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.passes, self.out = layers.Dense(6), [Convolution(), Convolution()], layers.Dense(3)

    def call(self, numbers):
        x = self.first(tf.constant(features))
        for one in self.passes:
            x = x + one(x)
        return self.out(tf.gather(x, tf.cast(tf.reshape(numbers, [-1]), tf.int32)))


model = Graph()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")])
history = model.fit(nodes, labels, batch_size=16, epochs=2, verbose=0)
