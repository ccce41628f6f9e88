"""The kinds of frames between the driver, the supervisors and the ranks.

A rank talks to its supervisor through a socket pair. The supervisor forwards frames in both directions without parsing
them, and adds events of its own. Payloads are JSON, except those of CHUNK and PIECE: they carry the next bytes of the
artifact or checkpoint that was announced last, and at most one of each is sent at a time.
"""

from __future__ import annotations

import json
from typing import Any

# rank or supervisor -> driver
EVENTS = 1  # [event, ...]
RANK_READY = 2  # {"address": [host, port] | null}: the rank waits for PEERS
ARTIFACT = 3  # {"name", "size", "sha256"}: CHUNKs follow
CHUNK = 4  # bytes
RANK_ENDED = 5  # {"outcome": "finished" | "stopped" | "failed", "failure": {...} | null}

# driver -> rank
# {"addresses": [[host, port], ...], "local_size": n, "local_rank": 0 to n - 1, "servers": [[host, port], ...] |
# null}; the supervisor adds "gpus", the result of `gpus.round_robin`
PEERS = 6
STOP = 7  # {}: finish the step, keep the model

# both directions, to and from rank 0
CHECKPOINT = 9  # {"name", "size", "sha256", "fit", "epoch", "step", "complete"}: PIECEs follow
PIECE = 10  # bytes

# supervisor -> its rank, as the first frame
CONFIG = 8  # the job's dict with "rank", "host" (the rank's own address) and "scratch" (folder)

# supervisor -> prewarmed process, before CONFIG; it answers with the same kind: {"pid"} of the rank that it has forked,
# or {} if it has become the rank
CLAIM = 11  # {"folder", "variables": {name: value | null}, "forks": bool}: a rank that works in this folder is wanted

# rank -> its supervisor, once a second: a `rank.pulse.Pulse`
PULSE = 12

# prewarmed process -> supervisor; the supervisor answers with the same kind and {}
FORK_ENDED = 13  # {"status"}: of the rank that it has forked, as `subprocess.Popen.returncode`

# ranks that come and go
# rank -> driver, {"joins": number | null, "welcomes": number | null}: the rank waits for a GROUP: it wants to join in
# the fit of this number; or it is in that fit, and welcomes those that do; or it has lost a peer
REGROUP = 14
# driver -> rank, {"group": number, "ranks": [rank, ...]}: who takes part from now on; each answers with GROUP_READY
GROUP = 15
# rank -> driver, {"group": number, "address": [host, port]}: the rank waits for the PEERS of this group
GROUP_READY = 16
JOINS = 17  # driver -> rank, {}: a rank wants to join; the others regroup before their next step
LEAVE = 18  # driver -> supervisor, {"reason": one line}: the rank is to end now, as if it had died of this reason

CHUNK_BYTES = 1 << 20


def parse(payload: bytes | bytearray) -> Any:
    """The JSON value of a frame's payload."""
    return json.loads(bytes(payload).decode("utf-8"))
