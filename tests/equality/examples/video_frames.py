"""Features of frames through a GRU, with a mask as a second input.

Like: vision/video_classification
"""

random = np.random.default_rng(26)
frames = random.normal(size=(50, 6, 5, 5, 1))
lengths = random.integers(1, 7, (50, 1))
masks = np.arange(6) < lengths
labels = random.integers(0, 3, 50)

film, mask = keras.Input((6, 5, 5, 1)), keras.Input((6,), dtype="bool")
x = layers.TimeDistributed(layers.Conv2D(3, 3, activation="relu"))(film)
x = layers.TimeDistributed(layers.Flatten())(x)
x = layers.GRU(6, return_sequences=True)(x, mask=mask)
x = layers.Dense(4, activation="relu")(layers.GRU(4)(x))
model = keras.Model([film, mask], layers.Dense(3, activation="softmax")(x))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
best = keras.callbacks.ModelCheckpoint("film.weights.h5", save_weights_only=True, save_best_only=True)
history = model.fit([frames, masks], labels, batch_size=16, epochs=2, validation_split=0.3, callbacks=[best], verbose=0)
model.load_weights("film.weights.h5")
