"""Computed in bfloat16 with weights of float32: equal within the rounding of bfloat16.

Like: guides/mixed_precision
Bound: 5e-3
"""

random = np.random.default_rng(93)
x, y = random.normal(size=(90, 6)), random.integers(0, 3, 90)

model = keras.Sequential(
    [
        keras.Input((6,)),
        layers.Dense(8, activation="tanh", dtype="mixed_bfloat16"),
        layers.Dense(3, dtype="mixed_bfloat16"),
        layers.Activation("softmax", dtype="float32"),
    ]
)
model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["sparse_categorical_crossentropy"])
history = model.fit(x, y, batch_size=16, epochs=2, validation_split=0.2, verbose=0)
