"""Two texts, an image of tags and shared layers to two outputs with losses and weights of their own.

Like: guides/functional_api
"""

random = np.random.default_rng(102)
given = {
    "title": random.integers(0, 15, (66, 5)),
    "body": random.integers(0, 15, (66, 7)),
    "tags": random.integers(0, 2, (66, 4)).astype("float64"),
}
targets = {"priority": random.uniform(size=(66, 1)), "department": np.eye(3)[random.integers(0, 3, 66)]}

inputs = {
    "title": keras.Input((None,), name="title", dtype="int32"),
    "body": keras.Input((None,), name="body", dtype="int32"),
}
inputs["tags"] = keras.Input((4,), name="tags")
embedding = layers.Embedding(15, 5)
h = [layers.LSTM(5)(embedding(inputs[name])) for name in ("title", "body")]
h = layers.concatenate([*h, inputs["tags"]])
outputs = {
    "priority": layers.Dense(1, activation="sigmoid", name="priority")(h),
    "department": layers.Dense(3, name="department")(h),
}
model = keras.Model(inputs, outputs)
losses = {"priority": "binary_crossentropy", "department": keras.losses.CategoricalCrossentropy(from_logits=True)}
model.compile(
    "rmsprop", losses, loss_weights={"priority": 1.0, "department": 0.2}, metrics={"department": ["accuracy"]}
)
history = model.fit(given, targets, batch_size=16, epochs=2, verbose=0)
