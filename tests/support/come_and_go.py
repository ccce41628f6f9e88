"""A cell whose worker 1 dies, with its executor or alone, and that ends once another one has joined."""

_CELL = """
import keras, numpy as np, os, time

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def executor():
    pid = os.getpid()
    while open(f"/proc/{pid}/comm").read().strip() != "java":
        pid = parent(pid)
    return pid

class Changes(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.5)
        if ddl.rank == 1 and epoch == 1:
            os.kill(VICTIM(), 9)
            time.sleep(60)
        if ddl.rank > 1:
            self.model.stop_training = True

x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), batch_size=64, epochs=240, verbose=0, callbacks=[Changes()])
"""
OF_WORKER, OF_EXECUTOR = (_CELL.replace("VICTIM", victim) for victim in ("os.getpid", "executor"))


def assert_changed(events):
    """The others have trained on without worker 1 in the same attempt, and worker 2 with them."""
    groups = [event["members"] for event in events if event["kind"] == "group"]
    assert groups == [[0, 1], [0], [0, 2]]
    assert {event["attempt"] for event in events if event["kind"] == "epoch"} == {1}


def assert_changed_in(notebook, run):
    """The same of a run's variable in a notebook."""
    told = "{name: e[name] for name in ('kind', 'members', 'attempt') if name in e}"
    assert_changed(notebook.value(f"[{told} for e in {run}.events if e['kind'] in ('group', 'epoch')]"))
