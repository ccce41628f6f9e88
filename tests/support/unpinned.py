"""A Spark whose Python threads are not pinned to threads of the JVM, as under Livy. Run in a process of its own.

Trains while a statement's job group is on the session's connections, cancels that group all the while, and prints as
JSON how the run ended and in which groups Spark's jobs were.
"""

import json
import os
import threading
import time

os.environ["PYSPARK_PIN_THREAD"] = "false"

from support import spark
from support.launch import start

CELL = "import time\ntime.sleep(2)\nsum(1 for _ in dataset)"


def groups(sc):
    """The job groups of the threads of the JVM that are behind the session's idle connections."""
    idle = sc._gateway._gateway_client.deque
    found = []
    for _ in range(len(idle)):
        found.append(sc.getLocalProperty("spark.jobGroup.id"))
        idle.rotate()
    return found


def main():
    clusters = spark.Clusters()
    session = clusters.get(2)
    sc = session.sparkContext
    over = threading.Event()

    def slow(row):
        time.sleep(0.02)
        return (row.id % 3, float(row.id))

    # A shuffle, so that Spark computes what is before it as soon as the rows are asked for.
    rows = session.range(60, numPartitions=2).repartition(2).rdd.map(slow).toDF(["a", "b"]).orderBy("b")
    # What Livy does before a statement, and what its cancelling does; the job that the statement runs is not ours.
    sc.setJobGroup("7", "a statement")
    run = start(session, CELL, {"rows": rows}, data="rows", features=["a"], label="b", batch_size=8, strategy="single")

    def cancel():
        while not over.wait(0.05):
            sc.cancelJobGroup("7")

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        ended = run.wait()
    finally:
        over.set()
        canceller.join()
    tracker = sc.statusTracker()
    answer = {"state": ended.state, "message": ended.message, "groups now": groups(sc)}
    answer["ours"] = len(tracker.getJobIdsForGroup("ddl_magics " + ended.run))
    answer["statement's"] = len(tracker.getJobIdsForGroup("7"))
    print(json.dumps(answer))
    clusters.stop()


if __name__ == "__main__":
    main()
