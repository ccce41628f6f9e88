"""A real MLServer under load: it is killed or frozen while its version changes."""

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from support.paths import SERVE_PYTHON
from support.served import Load

from chaos.room import Room, check

ROWS = np.random.default_rng(1).normal(size=(2, 3)).astype("float32")
#: A change of the version takes about so long.
CHANGE_SECONDS = 1.0


def exported(folder):
    """Two models as exports, `1` and `2`. Prints the predictions of each."""
    import keras
    from support.stored import with_model

    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        with_model(model).export(Path(folder) / str(seed), "keras")
        print(json.dumps(model.predict(ROWS, verbose=0).ravel().tolist()))


def serve(folder, log):
    """`ddl-magics serve`; its last line is the server's url and process."""
    from ddl_magics.__main__ import main
    from ddl_magics.serving.servers import list_served

    status = main(["serve", folder, "--name", "digits", "--detached", "--log", log])
    print(json.dumps([[served.url, served.owner["pid"]] for served in list_served() if served.alive]))
    raise SystemExit(status)


def changed(signals):
    """Each answer is of the version that it names, and what is said of the change is true."""

    def begin(act):
        values = [json.loads(line) for line in act.done(exported, str(act.work))[-2:]]
        log = str(act.work / "log")

        def serves(version):
            lines, status, error = act.ended(serve, str(act.work / version), log, seconds=240, **environment)
            (found,) = json.loads(lines[-1]) or [(None, None)]
            return status, found, " ".join([*lines[:-1], error])

        environment = {"DDL_MAGICS_SERVE_PYTHON": str(SERVE_PYTHON), "PYTHONUNBUFFERED": "1"}
        status, (url, pid), said = serves("1")
        check(status == 0, f"version 1 is not served: {said}")
        try:
            with Load(SimpleNamespace(url=url, name="digits"), ROWS, threads=2, pause=0.02) as load:
                changing = act.start(serve, str(act.work / "2"), log, **environment)
                until = time.monotonic() + 60
                while "loading version 2" not in changing.stdout.readline() and time.monotonic() < until:
                    check(changing.poll() is None, f"version 2 has not begun: {changing.stderr.read()[-300:]}")
                time.sleep(act.random.uniform(0.0, CHANGE_SECONDS))
                for number in signals:
                    os.kill(pid, number)
                    if number == signal.SIGSTOP:
                        time.sleep(act.random.choice((0.2, 1.0, 5.0)))
                out, errors = changing.communicate(timeout=240)
                time.sleep(0.5)
            said = " ".join((out + errors).split())
            for code, version, found in load.answers:
                good = code == 200 and np.allclose(found, values[int(version) - 1], atol=1e-5)
                check(good or (signal.SIGKILL in signals and code == 0), f"a request is answered with {code}, {found}")
            if signal.SIGKILL not in signals:
                check(changing.returncode == 0, f"version 2 is not served: {said}")
                check(load.answers[-1][1] == "2", "version 2 is told as served, and 1 answers")
            elif changing.returncode:
                check("cannot be served" in said, f"it says {said[-300:]}")
            if signal.SIGKILL in signals:
                status, (url, pid), text = serves("2")
                check(status == 0, f"after the server's end no other begins: {text}")
        finally:
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        return said[-200:] if changing.returncode else ""

    return begin


ROOMS = {
    "MLServer: SIGKILL as its version changes": Room(changed([signal.SIGKILL]), seconds=600.0),
    "MLServer: SIGSTOP, SIGCONT as its version changes": Room(changed([signal.SIGSTOP, signal.SIGCONT]), seconds=600.0),
}
