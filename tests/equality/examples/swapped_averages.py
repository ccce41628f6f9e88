"""Moving averages of the weights in the place of the weights, for each evaluation.

Like: the callback SwapEMAWeights
Needs: Keras 3
"""

random = np.random.default_rng(92)
x, y = random.normal(size=(90, 6)), random.integers(0, 3, 90)

model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")])
optimizer = keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True, ema_momentum=0.8)
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
history = model.fit(x, y, batch_size=16, epochs=3, validation_split=0.2, callbacks=[swap], verbose=0)
