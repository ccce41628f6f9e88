"""Source and target batches in one step; the threshold of pseudo-labels comes from the whole batch.

Like: vision/adamatch
Refused: allreduce: is neither a mean nor a sum over the rows of a batch
"""

random = np.random.default_rng(28)
source, target = random.normal(size=(2, 60, 6))
labels = random.integers(0, 3, 60)
entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


class Adaptive(keras.Model):
    def __init__(self, *args):
        super().__init__(*args)
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        (known, label), unknown = data
        with tf.GradientTape() as tape:
            of_known, of_unknown = self(known, training=True), self(unknown, training=True)
            confident = 0.9 * tf.reduce_mean(tf.reduce_max(tf.nn.softmax(of_known), -1))
            kept = tf.cast(tf.reduce_max(tf.nn.softmax(of_unknown), -1) >= confident, of_known.dtype)
            pseudo = tf.argmax(tf.stop_gradient(of_unknown), -1)
            loss = tf.reduce_mean(entropy(label, of_known)) + 0.5 * tf.reduce_mean(entropy(pseudo, of_unknown) * kept)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


given = keras.Input((6,))
model = Adaptive(given, layers.Dense(3)(layers.Dense(8, activation="relu")(given)))
model.compile(keras.optimizers.Adam(1e-2))
pairs = tf.data.Dataset.from_tensor_slices((source, labels)).batch(16, drop_remainder=True)
data = tf.data.Dataset.zip((pairs, tf.data.Dataset.from_tensor_slices(target).batch(16, drop_remainder=True)))
history = model.fit(data, epochs=2, verbose=0)
