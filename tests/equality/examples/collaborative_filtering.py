"""Users and movies as vectors; the model multiplies them by a tensordot over both axes, the batch among them.

Like: structured_data/collaborative_filtering_movielens
Refused: allreduce: couples the rows of a batch
"""

random = np.random.default_rng(53)
ids = np.stack([random.integers(0, 12, 74), random.integers(0, 15, 74)], 1)
ratings = random.uniform(size=74)


class Recommender(keras.Model):
    def __init__(self):
        super().__init__()
        regularized = {"embeddings_initializer": "he_normal", "embeddings_regularizer": keras.regularizers.L2(1e-6)}
        self.users, self.user_bias = layers.Embedding(12, 5, **regularized), layers.Embedding(12, 1)
        self.movies, self.movie_bias = layers.Embedding(15, 5, **regularized), layers.Embedding(15, 1)

    def call(self, inputs):
        user, movie = inputs[:, 0], inputs[:, 1]
        product = tf.tensordot(self.users(user), self.movies(movie), 2)
        return tf.nn.sigmoid(product + self.user_bias(user) + self.movie_bias(movie))


model = Recommender()
model.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy())
history = model.fit(ids, ratings, batch_size=16, epochs=2, validation_data=(ids[:20], ratings[:20]), verbose=0)
