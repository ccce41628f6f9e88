"""Low-rank updates of frozen kernels.

Like: nlp/parameter_efficient_finetuning_of_gpt2_with_lora
Needs: Keras 3
Bound: 1e-6
"""

random = np.random.default_rng(95)
words, y = random.integers(0, 12, (74, 5)), random.integers(0, 3, 74)

model = keras.Sequential([keras.Input((5,), dtype="int32"), layers.Embedding(12, 6), layers.GlobalAveragePooling1D()])
model.add(layers.Dense(8, activation="tanh"))
model.add(layers.Dense(3, activation="softmax"))
history = {"loss": []}
for rank in (None, 2):
    if rank:
        for layer in model.layers:
            if hasattr(layer, "enable_lora"):
                layer.enable_lora(rank)
    model.compile(keras.optimizers.AdamW(0.01), "sparse_categorical_crossentropy")
    history["loss"] += model.fit(words, y, batch_size=16, epochs=2, verbose=0).history["loss"]
