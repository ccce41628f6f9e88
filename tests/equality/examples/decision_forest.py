"""Soft decision trees, each of some of the features, and their mean.

Like: structured_data/deep_neural_decision_forests
"""

DEPTH, CLASSES = 3, 3
random = np.random.default_rng(57)
x = random.normal(size=(70, 6))
labels = random.integers(0, CLASSES, 70)


class Tree(layers.Layer):
    def __init__(self, used):
        super().__init__()
        self.used, self.decide = np.eye(6)[used], layers.Dense(2**DEPTH, activation="sigmoid")

    def build(self, shape):
        self.leaves = self.add_weight(name="leaves", shape=(2**DEPTH, CLASSES), initializer="random_normal")

    def call(self, features):
        decisions = tf.expand_dims(self.decide(tf.matmul(features, self.used, transpose_b=True)), 2)
        decisions = tf.concat([decisions, 1 - decisions], 2)
        path, begin = tf.ones([tf.shape(features)[0], 1, 1], features.dtype), 1
        for level in range(DEPTH):
            path = tf.tile(tf.reshape(path, [-1, 2**level, 1]), [1, 1, 2])
            path = path * decisions[:, begin : begin + 2**level]
            begin += 2**level
        path = tf.reshape(path, [-1, 2**DEPTH])
        return tf.matmul(path, tf.nn.softmax(self.leaves))


inputs = keras.Input((6,))
trees = [Tree(used)(inputs) for used in ([0, 1, 2, 3], [2, 3, 4, 5], [0, 2, 4, 5])]
model = keras.Model(inputs, layers.Average()(trees))
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
history = model.fit(x, labels, batch_size=16, epochs=2, verbose=0)
