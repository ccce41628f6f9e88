"""The rows of a batch attend to each other.

Like: the code for SAINT, attention between samples
Needs: Keras 3
Refused: allreduce: couples the rows of a batch
"""

from keras import ops

random = np.random.default_rng(1)
x, y = random.normal(size=(50, 5)), random.normal(size=(50, 1))

given = keras.Input((5,))
hidden = layers.Dense(4)(given)
rows = ops.expand_dims(hidden, 0)
hidden = hidden + ops.squeeze(layers.MultiHeadAttention(1, 4)(rows, rows), 0)
model = keras.Model(given, layers.Dense(1)(hidden))
model.compile("sgd", "mse")
history = model.fit(x, y, batch_size=12, epochs=2, verbose=0)
