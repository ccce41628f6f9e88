"""A train_step knows the rows of a batch by a number, for labels of ones.

Like: the tutorials about adversaries, with BATCH_SIZE
Refused: allreduce: fails on a part of a batch
"""

BATCH = 16
x = np.random.default_rng(1).normal(size=(48, 5))


class Judge(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            logits = self.dense(data, training=True)
            labels = tf.ones((BATCH, 1), logits.dtype)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


model = Judge()
model.compile("sgd")
history = model.fit(tf.data.Dataset.from_tensor_slices(x).batch(BATCH, drop_remainder=True), epochs=2, verbose=0)
