"""A layer of Keras along the rows: each column of the batch sums up to 1.

Like: layers with axis=0
Refused: allreduce: couples the rows of a batch
"""

random = np.random.default_rng(1)
x, y = random.normal(size=(50, 5)), random.normal(size=(50, 1))

model = keras.Sequential([keras.Input((5,)), layers.Dense(4), layers.Softmax(axis=0), layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(x, y, batch_size=12, epochs=2, verbose=0)
