"""Clouds of points, turned by a matrix that the model makes: an activity regularizer keeps it orthogonal (a sum).

Like: vision/pointnet
Options: --sync-batchnorm
"""

random = np.random.default_rng(25)
clouds = random.normal(size=(42, 10, 3))
labels = random.integers(0, 3, 42)


class Orthogonal(keras.regularizers.Regularizer):
    def __call__(self, x):
        x = tf.reshape(x, [-1, 3, 3])
        product = tf.matmul(x, x, transpose_b=True)
        return tf.reduce_sum(0.001 * tf.square(product - tf.eye(3, dtype=x.dtype)))


def dense(x, units):
    return layers.Activation("relu")(layers.BatchNormalization(momentum=0.0)(layers.Dense(units)(x)))


inputs = keras.Input((10, 3))
x = dense(layers.Conv1D(6, 1)(inputs), 8)
x = layers.GlobalMaxPooling1D()(x)
turn = layers.Dense(9, kernel_initializer="zeros", activity_regularizer=Orthogonal())(x)
x = layers.Dot(axes=(2, 1))([inputs, layers.Reshape((3, 3))(turn)])
x = layers.GlobalMaxPooling1D()(dense(layers.Conv1D(6, 1)(x), 8))
model = keras.Model(inputs, layers.Dense(3, activation="softmax")(x))
model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
history = model.fit(clouds, labels, batch_size=8, epochs=2, verbose=0)
