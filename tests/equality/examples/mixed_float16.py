"""Computed in float16 with a scaled loss: equal within the rounding of float16.

Like: guides/mixed_precision
Bound: 5e-3
"""

random = np.random.default_rng(94)
x, y = random.normal(size=(90, 6)), random.integers(0, 3, 90)

model = keras.Sequential(
    [
        keras.Input((6,)),
        layers.Dense(8, activation="tanh", dtype="mixed_float16"),
        layers.Dense(3, dtype="mixed_float16"),
        layers.Activation("softmax", dtype="float32"),
    ]
)
optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1))
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["sparse_categorical_crossentropy"])
history = model.fit(x, y, batch_size=16, epochs=2, validation_split=0.2, verbose=0)
