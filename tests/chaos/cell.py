"""The cell of a campaign: two fits in float64, with all that an attempt has to continue, and a file that it writes."""

_CELL = """
import keras, numpy as np, os, time
keras.config.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(96, 8))
y = np.sin(x[:, :2])
class Slowly(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(PAUSE)
        if os.path.exists(EAT) and open(EAT).read() == str(os.getpid()):
            self.eaten = [np.ones(1 << 20) for _ in range(64)]
dense = keras.layers.Dense
layers = [dense(128, "relu"), keras.layers.Dropout(0.1), dense(128, "relu"), dense(2)]
model = keras.Sequential([keras.Input((8,)), *layers])
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
first = model.fit(x, y, batch_size=32, epochs=2, verbose=0)
plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=0, min_delta=0.2)
fit = model.fit(x, y, batch_size=16, epochs=EPOCHS, validation_data=(x, y), callbacks=[plateau, Slowly()], verbose=0)
[first.history, fit.history, fit.epoch, float(model.optimizer.learning_rate), ddl.size]
"""

#: Steps of the second fit are six an epoch.
EPOCHS, PAUSE = 6, 0.12


def source(base):
    """base: the folder of the campaign."""
    return _CELL.replace("EAT", repr(str(base / "eat"))).replace("EPOCHS", str(EPOCHS)).replace("PAUSE", str(PAUSE))
