"""A generator of batches that augments each of them, and one for validation.

Like: any that passes a generator to fit
By chance: Keras 2: val_
"""

random = np.random.default_rng(98)
x, y = random.uniform(size=(66, 6, 6, 1)), random.integers(0, 3, 66)


def batches(seed):
    draw = np.random.default_rng(seed)
    while True:
        rows = draw.permutation(66)[:18]
        yield x[rows][:, :, :: draw.choice([-1, 1])], y[rows]


model = keras.Sequential([keras.Input((6, 6, 1)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten()])
model.add(layers.Dense(3, activation="softmax"))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
fit = {"steps_per_epoch": 4, "validation_data": batches(2), "validation_steps": 2}
history = model.fit(batches(1), epochs=2, verbose=0, **fit)
