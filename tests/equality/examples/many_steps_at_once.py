"""Eight steps in each execution, of which the last one has fewer; a learning rate for each epoch.

Like: any, with steps_per_execution=8
"""

random = np.random.default_rng(92)
x, y = random.normal(size=(90, 6)), random.integers(0, 3, 90)

model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], steps_per_execution=8)
schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
history = model.fit(x, y, batch_size=8, epochs=3, validation_split=0.2, callbacks=[schedule], verbose=0)
