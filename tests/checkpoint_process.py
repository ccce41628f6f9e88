"""One rank alone, in its own process: runs a cell from its beginning or from checkpoints, and keeps those it takes.

`python checkpoint_process.py CELL FOLDER POSITIONS EVERY`: positions as the driver tells them, JSON; EVERY steps, or 0.
FOLDER/checkpoints has the files of the positions; what is taken goes to FOLDER/taken. The value of the cell's last
expression and the weights of its models are printed as JSON.
"""

import json
import os
import shutil
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from ddl_magics.runtime import cell, checkpointing
from ddl_magics.runtime.rank import Rank


class NoChannel:
    def send_json(self, kind, value):
        pass


def main(source, folder, positions, every):
    config = {"rank": 0, "size": 1, "strategy": "allreduce", "rule": None, "seed": 11, "scratch": folder}
    rank = Rank(dict(config, resume=json.loads(positions), checkpoint_every=int(every) or None), NoChannel())
    checkpointing.LEAST_SECONDS, checkpointing.MOST_OF_THE_TIME = 0, float("inf")

    def keep(path, position):
        name = f"{position.fit}-{position.epoch}-{position.step}-{position.complete:d}.npz"
        shutil.copy(path, os.path.join(folder, "taken", name))

    rank.send_checkpoint = keep
    sender, send = checkpointing._Sender, checkpointing._Sender.send

    def send_now(self, *what):
        send(self, *what)
        self._thread.join()

    sender.send = send_now
    rank.prepare()
    value = cell.execute(source, {"__name__": "__main__"})
    weights = [[array.tolist() for array in model.get_weights()] for model in rank.models]
    print(json.dumps([value, weights]))


if __name__ == "__main__":
    main(*sys.argv[1:])
