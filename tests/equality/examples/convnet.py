"""Convolutions and pooling on small images, with one-hot classes.

Like: vision/mnist_convnet
"""

random = np.random.default_rng(1)
images = random.uniform(size=(82, 8, 8, 1))
labels = keras.utils.to_categorical(random.integers(0, 4, 82), 4)

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(6, 2, activation="relu"),
        layers.Flatten(),
        layers.Dropout(0.0),
        layers.Dense(4, activation="softmax"),
    ]
)
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
history = model.fit(images, labels, batch_size=16, epochs=2, validation_split=0.1, verbose=0)
