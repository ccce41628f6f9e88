"""Runs in the store, as a kernel would have left them."""

import itertools
import json
import shutil
import subprocess
import sys
import time

from ddl_magics import Run, store
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import events as ev
from ddl_magics.store import owner
from support import launch
from support.fake_cluster import epoch, training
from support.fake_cluster import state as event_state
from support.paths import TESTS

_numbers = itertools.count(1)


def stored(state=ev.RUNNING, events=(), name="digits", created=None, place=None, **spec):
    """A run of this process, with numbered events."""
    run = f"20261121-{next(_numbers):06}-aaaaaa"
    folder = store.RunFolder.create(
        {
            "id": run,
            "name": name,
            "created": time.time() if created is None else created,
            "spec": {**parse("").to_record(), "run": run, "name": name, "cell": "model.fit(dataset)", **spec},
            "cluster": "this machine",
            "notebook": "a.ipynb",
            "environment": {"python": "3.11"},
            "place": place or {},
            "state": state,
        }
    )
    append(folder, events)
    return folder


def append(folder, events):
    """More events, numbered on."""
    append_after(folder, sum(1 for _ in folder.events()), events)


def append_after(folder, number, events):
    """The same where the number of the last one is known."""
    folder.append({"run": folder.path.name, "attempt": 1, **e, "seq": n} for n, e in enumerate(events, number + 1))


def finished(epochs=2, **fields):
    """A run that went well."""
    folder = stored(ev.FINISHED, training(epochs), **fields)
    last = {"epoch": epochs, "epochs": epochs, "steps": 10, "begun": time.time(), "metrics": {"loss": 1 / epochs}}
    folder.update({"ended": time.time(), "progress": last})
    return folder


def inputs_of(*names):
    """How a model's one input is made of columns with numbers, as the description of an export has it."""
    columns = [{"name": name, "dtype": "f4", "depth": 0, "vector": False} for name in names]
    return {
        "columns": columns,
        "tensors": [[*range(len(names))]],
        "uses": ["floatx"],
        "shapes": [[len(names)]],
        "features": 0,
    }


def with_model(model, name="digits", events=()):
    """A run that has ended with this Keras model, after these events."""
    artifact = ev.make("artifact", 0, name="model-0.keras", size=1, sha256="0")
    folder = stored(ev.FINISHED, [*events, artifact, epoch(0, loss=None)], name=name)
    model.save(folder.file("model-0.keras"))
    return Run.stored(folder.record())


def trained(spark, cell, namespace, **spec):
    """The run of a cell that has trained a model, with the model's file."""
    ended = launch.finished(spark, cell, namespace, workers=1, **spec)
    folder = stored(ev.FINISHED, ended.events, **spec)
    folder.file("model-0.keras").write_bytes(launch.fetch(ended.run, "model-0.keras"))
    return Run.stored(folder.record())


def long(workers=256, steps=10**6, bucket=1000, **fields):
    """A finished run of so many steps, of which each rank reports `bucket` at a time, every five seconds.

    Its file is written as text, as that is quick: 57 MB with the defaults.
    """
    seconds = 5.0
    begun = time.time() - steps / bucket * seconds
    start = [event_state(ev.RUNNING), ev.make("fit", 0, fit=0, model="m", epochs=1, steps=steps)]
    folder = stored(ev.FINISHED, ({**e, "time": begun} for e in start), workers=workers, created=begun, **fields)
    number = len(start)
    took = f'"count":{bucket},"rows":{64 * bucket},"seconds":{seconds},"compute":{seconds / 2},"wait":{seconds / 2}'
    with open(folder.path / "events.jsonl", "a") as file:
        for step in range(0, steps, bucket):
            loss, at = 2.0 / (1 + step / 10_000), f'"time":{begun + (step + bucket) / bucket * seconds:.3f}'
            for rank in range(workers):
                number += 1
                metrics = f'"metrics":{{"loss":{loss:.6f}}}' if rank == 0 else '"metrics":{}'
                head = f'{{"v":1,"run":"{folder.path.name}","attempt":1,"seq":{number},"kind":"steps","rank":{rank}'
                file.write(f'{head},{at},"fit":0,"epoch":0,"step":{step},{took},{metrics}}}\n')
    append_after(folder, number, [epoch(0, loss=0.02), event_state(ev.FINISHED)])
    folder.update({"ended": time.time()})
    return folder


def stored_by_0_1_0():
    """Copies of the two runs that version 0.1.0 has stored, in this test's store; {name: folder}."""
    runs = store.runs_folder()
    shutil.copytree(TESTS / "store" / "data" / "runs-0.1.0", runs, dirs_exist_ok=True)
    folders = [store.RunFolder(path) for path in runs.iterdir()]
    for folder in folders:
        (folder.path / "control").mkdir(exist_ok=True)  # an empty folder, which git does not keep
    return {folder.record().name: folder for folder in folders}


def dead_process():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        pid, start = child.pid, owner.started(child.pid)
        child.kill()
    return {"pid": pid, "start": start}


def claim(folder, **changes):
    who = {**owner.this_process(), **changes}
    (folder.path / "owner.json").write_text(json.dumps(who))


def kill_owner(folder):
    """Its kernel is gone."""
    claim(folder, **dead_process())
