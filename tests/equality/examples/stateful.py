"""A recurrent layer that keeps its state from batch to batch, for a batch of fixed size.

Like: the guide to recurrent networks, stateful=True
Refused: allreduce: is stateful
"""

random = np.random.default_rng(99)
x, y = random.normal(size=(48, 4, 2)), random.normal(size=(48, 1))

model = keras.Sequential([keras.Input((4, 2), batch_size=12), layers.LSTM(5, stateful=True), layers.Dense(1)])
model.compile("adam", "mse")
history = {"loss": []}
for _ in range(2):
    history["loss"] += model.fit(x, y, batch_size=12, epochs=1, shuffle=False, verbose=0).history["loss"]
    getattr(model.layers[0], "reset_state", getattr(model.layers[0], "reset_states", None))()
