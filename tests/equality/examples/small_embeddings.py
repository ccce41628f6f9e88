"""Embeddings of quotient and remainder, multiplied, of users and movies.

Like: keras_recipes/memory_efficient_embeddings
"""

random = np.random.default_rng(87)
ids = {"user": random.integers(0, 20, 74), "movie": random.integers(0, 30, 74)}
ratings = random.uniform(1, 5, 74)


class QuotientRemainder(layers.Layer):
    def __init__(self, buckets, width):
        super().__init__()
        self.buckets = buckets
        self.quotients, self.remainders = layers.Embedding(buckets, width), layers.Embedding(buckets, width)

    def call(self, numbers):
        numbers = tf.cast(numbers, tf.int64)
        return self.quotients(numbers // self.buckets) * self.remainders(numbers % self.buckets)


inputs = {name: keras.Input((), name=name, dtype="int64") for name in ids}
vectors = [QuotientRemainder(6, 4)(one) for one in inputs.values()]
similar = layers.Dot(axes=1)(vectors)
model = keras.Model(inputs, layers.Rescaling(5.0)(layers.Activation("sigmoid")(similar)))
model.compile("adam", "mse", metrics=["mae"])
data = tf.data.Dataset.from_tensor_slices((ids, ratings)).batch(16)
history = model.fit(data, epochs=2, validation_data=data.take(2), verbose=0)
