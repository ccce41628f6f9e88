"""What the driver, the supervisors and the ranks say to each other: the kinds of the frames between them.

A rank talks to its supervisor through a socket pair; the supervisor passes frames on unread, both ways, and adds its
own events. Payloads are JSON but for CHUNK and PIECE, the next bytes of the artifact or checkpoint announced before:
of each there is one at a time.
"""

import json

# rank or supervisor -> driver
EVENTS = 1  # [event, ...]
READY = 2  # {"address": [host, port] | null}: the rank waits for its peers
ARTIFACT = 3  # {"name", "size", "sha256"}: chunks follow
CHUNK = 4  # bytes
END = 5  # {"outcome": "finished" | "stopped" | "failed", "failure": {...} | null}

# driver -> rank
# {"addresses": [[host, port], ...], "ranks_on_host": n, "place_on_host": 0 to n - 1, "servers": [[host, port], ...] |
# null}; the supervisor adds "gpus", as `gpus.share` says
PEERS = 6
STOP = 7  # {}: finish the step, keep the model

# both ways, to and from rank 0
CHECKPOINT = 9  # {"name", "size", "sha256", "fit", "epoch", "step", "complete"}: pieces follow
PIECE = 10  # bytes

# supervisor -> its rank, first of all
CONFIG = 8  # the job's dict with "rank", "host" (own address) and "scratch" (folder)

# supervisor -> spare, before CONFIG, and back as {}
CLAIM = 11  # {"folder", "variables": {name: value | null}}: become a rank that works there

CHUNK_BYTES = 1 << 20


def parse(payload):
    """The JSON value of a frame's payload."""
    return json.loads(bytes(payload).decode("utf-8"))
