"""Makes processes cheaper to start: those of the tests live for seconds, in which few optimizations pay off."""

import os

from support.paths import TESTS

#: Of each Java: its fast compiler alone, and a collector without threads. A Spark starts in two thirds of the time.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: The folder of the sitecustomize.py of each Python.
STARTUP = str(TESTS / "support" / "startup")


def make_cheap():
    """Sets the variables that all processes of this one inherit."""
    os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = JAVA
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", STARTUP)]
    os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *given])
