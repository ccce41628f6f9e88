"""The training set grows by the rows that the model gets wrong: several fits of datasets of other lengths.

Like: nlp/active_learning_review_classification
"""

random = np.random.default_rng(43)
x = random.normal(size=(90, 6))
y = (x[:, :1] > 0).astype("float64")
known, pool = np.arange(30), np.arange(30, 90)

model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(1, activation="sigmoid")])
metrics = ["binary_accuracy", keras.metrics.FalseNegatives(), keras.metrics.FalsePositives()]
model.compile("rmsprop", "binary_crossentropy", metrics=metrics)
history = {"loss": [], "wrong": []}
for _ in range(3):
    data = tf.data.Dataset.from_tensor_slices((x[known], y[known])).shuffle(100, seed=5).batch(16)
    stop = keras.callbacks.EarlyStopping(patience=4, restore_best_weights=True)
    fitted = model.fit(data, epochs=2, validation_data=(x[:20], y[:20]), callbacks=[stop], verbose=0).history
    history["loss"] += fitted["loss"] + fitted["val_loss"]
    wrong = pool[(model.predict(x[pool], verbose=0) > 0.5)[:, 0] != (y[pool, 0] > 0.5)][:9]
    history["wrong"].append(len(wrong))
    known, pool = np.concatenate([known, wrong]), np.setdiff1d(pool, wrong)
