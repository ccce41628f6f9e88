"""The pixels of one image are what is trained: a tape without a dataset, so that every worker does all of it.

Like: generative/neural_style_transfer
"""

random = np.random.default_rng(78)
base, style = random.uniform(size=(2, 1, 10, 10, 3))
given = keras.Input((10, 10, 3))
first = layers.Conv2D(4, 3, activation="relu")(given)
features = keras.Model(given, [first, layers.Conv2D(4, 3, strides=2, activation="relu")(first)])


def gram(x):
    flat = tf.reshape(tf.transpose(x, (2, 0, 1)), (tf.shape(x)[2], -1))
    return tf.matmul(flat, flat, transpose_b=True)


@tf.function
def loss_and_gradient(image):
    with tf.GradientTape() as tape:
        found = features(tf.concat([base, style, image], 0))
        loss = 1e-2 * tf.reduce_sum((found[1][2] - found[1][0]) ** 2)
        for layer in found:
            loss += 1e-3 * tf.reduce_sum((gram(layer[1]) - gram(layer[2])) ** 2)
        loss += 1e-3 * tf.reduce_sum(tf.abs(image[:, 1:] - image[:, :-1]) ** 1.25)
    return loss, tape.gradient(loss, image)


optimizer = keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=5, decay_rate=0.96))
image = tf.Variable(base)
history = {"loss": []}
for _ in range(8):
    loss, gradient = loss_and_gradient(image)
    optimizer.apply_gradients([(gradient, image)])
    history["loss"].append(float(loss))
history["image"] = [float(tf.reduce_sum(image))]
model = features
