"""Gradients of three batches make one update.

Like: the argument gradient_accumulation_steps of optimizers
Needs: Keras 3
"""

random = np.random.default_rng(92)
x, y = random.normal(size=(90, 6)), random.integers(0, 3, 90)

model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")])
optimizer = keras.optimizers.AdamW(0.01, gradient_accumulation_steps=3, global_clipnorm=1.0)
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, batch_size=16, epochs=3, validation_split=0.2, verbose=0)
