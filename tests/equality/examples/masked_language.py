"""Masked words weigh in the loss of a train_step, the others do not.

Like: nlp/masked_language_modeling
"""

random = np.random.default_rng(36)
words = random.integers(2, 15, (66, 8))
masked = random.uniform(size=words.shape) < 0.3
data = (np.where(masked, 1, words), words, masked.astype("float64"))

loss_of = keras.losses.SparseCategoricalCrossentropy(reduction="none")
tracker = keras.metrics.Mean(name="loss")


class Masked(keras.Model):
    def train_step(self, inputs):
        features, labels, weights = inputs
        with tf.GradientTape() as tape:
            loss = loss_of(labels, self(features, training=True), sample_weight=weights)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        tracker.update_state(loss, sample_weight=weights)
        return {"loss": tracker.result()}

    @property
    def metrics(self):
        return [tracker]


inputs = keras.Input((8,), dtype="int64")
x = layers.Embedding(15, 6)(inputs)
x = layers.LayerNormalization(epsilon=1e-6)(x + layers.MultiHeadAttention(2, 3)(x, x, x))
model = Masked(inputs, layers.Dense(15, activation="softmax")(x))
model.compile(keras.optimizers.Adam(1e-3))
batches = tf.data.Dataset.from_tensor_slices(data).shuffle(66, seed=1).batch(16)
history = model.fit(batches, epochs=2, verbose=0)
