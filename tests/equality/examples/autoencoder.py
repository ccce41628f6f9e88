"""Noisy images to clean ones, by convolutions and transposed ones.

Like: vision/autoencoder
"""

random = np.random.default_rng(12)
clean = random.uniform(size=(50, 8, 8, 1))
noisy = np.clip(clean + 0.4 * random.normal(size=clean.shape), 0.0, 1.0)

model = keras.Sequential([keras.Input((8, 8, 1))])
for _ in range(2):
    model.add(layers.Conv2D(4, 3, activation="relu", padding="same"))
    model.add(layers.MaxPooling2D(2, padding="same"))
for _ in range(2):
    model.add(layers.Conv2DTranspose(4, 3, strides=2, activation="relu", padding="same"))
model.add(layers.Conv2D(1, 3, activation="sigmoid", padding="same"))
model.compile("adam", "binary_crossentropy")
alone = model.fit(clean, clean, batch_size=16, epochs=1, validation_data=(clean[:20], clean[:20]), verbose=0)
history = model.fit(noisy, clean, batch_size=16, epochs=2, validation_data=(noisy[:20], clean[:20]), verbose=0)
