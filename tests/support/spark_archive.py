"""Writes the archive of Spark's Java classes: `make test` calls it once in an environment.

Java reads, verifies and links some ten thousand classes when a Spark starts; from the archive it maps them. A cluster
of two executors takes 7 CPU seconds instead of 14 to start, and the tests start many.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import pyspark
from livy import rig

from support import spark, starts


def main():
    starts.ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        classes = _classes(Path(folder))
        _dump(classes, Path(pyspark.__file__).parent / "jars", starts.ARCHIVE)
        for jars in rig.CLUSTER.glob("lib/python3.*/site-packages/pyspark/jars"):  # `make livy-env` gets them
            _dump(classes, jars, rig.ARCHIVE)


def _classes(folder):
    """A list of the classes that a driver and its executors load, in a file."""
    starts.JAVA = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:DumpLoadedClassList={folder}/%p.txt"
    starts.make_cheap()
    clusters = spark.Clusters()
    session = clusters.get(2)
    frame = session.range(100).selectExpr("id * 1.0 as a", "id % 2 as label")
    frame.groupBy("label").count().collect()
    frame.rdd.map(len).repartition(2).barrier().mapPartitions(list).collect()
    process = session.sparkContext._gateway.proc
    clusters.stop()
    process.stdin.close()
    process.wait()
    lines = [line for file in folder.glob("*.txt") for line in file.read_text().splitlines() if line[:1] != "#"]
    found = folder / "classes"
    found.write_text("\n".join(dict.fromkeys(lines)))
    return found


def _dump(classes, jars, archive):
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(".part")
    command = [starts.java_home() / "bin" / "java", "-Xshare:dump", "-XX:+UseSerialGC", "-Xlog:cds=off"]
    command += [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={part}", "-cp", f"{jars}/*"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"spark_archive: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    os.replace(part, archive)


if __name__ == "__main__":
    main()
