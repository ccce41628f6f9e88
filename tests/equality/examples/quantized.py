"""Integers of 8 bits for the kernels after training.

Like: guides/quantization_overview
Needs: Keras 3
"""

random = np.random.default_rng(92)
x, y = random.normal(size=(90, 6)), random.integers(0, 3, 90)

model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0).history
model.quantize("int8")
history = {**history, "predicted": [model.predict(x[:5], verbose=0).sum(1).mean(), model.predict(x, verbose=0).max()]}
