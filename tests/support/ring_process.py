"""One rank of a `rings.ProcessRing`: takes lines of JSON from standard input, and answers on standard output.

With the number of a socket it forks ranks: for each message with their two files it answers with the process number.
"""

import json
import os
import signal
import socket
import sys
import time

import numpy as np

from ddl_magics.runtime.collectives import collective, host_barrier, rendezvous
from ddl_magics.runtime.collectives.announcement import STEP
from ddl_magics.runtime.collectives.peer_listener import PeerListener
from ddl_magics.runtime.transport.credentials import Credentials


def send(**message):
    print(json.dumps(message), flush=True)


def receive():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()


def main():
    config = receive()
    rank, size, elements = config["rank"], config["size"], config["elements"]
    host_barrier.ORDERED = config["ordered"]
    listener = PeerListener("127.0.0.1", Credentials.from_json(config["credentials"]), rank, 0, size)
    send(address=listener.address)
    ring = rendezvous.connect(listener, receive()["addresses"], host=config["host"])
    send(connected=type(ring).__name__)
    bounds = [elements * part // size for part in range(size + 1)] if config["halves"] else None
    buffer = np.empty(elements, np.float32)
    step = 0
    try:
        while True:
            steps = receive()["steps"]
            while steps is None or steps > 0:
                buffer.fill(rank + step)
                announcement = collective.Announcement(STEP, step=step)
                if bounds is None:
                    ring.allreduce(buffer, announcement)
                else:
                    ring.reduce_scatter(buffer, bounds, announcement)
                    ring.all_gather(buffer, bounds, announcement)
                expected = sum(range(size)) + size * step
                assert buffer.min() == buffer.max() == expected, f"{buffer} is not {expected}"
                step += 1
                steps = steps and steps - 1
                if step == 2:
                    send(steps=step)
            send(steps=step)
    except collective.PeerLost as lost:
        send(lost=lost.rank, reason=lost.reason, at=time.time(), step=step)


def fork_ranks(requests):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1, 2)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            requests.close()
            for standard, file in enumerate(files):
                os.dup2(file, standard)
                os.close(file)
            main()
            os._exit(0)
        for file in files:
            os.close(file)
        requests.send(b"%d" % pid)


if __name__ == "__main__":
    if sys.argv[1:]:
        fork_ranks(socket.socket(fileno=int(sys.argv[1])))
    else:
        main()
