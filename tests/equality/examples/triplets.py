"""Anchor, positive and negative through one embedding; a triplet loss in a train_step and a test_step.

Like: vision/siamese_network
"""

random = np.random.default_rng(7)
triplets = tuple(random.normal(size=(74, 8)) for _ in range(3))


class Siamese(keras.Model):
    def __init__(self, embedding, margin=0.5):
        super().__init__()
        self.embedding, self.margin = embedding, margin
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, inputs):
        anchor, positive, negative = (self.embedding(one) for one in inputs)
        return tf.reduce_sum((anchor - positive) ** 2, -1), tf.reduce_sum((anchor - negative) ** 2, -1)

    def loss_of(self, data):
        near, far = self(data)
        return tf.maximum(near - far + self.margin, 0.0)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        weights = self.embedding.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, data):
        self.tracker.update_state(self.loss_of(data))
        return {"loss": self.tracker.result()}

    @property
    def metrics(self):
        return [self.tracker]


embedding = keras.Sequential([keras.Input((8,)), layers.Dense(10, activation="tanh"), layers.Dense(4)])
model = Siamese(embedding)
model.compile(keras.optimizers.Adam(1e-3))
data = tf.data.Dataset.from_tensor_slices(triplets)
history = model.fit(data.take(60).batch(16), epochs=2, validation_data=data.skip(60).batch(8), verbose=0)
