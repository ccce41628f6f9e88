"""A run of two workers on executors that are on hosts of chaos/hosts.py, in a process of its own, which tells its end.

    python -m support.run_on_hosts ADDRESS_OF_DRIVER JAVA_HOME_OF_EXECUTORS FOLDER SETTINGS_OF_SPARK CELL

One line of JSON: {"state", "message", "logs", "secret"}, the secret in hexadecimal.
"""

import json
import os
import secrets
import sys

from support import launch, spark, starts


def main():
    address, java_home, folder, settings, cell = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    starts.make_cheap()
    session = spark.on_hosts(2, address, java_home, folder, **json.loads(settings))
    made, token_bytes = [], secrets.token_bytes
    secrets.token_bytes = lambda size=None: made.append(token_bytes(size)) or made[-1]
    ended = launch.run_cell(session, cell)
    session.stop()
    said = {"state": ended.state, "message": ended.message, "logs": ended.logs(), "secret": made[0].hex()}
    print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main()
