"""No targets: several losses of the image that the model makes, in a train_step and a test_step.

Like: vision/zero_dce
"""

images = np.random.default_rng(19).uniform(0, 0.4, (38, 8, 8, 3))


def colour(image):
    r, g, b = (tf.reduce_mean(image[..., i], (1, 2)) for i in range(3))
    return tf.sqrt((r - g) ** 4 + (r - b) ** 4 + (b - g) ** 4 + 1e-12)


def exposure(image):
    return tf.reduce_mean((tf.nn.avg_pool2d(tf.reduce_mean(image, 3, keepdims=True), 4, 4, "VALID") - 0.6) ** 2)


def smoothness(curves):
    rows = tf.cast(tf.shape(curves)[0], curves.dtype)
    down = tf.reduce_sum(tf.square(curves[:, 1:] - curves[:, :-1])) / (7 * 8)
    across = tf.reduce_sum(tf.square(curves[:, :, 1:] - curves[:, :, :-1])) / (8 * 7)
    return 2 * (down + across) / rows


class Enhancer(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.Conv2D(4, 3, activation="relu", padding="same")
        self.curves = layers.Conv2D(6, 3, activation="tanh", padding="same")
        self.trackers = {name: keras.metrics.Mean(name=name) for name in ("total", "smooth", "colour", "exposure")}

    @property
    def metrics(self):
        return list(self.trackers.values())

    def call(self, image):
        curves = self.curves(self.first(image))
        made = image
        for part in tf.split(curves, 2, 3):
            made = made + part * (tf.square(made) - made)
        return curves, made

    def losses_of(self, image):
        curves, made = self(image)
        losses = {"smooth": 200 * smoothness(curves), "colour": 5 * tf.reduce_mean(colour(made))}
        losses["exposure"] = 10 * exposure(made)
        losses["total"] = losses["smooth"] + losses["colour"] + losses["exposure"]
        return losses

    def tracked(self, losses):
        for name, loss in losses.items():
            self.trackers[name].update_state(loss)
        return {name: tracker.result() for name, tracker in self.trackers.items()}

    def train_step(self, image):
        with tf.GradientTape() as tape:
            losses = self.losses_of(image)
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(losses["total"], weights), weights, strict=True))
        return self.tracked(losses)

    def test_step(self, image):
        return self.tracked(self.losses_of(image))


model = Enhancer()
model.compile(keras.optimizers.Adam(1e-3))
data = tf.data.Dataset.from_tensor_slices(images).batch(8, drop_remainder=True)
history = model.fit(data.take(3), epochs=2, validation_data=data.skip(3), verbose=0)
