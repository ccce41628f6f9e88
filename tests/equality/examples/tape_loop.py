"""A loop over a dataset with a tape and metrics, and another over validation data.

Like: guides/writing_a_custom_training_loop_in_tensorflow
"""

random = np.random.default_rng(83)
x, y = random.normal(size=(90, 6)), random.integers(0, 3, 90)
data = tf.data.Dataset.from_tensor_slices((x[:74], y[:74])).shuffle(74).batch(16)
validation = tf.data.Dataset.from_tensor_slices((x[74:], y[74:])).batch(8)

model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3)])
optimizer = keras.optimizers.Adam(1e-2)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
accuracy, val_accuracy = (keras.metrics.SparseCategoricalAccuracy() for _ in range(2))


@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = loss_of(y, logits)
    weights = model.trainable_weights
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    accuracy.update_state(y, logits)


history = {"accuracy": [], "val_accuracy": []}
for _ in range(3):
    for rows, labels in ddl.distribute(data):
        train(rows, labels)
    history["accuracy"].append(ddl.result(accuracy))
    accuracy.reset_state()
    for rows, labels in validation:
        val_accuracy.update_state(labels, model(rows, training=False))
    history["val_accuracy"].append(val_accuracy.result())
    val_accuracy.reset_state()
