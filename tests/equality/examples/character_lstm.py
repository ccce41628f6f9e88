"""The next letter of a text, sampled after each fit of one epoch.

Like: generative/lstm_character_level_text_generation
"""

text = "the rain in spain stays mainly in the plain and falls again " * 2
letters = sorted(set(text))
numbers = np.array([letters.index(letter) for letter in text])
starts = range(0, len(text) - 9, 2)
x = np.eye(len(letters), dtype="bool")[np.stack([numbers[at : at + 8] for at in starts])]
y = np.eye(len(letters), dtype="bool")[numbers[[at + 8 for at in starts]]]

model = keras.Sequential([keras.Input((8, len(letters))), layers.LSTM(10), layers.Dense(len(letters))])
model.add(layers.Activation("softmax"))
model.compile(keras.optimizers.RMSprop(0.01), "categorical_crossentropy")
history = {"loss": [], "written": []}
for epoch in range(2):
    history["loss"] += model.fit(x, y, batch_size=16, epochs=1, verbose=0).history["loss"]
    seed = x[epoch : epoch + 1].astype("float64")
    for _ in range(5):
        best = model.predict(seed, verbose=0)[0].argmax()
        history["written"].append(best)
        seed = np.concatenate([seed[:, 1:], np.eye(len(letters))[None, None, best]], 1)
