"""Convolutions in three dimensions, with a learning rate that decays by a staircase.

Like: vision/3D_image_classification
Options: --sync-batchnorm
"""

random = np.random.default_rng(27)
scans = random.uniform(size=(30, 6, 6, 6))
labels = random.integers(0, 2, 30)

inputs = keras.Input((6, 6, 6, 1))
x = layers.Conv3D(3, 3, activation="relu")(inputs)
x = layers.BatchNormalization()(layers.Conv3D(3, 2, strides=2)(x))
x = layers.GlobalAveragePooling3D()(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(layers.Dense(4, activation="relu")(x)))
rate = keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=4, decay_rate=0.9, staircase=True)
model.compile(keras.optimizers.Adam(rate), "binary_crossentropy", metrics=["acc"])
data = tf.data.Dataset.from_tensor_slices((scans, labels)).shuffle(30, seed=2)
data = data.map(lambda scan, label: (scan[..., None], label)).batch(7).prefetch(2)
history = model.fit(data, epochs=2, validation_data=data.take(1), verbose=0)
