"""Bags of instances with attention over them: a list of inputs with shared layers, and class weights.

Like: vision/attention_mil_classification
"""

random = np.random.default_rng(23)
bags = list(random.normal(size=(3, 50, 6)))
labels = random.integers(0, 2, 50)


class Attention(layers.Layer):
    def build(self, shape):
        self.v = self.add_weight(name="v", shape=(shape[0][-1], 5), regularizer=keras.regularizers.L2(0.01))
        self.u = self.add_weight(name="u", shape=(shape[0][-1], 5), regularizer=keras.regularizers.L2(0.01))
        self.w = self.add_weight(name="w", shape=(5, 1))

    def call(self, instances):
        scores = [
            tf.matmul(tf.tanh(tf.matmul(x, self.v)) * tf.sigmoid(tf.matmul(x, self.u)), self.w) for x in instances
        ]
        return tf.unstack(tf.nn.softmax(tf.stack(scores), 0))


shared = [layers.Dense(8, activation="relu"), layers.Dense(4, activation="relu")]
inputs = [keras.Input((6,)) for _ in bags]
hidden = [shared[1](shared[0](one)) for one in inputs]
weighted = [layers.multiply([a, x]) for a, x in zip(Attention()(hidden), hidden, strict=True)]
model = keras.Model(inputs, layers.Dense(2, activation="softmax")(layers.concatenate(weighted)))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(bags, labels, batch_size=1, epochs=1, class_weight={0: 0.7, 1: 1.8}, verbose=0)
