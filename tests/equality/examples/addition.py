"""Sums of digits as text: a vector repeated for each output, and a fit of one epoch in a loop.

Like: nlp/addition_rnn
"""

random = np.random.default_rng(40)
terms = random.integers(0, 10, (74, 2))
x = np.eye(11)[np.stack([terms[:, 0], np.full(74, 10), terms[:, 1]], 1)]
y = np.eye(11)[np.stack([terms.sum(1) // 10, terms.sum(1) % 10], 1)]

model = keras.Sequential([keras.Input((3, 11)), layers.LSTM(8), layers.RepeatVector(2)])
model.add(layers.LSTM(8, return_sequences=True))
model.add(layers.Dense(11, activation="softmax"))
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
history = {"loss": [], "val_accuracy": []}
for _ in range(2):
    fitted = model.fit(x[:60], y[:60], batch_size=16, epochs=1, validation_data=(x[60:], y[60:]), verbose=0)
    for name, values in history.items():
        values += fitted.history[name]
