"""Runs in the store, as a kernel would have left them."""

import itertools
import json
import subprocess
import sys
import time

from fake_cluster import training

from ddl_magics import owner, store
from ddl_magics.options import parse
from ddl_magics.runtime import events as ev

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
    number = sum(1 for _ in folder.events())
    folder.append({"run": folder.path.name, "attempt": 1, **e, "seq": n} for n, e in enumerate(events, number + 1))


def finished(epochs=2, **fields):
    """A run that went well."""
    folder = stored(ev.FINISHED, training(epochs), **fields)
    last = {"epoch": epochs, "epochs": epochs, "steps": 10, "begun": time.time(), "metrics": {"loss": 1 / epochs}}
    folder.update({"ended": time.time(), "progress": last})
    return folder


def kill_owner(folder):
    """Its kernel is gone."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        who = {**owner.this_process(), "pid": child.pid, "start": owner.started(child.pid)}
        child.kill()
    (folder.path / "owner.json").write_text(json.dumps(who))
