"""A real Kafka broker for the tests: one process, which is its own controller (KRaft), on ports of the loopback.

Wants what `make kafka-env` puts under build/kafka.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from support import starts
from support.ports import free_port
from support.until import until

ROOT = Path(__file__).resolve().parents[2]
BROKER = ROOT / "build" / "kafka" / "broker"
SPARK = ROOT / "build" / "kafka" / "spark"
START_SECONDS, STOP_SECONDS = 60, 20
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


def spark_jars() -> str:
    """The value of spark.jars with Spark's source for Kafka."""
    jars = sorted(map(str, SPARK.glob("*.jar")))
    if not jars:
        raise RuntimeError("Spark's Kafka source is not here: make kafka-env")
    return ",".join(jars)


@dataclass
class Kafka:
    """A broker. `address`: HOST:PORT, the same after `kill` and `start_again`."""

    address: str
    state: Path
    process: subprocess.Popen | None = field(default=None, repr=False)

    def kill(self) -> None:
        """End it as a crash does. What it has acknowledged is on its disk."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def start_again(self) -> None:
        with (self.state / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                _java("kafka.Kafka", str(self.state / "server.properties")), stdout=log, stderr=log, env=_environment()
            )
        self._wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.state, ignore_errors=True)

    def _wait(self) -> None:
        host, _, port = self.address.rpartition(":")

        def answers() -> bool:
            log = (self.state / "broker.log").read_text()[-2000:]
            assert self.process is not None and self.process.poll() is None, f"the broker has ended:\n{log}"
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return True
            return False

        until(answers, START_SECONDS, lambda: "the broker does not answer")


def start(state: Path | None = None) -> Kafka:
    """Bring up a broker, and return it when it answers. state: its folder; a new temporary one if left out."""
    if not any(BROKER.glob("kafka_*.jar")):
        raise RuntimeError("there is no Kafka here: make kafka-env")
    state = state or Path(tempfile.mkdtemp(prefix="kafka-"))
    port, controller = free_port(), free_port()
    settings = SETTINGS.format(port=port, controller=controller, logs=state / "logs")
    (state / "server.properties").write_text(settings)
    command = _java("kafka.tools.StorageTool", "format", "-t", "ZGRsX21hZ2ljc190ZXN0cw", "-c")
    subprocess.run([*command, str(state / "server.properties")], check=True, capture_output=True, env=_environment())
    kafka = Kafka(f"127.0.0.1:{port}", state)
    kafka.start_again()
    return kafka


def _java(main: str, *arguments: str) -> list[str]:
    java = str(starts.java_home() / "bin" / "java")
    return [java, *JAVA_OPTIONS, "-cp", f"{BROKER}/*", main, *arguments]


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/")}


if __name__ == "__main__":
    broker = start()
    print(f"a Kafka broker is at {broker.address}; Ctrl-C ends it", flush=True)
    try:
        broker.process.wait()
    except KeyboardInterrupt:
        broker.stop()
        sys.exit()
