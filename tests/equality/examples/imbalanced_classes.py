"""Few positive rows: weights of classes, and counts of right and wrong as metrics.

Like: structured_data/imbalanced_classification
"""

random = np.random.default_rng(54)
x = random.normal(size=(202, 6))
y = (random.uniform(size=(202, 1)) < 0.08).astype("int64")

model = keras.Sequential([keras.Input((6,)), layers.Dense(12, activation="relu"), layers.Dropout(0.0)])
model.add(layers.Dense(1, activation="sigmoid"))
metrics = [
    keras.metrics.FalseNegatives(name="fn"),
    keras.metrics.FalsePositives(name="fp"),
    keras.metrics.TrueNegatives(name="tn"),
    keras.metrics.TruePositives(name="tp"),
    keras.metrics.Precision(name="precision"),
    keras.metrics.Recall(name="recall"),
]
model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy", metrics=metrics)
fit = {"batch_size": 50, "epochs": 3, "validation_data": (x[:60], y[:60]), "class_weight": {0: 0.01, 1: 0.2}}
history = model.fit(x, y, verbose=0, **fit)
