"""Each operation at once, without graphs.

Like: any, with run_eagerly=True
"""

random = np.random.default_rng(92)
x, y = random.normal(size=(90, 6)), random.integers(0, 3, 90)

model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=True)
history = model.fit(x, y, batch_size=16, epochs=2, validation_split=0.2, verbose=0)
