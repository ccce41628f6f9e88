"""Steps that Keras runs eagerly, on batches of one row: all workers but one have none from the first step on.

Like: guides/writing_a_custom_training_loop_in_tensorflow, when it is debugged
"""

random = np.random.default_rng(1)
x, y = random.normal(size=(3, 5)), random.normal(size=(3, 2))
model = keras.Sequential([keras.Input((5,)), layers.Dense(2)])
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], run_eagerly=True)
history = model.fit(x, y, batch_size=1, epochs=2, verbose=0, validation_data=(x[:1], y[:1]))
