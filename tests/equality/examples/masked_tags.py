"""A tag for each word with `mask_zero`: Keras leaves the padding out of loss and metrics.

Like: nlp/multi_label_classification, guides/understanding_masking_and_padding
"""

random = np.random.default_rng(38)
padding = np.arange(7) >= random.integers(1, 8, (66, 1))
words = np.where(padding, 0, random.integers(1, 20, (66, 7)))
tags = random.integers(0, 4, (66, 7))

model = keras.Sequential(
    [
        keras.Input((7,), dtype="int32"),
        layers.Embedding(20, 6, mask_zero=True),
        layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
        layers.TimeDistributed(layers.Dense(4, activation="softmax")),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(words, tags, batch_size=16, epochs=2, validation_split=0.2, verbose=0)
