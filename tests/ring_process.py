"""One rank of a `rings.ProcessRing`: told by lines of JSON on its standard input, answers on its standard output."""

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ddl_magics.runtime import collective, mesh, parts, rendezvous
from ddl_magics.runtime.place import Place

SECRET = b"of the tests".ljust(32, b".")  # as in rings.py, which is more than this process needs
RUN = "run-of-the-tests"


def tell(**message):
    print(json.dumps(message), flush=True)


def told():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()


def main():
    who = told()
    rank, size, elements = who["rank"], who["size"], who["elements"]
    mesh.ORDERED = who["ordered"]
    place = Place("127.0.0.1", SECRET, RUN, rank, 0, size)
    tell(address=place.address)
    ring = rendezvous.connect(place, told()["addresses"], host=who["host"])
    tell(connected=type(ring).__name__)
    buffer = np.empty(elements, np.float32)
    step = 0
    try:
        while True:
            steps = told()["steps"]
            while steps is None or steps > 0:
                buffer.fill(rank + step)
                ring.allreduce(buffer, collective.Part(parts.STEP, step=step))
                expected = sum(range(size)) + size * step
                assert buffer.min() == buffer.max() == expected, f"{buffer} is not {expected}"
                step += 1
                steps = steps and steps - 1
                if step == 2:
                    tell(steps=step)
            tell(steps=step)
    except collective.PeerLost as lost:
        tell(lost=lost.rank, reason=lost.reason, at=time.time(), step=step)


main()
