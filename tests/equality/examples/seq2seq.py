"""An LSTM's states start a second one, which is given the target shifted by one.

Like: nlp/lstm_seq2seq
"""

random = np.random.default_rng(34)
source = np.eye(6)[random.integers(0, 6, (50, 5))]
numbers = random.integers(0, 6, (50, 6))
given, target = np.eye(6)[numbers], np.eye(6)[np.roll(numbers, -1, 1)]

encoder_inputs, decoder_inputs = keras.Input((None, 6)), keras.Input((None, 6))
_, *states = layers.LSTM(8, return_state=True)(encoder_inputs)
outputs, _, _ = layers.LSTM(8, return_sequences=True, return_state=True)(decoder_inputs, initial_state=states)
model = keras.Model([encoder_inputs, decoder_inputs], layers.Dense(6, activation="softmax")(outputs))
model.compile("rmsprop", "categorical_crossentropy", metrics=["accuracy"])
history = model.fit([source, given], target, batch_size=16, epochs=2, validation_split=0.2, verbose=0)
