"""Two views of each image, of which one predicts the other's frozen projection.

Like: vision/simsiam
Options: --sync-batchnorm
"""

left, right = np.random.default_rng(11).normal(size=(2, 70, 10))


def loss_of(predicted, projected):
    projected = tf.math.l2_normalize(tf.stop_gradient(projected), 1)
    return -tf.reduce_mean(tf.reduce_sum(projected * tf.math.l2_normalize(predicted, 1), 1))


class SimSiam(keras.Model):
    def __init__(self, encoder, predictor):
        super().__init__()
        self.encoder, self.predictor = encoder, predictor
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        first, second = data
        with tf.GradientTape() as tape:
            z1, z2 = self.encoder(first, training=True), self.encoder(second, training=True)
            p1, p2 = self.predictor(z1, training=True), self.predictor(z2, training=True)
            loss = loss_of(p1, z2) / 2 + loss_of(p2, z1) / 2
        weights = self.encoder.trainable_variables + self.predictor.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


encoder = keras.Sequential(
    [
        keras.Input((10,)),
        layers.Dense(8, use_bias=False, kernel_regularizer="l2"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Dense(6, use_bias=False),
        layers.BatchNormalization(),
    ]
)
predictor = keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="relu"), layers.Dense(6)])
model = SimSiam(encoder, predictor)
model.compile(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.03, 10), momentum=0.6))
data = tf.data.Dataset.zip(tuple(tf.data.Dataset.from_tensor_slices(one) for one in (left, right)))
history = model.fit(data.batch(16), epochs=2, verbose=0)
