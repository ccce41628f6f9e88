"""Letters of an image in order: a layer at the model's end adds the CTC loss (endpoint layer).

Like: vision/captcha_ocr
Bound: 1e-5
"""

random = np.random.default_rng(20)
images = random.uniform(size=(42, 12, 6, 1))
letters = random.integers(1, 6, (42, 3))


class Aligned(layers.Layer):
    def call(self, labels, logits):
        batch, steps = tf.shape(logits)[0], tf.shape(logits)[1]
        lengths = tf.fill([batch], 3), tf.fill([batch], steps)
        loss = tf.nn.ctc_loss(
            tf.cast(labels, tf.int32), tf.cast(logits, tf.float32), *lengths, logits_time_major=False, blank_index=0
        )
        self.add_loss(tf.reduce_mean(tf.cast(loss, logits.dtype)))
        return logits


image, label = keras.Input((12, 6, 1), name="image"), keras.Input((3,), name="label")
x = layers.Conv2D(4, 3, activation="relu", padding="same")(image)
x = layers.Reshape((12, 24))(x)
x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
model = keras.Model([image, label], Aligned()(label, layers.Dense(6)(x)))
model.compile("adam")
history = model.fit({"image": images, "label": letters}, batch_size=8, epochs=2, validation_split=0.1, verbose=0)
