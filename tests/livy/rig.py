"""A real Apache Livy for the tests and for trying out: `start()` and `stop()`, also as a command line.

Everything of one server lives in one folder, its state: configuration, logs, Spark's scratch. Every process that comes
of it (server, drivers, executors, their Pythons) carries the folder in its environment, so that none can hide.
Wants what `make livy-env` builds; itself only Python's standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "livy"
JARS = BUILD / "jars"
REPL_JAR = BUILD / "livy-repl.jar"
#: What the cluster's nodes have: Spark, Python and TensorFlow.
CLUSTER = Path(os.environ.get("LIVY_RIG_CLUSTER", ROOT / ".venv-cluster"))

#: The classes of the cluster's Spark as Java maps them into memory, where support/spark_archive.py has written them.
ARCHIVE = BUILD / "spark.jsa"

#: Of each Java, which lives for a few runs: its fast compiler alone, and a collector without threads.
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: Livy passes the folder's settings on by itself. On the class path the folder would have Java refuse the archive.
SPARK_SUBMIT = """#!/bin/sh
unset SPARK_CONF_DIR
exec {bin}/spark-submit "$@"
"""
#: Two executors, each a process with one core.
MASTER = "local-cluster[2,1,1024]"
#: Livy's own port, taken by the command line where it is free.
LIVY_PORT = 8998
START_SECONDS = 60
STOP_SECONDS = 30

#: In the environment of every process of a server: its state folder.
MARK = "LIVY_RIG_STATE"
#: Variables that would lead Livy, Spark or the cluster's Python elsewhere.
FOREIGN = ("LIVY_", "SPARK_", "PYSPARK_", "PYTHON")
#: Where Livy's server reaches into the JDK, which Java 17 has closed.
OPENED = (
    *("java.lang.invoke", "java.lang", "java.nio", "java.util.concurrent.atomic", "sun.nio.ch", "java.net", "java.io"),
    "sun.util.calendar",
)
EXPORTED = ("sun.net.dns", "sun.net.util", "sun.security.x509", "sun.security.util")


class RigError(Exception):
    """What is missing, in one line that ends in what to do."""


@dataclass(frozen=True)
class Host:
    """Where a server runs, if not here. `prefix`: before a command, which then runs there."""

    address: str
    prefix: tuple[str, ...]


@dataclass(frozen=True)
class Livy:
    """A running server. `url` has no slash at its end."""

    url: str
    state: Path
    pid: int
    started_here: subprocess.Popen | None = field(default=None, repr=False, compare=False)
    host: Host | None = field(default=None, repr=False, compare=False)

    @property
    def log(self) -> str:
        """What the server and the drivers that it started have logged."""
        return (self.state / "logs" / "server.log").read_text(errors="replace")

    def processes(self) -> dict[int, str]:
        """Command lines of all that this server has brought up and that still lives, by pid."""
        return processes(self.state)

    def restart(self) -> Livy:
        """Kill the server, as a crash does, and start it again on its port and with its settings."""
        _signal(self.pid, signal.SIGKILL)
        if self.started_here is not None:
            self.started_here.wait(STOP_SECONDS)
        return _up(java_home(), self.state, self.url, {}, die_with_me=True, host=self.host)

    def stop(self, keep_state: bool = False) -> list[str]:
        """Delete the sessions, end the server, remove the state; return what had to be killed: [] when all is well."""
        with contextlib.suppress(OSError):  # the server is gone or deaf: its processes are ended below
            delete_sessions(self.url)
        _signal(self.pid, signal.SIGTERM)
        left = _wait_until_gone(self.state, self.started_here)
        for pid in left:
            _signal(pid, signal.SIGKILL)
        if left:
            _wait_until_gone(self.state, self.started_here)
        if not keep_state:
            shutil.rmtree(self.state, ignore_errors=True)
        return list(left.values())


def start(
    state: str | os.PathLike | None = None,
    port: int = 0,
    master: str = MASTER,
    conf: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    die_with_me: bool = True,
    host: Host | None = None,
    spark: dict[str, str] | None = None,
) -> Livy:
    """Bring up a server and return it when it answers.

    `state`: its folder, made where missing (default: a new temporary one); of a server that still runs there the
    processes are ended. `port`: 0 takes a free one. `conf`: further lines of livy.conf. `environment`: further
    variables, such as LIVY_RIG_MULTI_STATEMENTS=1 (child.py). `die_with_me`: the server ends with this process.
    `spark`: of spark-defaults.conf, instead of all lines for drivers on this machine.
    Raises RigError when a part is missing or the server does not come up.
    """
    java = java_home()
    _check_parts()
    state = Path(state).resolve() if state else Path(tempfile.mkdtemp(prefix="livy-"))
    for pid in processes(state):
        _signal(pid, signal.SIGKILL)
    shutil.rmtree(state, ignore_errors=True)
    port = port or free_port()
    address = host.address if host else "127.0.0.1"
    _write_configuration(state, port, master, {"livy.server.host": address, **(conf or {})}, spark)
    return _up(java, state, f"http://{address}:{port}", environment or {}, die_with_me, host)


def _up(
    java: Path, state: Path, url: str, environment: dict[str, str], die_with_me: bool, host: Host | None = None
) -> Livy:
    """Launch the server that is configured in `state`, and return it when it answers."""
    process = _launch(java, state, environment, die_with_me, host.prefix if host else ())
    livy = Livy(url, state, process.pid, process, host)
    (state / "livy.json").write_text(json.dumps({"url": livy.url, "pid": livy.pid}))
    deadline = time.monotonic() + START_SECONDS
    while not answers(livy.url):
        if process.poll() is not None or time.monotonic() > deadline:
            livy.stop(keep_state=True)
            raise RigError(f"Livy did not come up: see {state}/logs/server.log")
        time.sleep(0.2)
    return livy


def running(state: str | os.PathLike) -> Livy | None:
    """The server whose state is this folder, whether it answers or not; None where there is none."""
    state = Path(state).resolve()
    try:
        known = json.loads((state / "livy.json").read_text())
    except (OSError, ValueError):
        return None
    return Livy(known["url"], state, known["pid"])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/version", timeout=5) as reply:
            return "version" in json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 401
    except (OSError, ValueError):
        return False


def processes(state: Path) -> dict[int, str]:
    """Command lines of the living processes that carry this state folder, by pid."""
    mark = f"{MARK}={state}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = command.strip()
        except OSError:
            continue  # it ended meanwhile, or is another user's
    return found


def free_port() -> int:
    """A port of the loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def java_home() -> Path:
    """A Java 17: JAVA_HOME, or where Debian puts it."""
    candidates = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    for home in candidates + sorted(Path("/usr/lib/jvm").glob("*-17-*")):
        release = home / "release"
        if release.exists() and 'JAVA_VERSION="17' in release.read_text() and (home / "bin" / "java").exists():
            return home
    raise RigError("no Java 17 found: install openjdk-17-jdk-headless, or set JAVA_HOME, then repeat")


def _check_parts() -> None:
    for part in (JARS / ".ready", REPL_JAR, CLUSTER / "bin" / "python"):
        if not part.exists():
            raise RigError(f"{part} is missing: run `make livy-env` first")


def pyspark() -> Path:
    """The Spark of the cluster's Python."""
    (found,) = (CLUSTER / "lib").glob("python3.*/site-packages/pyspark")
    return found


def java_options() -> str:
    """Of a driver or an executor of sessions."""
    archive = [f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off"] if ARCHIVE.exists() else []
    return " ".join([*JAVA_OPTIONS, *archive])


def _write_configuration(
    state: Path, port: int, master: str, conf: dict[str, str], spark: dict[str, str] | None
) -> None:
    for name in ("conf", "logs", "staging", "files", "tmp", "spark-conf", "spark/bin"):
        (state / name).mkdir(parents=True)
    # A Spark home of its own: executors of local-cluster write into its folder `work`.
    for path in ("jars", "python", *(f"bin/{script.name}" for script in (pyspark() / "bin").iterdir())):
        (state / "spark" / path).symlink_to(pyspark() / path)
    submit = state / "spark" / "bin" / "spark-submit"
    submit.unlink()
    submit.write_text(SPARK_SUBMIT.format(bin=pyspark() / "bin"))
    submit.chmod(0o755)
    values = {
        "state": state,
        "java": java_options(),
        "port": port,
        "master": master,
        "repl_jar": REPL_JAR,
        "rsc_jars": ",".join(str(jar) for name in ("livy-rsc", "livy-api") for jar in JARS.glob(f"{name}-*.jar")),
    }
    more = "".join(f"{key} = {value}\n" for key, value in conf.items())
    _fill("livy.conf", state / "conf", values, more)
    _fill("log4j.properties", state / "conf", {})
    if spark is None:
        _fill("spark-defaults.conf", state / "spark-conf", values)
    else:
        lines = [f"{name} {value}\n" for name, value in spark.items()]
        (state / "spark-conf" / "spark-defaults.conf").write_text("".join(lines))


def _fill(name: str, folder: Path, values: dict[str, object], more: str = "") -> None:
    text = (HERE / "templates" / name).read_text()
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    (folder / name).write_text(text + more)


def _launch(
    java: Path, state: Path, environment: dict[str, str], die_with_me: bool, prefix: tuple[str, ...]
) -> subprocess.Popen:
    command = [*prefix, str(java / "bin" / "java"), *JAVA_OPTIONS, "-Xmx512m", f"-Djava.io.tmpdir={state}/tmp"]
    command += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
    command += [f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in EXPORTED]
    of_hadoop = environment.get("HADOOP_CONF_DIR", "")  # where Livy asks YARN about its sessions
    command += ["-cp", ":".join(filter(None, [f"{JARS}/*", f"{state}/conf", of_hadoop]))]
    command += ["org.apache.livy.server.LivyServer"]
    own = {
        "JAVA_HOME": str(java),
        "LIVY_HOME": str(state),
        "LIVY_CONF_DIR": str(state / "conf"),
        "LIVY_LOG_DIR": str(state / "logs"),
        "SPARK_HOME": str(state / "spark"),
        "SPARK_CONF_DIR": str(state / "spark-conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(CLUSTER / "bin" / "python"),
        "TMPDIR": str(state / "tmp"),
        MARK: str(state),
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) or k.startswith("LIVY_RIG_")}
    with (state / "logs" / "server.log").open("ab") as log:
        return subprocess.Popen(
            command,
            env={**inherited, **own, **environment},
            cwd=state,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C of a test run is not for the server
            preexec_fn=end_with_parent if die_with_me else None,
        )


def end_with_parent() -> None:
    """For a child that is about to be: it gets SIGTERM when the thread that starts it ends."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def _ask(method: str, url: str) -> dict:
    request = urllib.request.Request(url, method=method, headers={"X-Requested-By": "rig"})
    with urllib.request.urlopen(request, timeout=STOP_SECONDS) as reply:
        return json.load(reply)


def delete_sessions(url: str, ask: Callable[[str, str], dict] = _ask) -> None:
    """Delete all sessions and batches, and wait until they are gone: their drivers end with them.

    `ask`: (method, URL) -> JSON, with credentials where the Livy wants some; OSError for any other status than 2xx.
    """
    for kind in ("sessions", "batches"):
        for session in ask("GET", f"{url}/{kind}?size=1000")["sessions"]:
            with contextlib.suppress(OSError):  # ended by itself meanwhile
                ask("DELETE", f"{url}/{kind}/{session['id']}")


def _wait_until_gone(state: Path, server: subprocess.Popen | None) -> dict[int, str]:
    """What is left of the processes after at most STOP_SECONDS."""
    deadline = time.monotonic() + STOP_SECONDS
    while True:
        if server is not None:
            server.poll()  # reaps it
        left = processes(state)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # ended already
        os.kill(pid, number)


def main(arguments: list[str] | None = None) -> int:
    """`rig.py start [--port N] [--master M]` and `rig.py stop`, for the server of `make livy`."""
    parser = argparse.ArgumentParser(description="A real Apache Livy on this machine, for trying out.")
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("--port", type=int, default=0, help=f"default: {LIVY_PORT}, or a free one where it is taken")
    parser.add_argument("--master", default=MASTER, help="the Spark of each session (default: %(default)s)")
    parser.add_argument("--state", type=Path, default=BUILD / "run")
    options = parser.parse_args(arguments)
    livy = running(options.state)
    try:
        if options.action == "stop":
            return _stop(livy, options.state)
        if livy is None or not answers(livy.url):
            port = options.port or (LIVY_PORT if _is_free(LIVY_PORT) else 0)
            livy = start(options.state, port, options.master, die_with_me=False)
    except RigError as error:
        print(f"livy: {error}", file=sys.stderr)
        return 1
    print(f"Apache Livy answers at {livy.url} (make livy-stop takes it down)")
    return 0


def _stop(livy: Livy | None, state: Path) -> int:
    if livy is None:
        print("livy: none is running")
        return 0
    killed = livy.stop()
    for command in killed:
        print(f"livy: had to be killed: {command[:200]}", file=sys.stderr)
    print("livy: stopped")
    return 1 if killed else 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


if __name__ == "__main__":
    sys.exit(main())
