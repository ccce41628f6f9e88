"""The supervisor of a rank without Spark, which may be in another network namespace.

Reads a line of JSON from stdin: "rank", "config" (`JobConfig.to_json`), "names" (hex of `names.pack`'s bytes), and
"silent": seconds after which it takes a silent driver for cut off.
"""

import json
import sys

from ddl_magics.runtime.executor import supervisor
from ddl_magics.runtime.transport import link_watch
from support.paths import ROOT


def main():
    given = json.loads(sys.stdin.readline())
    link_watch.SUPERVISOR_SILENT_SECONDS = given["silent"]
    payload = {"runtime": b"", "names": bytes.fromhex(given["names"]), "files": b""}
    supervisor.supervise(given["rank"], given["config"], None, payload, (), str(ROOT))


if __name__ == "__main__":
    main()
