"""A Spark session on YARN, in a process of its own, as Java has its classes and its cluster from the beginning:

    python -m yarn.trial SETTINGS

Reads lines of JSON: [cell, the run's spec]. Answers with a line of JSON for what `driver.api.info` says, and one for
each event of the run as it comes; of a run that is refused, one with the reason. ["%%here", code]: executes code that
has `spark` and `driver`, and answers with what it leaves in `answer`.
"""

import json
import os
import sys
import time

from support import launch, spark, starts

from ddl_magics.runtime.events import TERMINAL


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    starts.make_cheap()
    session = spark.session(2, **json.loads(sys.argv[1]))
    # As PYSPARK_PYTHON of the notebook's environment.
    session.sparkContext.pythonExec = json.loads(sys.argv[1]).get("spark.pyspark.python", sys.executable)
    say = lambda value: print(json.dumps(value), file=answers, flush=True)  # noqa: E731
    for line in sys.stdin:
        cell, spec = json.loads(line)
        if cell == "%%here":
            names = {"__name__": "__main__", "spark": session, "driver": launch.load_driver()}
            exec(spec, names)
            say(names["answer"])
            continue
        say(json.loads(launch.load_driver().info()))
        try:
            run = launch.start(session, cell, **spec)
        except launch.Refused as refused:
            say({"kind": "state", "state": "REFUSED", "message": str(refused)})
            continue
        for event in _events(run):
            say(event)
    session.stop()


def _events(run):
    told, ended = 0, False
    while not ended:
        more = run.poll()["more"]
        ended = run.state in TERMINAL and not more
        yield from run.events[told:]
        told = len(run.events)
        time.sleep(launch.POLL_SECONDS)


if __name__ == "__main__":
    main()
