"""KerasTuner's Hyperband over the cell of `benchmarks.search`, in one process, until as many epochs are trained.

Arguments: epochs in all, epochs of a trial at most, seed, folder. Prints one line of JSON.
"""

import json
import sys
import time


def main(budget: int, most: int, seed: int, folder: str) -> None:
    """Search, and print the best value, the epochs, seconds and CPU seconds."""
    import keras
    import keras_tuner
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16.0).astype("float32")
    cut = len(x) * 4 // 5
    trained = 0

    def build(hp: "keras_tuner.HyperParameters") -> keras.Model:
        units = hp.Int("units", 16, 256, sampling="log")
        act = hp.Choice("act", ["relu", "tanh"])
        lr = hp.Float("lr", 1e-5, 1.0, sampling="log")
        model = keras.Sequential([keras.layers.Dense(units, act), keras.layers.Dense(10, "softmax")])
        model.compile(keras.optimizers.Adam(lr), "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    class Spent(BaseException):  # KerasTuner takes an Exception for a failed trial
        """The budget is used up."""

    def count(epoch: int, logs: object) -> None:
        nonlocal trained
        trained += 1
        if trained >= budget:
            raise Spent

    began, used = time.monotonic(), time.process_time()
    tuner = keras_tuner.Hyperband(
        build, keras_tuner.Objective("val_accuracy", "max"), max_epochs=most, factor=3, hyperband_iterations=100,
        seed=seed, directory=folder, project_name="digits",
    )  # fmt: skip
    try:
        tuner.search(
            x[:cut], y[:cut], validation_data=(x[cut:], y[cut:]), epochs=most, batch_size=32, verbose=0,
            callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=count)],
        )  # fmt: skip
    except Spent:
        pass
    scores = [trial.score for trial in tuner.oracle.trials.values() if trial.score is not None]
    spent = {"seconds": time.monotonic() - began, "cpu": time.process_time() - used}
    print(json.dumps({"best": max(scores), "epochs": trained, "trials": len(scores), **spent}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
