"""The next word under a causal mask; of two outputs the second has no loss, and a callback generates text.

Like: generative/text_generation_with_miniature_gpt
"""

random = np.random.default_rng(39)
words = random.integers(1, 15, (50, 9))
x, y = words[:, :-1], words[:, 1:]


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention, self.normal = layers.MultiHeadAttention(2, 6), layers.LayerNormalization(epsilon=1e-6)
        self.dense = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(6)])

    def call(self, x):
        places = tf.range(tf.shape(x)[1])
        causal = tf.repeat((places[:, None] >= places)[None], tf.shape(x)[0], 0)
        x = self.normal(x + self.attention(x, x, attention_mask=causal))
        return x + self.dense(x)


class Generated(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.found = []

    def on_epoch_end(self, epoch, logs=None):
        text = x[:1].copy()
        for place in range(3, 8):
            text[0, place] = self.model.predict(text, verbose=0)[0][0, place - 1].argmax()
        self.found.append(text.sum())


inputs = keras.Input((8,), dtype="int32")
hidden = Block()(layers.Embedding(15, 6)(inputs))
model = keras.Model(inputs, [layers.Dense(15)(hidden), hidden])
model.compile("adam", [keras.losses.SparseCategoricalCrossentropy(from_logits=True), None])
generated = Generated()
losses = model.fit(x, y, batch_size=16, epochs=2, callbacks=[generated], verbose=0).history
history = {**losses, "generated": generated.found}
