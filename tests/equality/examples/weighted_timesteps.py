"""Weights of timesteps beside a mask, through TimeDistributed and a GRU.

Like: the guide to masking, with sample weights for each timestep
"""

random = np.random.default_rng(3)
x, lengths = random.normal(size=(42, 7, 4)), random.integers(2, 8, 42)
kept = np.arange(7)[None] < lengths[:, None]
x, y, weights = x * kept[..., None], random.integers(0, 3, (42, 7)), kept * random.uniform(0.5, 1.5, (42, 7))

given = keras.Input((7, 4))
states = layers.GRU(5, return_sequences=True)(layers.Masking()(given))
model = keras.Model(given, layers.TimeDistributed(layers.Dense(3, activation="softmax"))(states))
model.compile("rmsprop", "sparse_categorical_crossentropy", metrics=["accuracy"], weighted_metrics=["accuracy"])
validation = (x[:11], y[:11], weights[:11])
history = model.fit(x, y, sample_weight=weights, batch_size=9, epochs=2, verbose=0, validation_data=validation)
