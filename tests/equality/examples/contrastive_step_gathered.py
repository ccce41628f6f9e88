"""Two views of each image beside those of all others, in a train_step that gathers the rows of all workers.

Like: vision/semisupervised_simclr
"""

views = tuple(np.random.default_rng(10).normal(size=(2, 74, 8)))


class Contrast(keras.Model):
    def __init__(self, *args):
        super().__init__(*args)
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        left, right = data
        with tf.GradientTape() as tape:
            a = tf.math.l2_normalize(self(left, training=True), 1)
            b = tf.math.l2_normalize(self(right, training=True), 1)
            a, b = ddl.all_gather(a), ddl.all_gather(b)
            similar = tf.matmul(a, b, transpose_b=True) / 0.1
            rows = tf.range(tf.shape(a)[0])
            forward = tf.nn.sparse_softmax_cross_entropy_with_logits(rows, similar)
            back = tf.nn.sparse_softmax_cross_entropy_with_logits(rows, tf.transpose(similar))
            loss = tf.reduce_mean(forward + back) / 2
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


given = keras.Input((8,))
model = Contrast(given, layers.Dense(4)(layers.Dense(10, activation="relu")(given)))
model.compile(keras.optimizers.Adam(1e-3))
history = model.fit(*views, batch_size=16, epochs=2, verbose=0)
