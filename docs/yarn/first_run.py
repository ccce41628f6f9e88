# A first training on YARN, in client mode: docs/platforms.md says how it is run.
# ruff: noqa: E402
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

# %%
# %ddl check

# %%distributed --workers 2 --name first --seed 1
import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(6400, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, x.sum(1), batch_size=64, epochs=5)
