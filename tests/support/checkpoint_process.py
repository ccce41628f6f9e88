"""One rank alone, in its own process: runs a cell from its beginning or from checkpoints, and keeps those it takes.

`python -m support.checkpoint_process CELL FOLDER POSITIONS EVERY`: positions as the driver
tells them, JSON; EVERY steps, or 0.
FOLDER/checkpoints has the files of the positions; what is taken goes to FOLDER/taken. The value of the cell's last
expression and the weights of its models are printed as JSON.
"""

import json
import os
import shutil
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from ddl_magics.runtime.cell import execution
from ddl_magics.runtime.checkpoints.checkpoint import Position
from ddl_magics.runtime.executor import startup
from ddl_magics.runtime.rank import Rank, RankConfig
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.training import checkpointing
from ddl_magics.runtime.transport.credentials import Credentials


class NoChannel:
    def send_json(self, kind, value):
        pass


def main(source, folder, positions, every):
    config = RankConfig(
        spec=RunSpec(cell=source, workers=1, seed=11, checkpoint_every=int(every) or None),
        credentials=Credentials("r", b""),
        driver=("127.0.0.1", 0),
        spark="none",
        executor_cores=1,
        resume=tuple(Position(*each) for each in json.loads(positions)),
        scratch=folder,
    )
    rank = Rank(config, NoChannel())
    checkpointing.LEAST_SECONDS, checkpointing.MOST_OF_THE_TIME = 0, float("inf")
    if int(every):  # in other processes, those of small states, which are copied first
        checkpointing.MOST_COPIED_BYTES = 0

    def keep(path, position):
        name = f"{position.fit}-{position.epoch}-{position.step}-{position.complete:d}.npz"
        shutil.copy(path, os.path.join(folder, "taken", name))

    rank.reporter.send_checkpoint = keep
    sender, send = checkpointing._Sender, checkpointing._Sender.send

    def send_now(self, *what):
        send(self, *what)
        self._thread.join()

    sender.send = send_now
    startup.prepare(rank)
    value = execution.execute(source, {"__name__": "__main__"})
    weights = [[array.tolist() for array in model.get_weights()] for model in rank.models]
    print(json.dumps([value, weights]))


if __name__ == "__main__":
    main(*sys.argv[1:])
