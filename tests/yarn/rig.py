"""A real YARN and HDFS for the tests and for trying out: `Yarn(folder)`, also as a command line.

Each daemon is on a host of chaos/hosts.py: ResourceManager, NameNode and DataNode on the first, a NodeManager on each
other one, which has a /tmp of its own. So a host can die, nothing leaves this machine, and what is in the temporary
folders here is not there. Spark's driver is outside in client mode, and on one of the hosts in cluster mode. `livy`
brings up a Livy on the first host. Wants what `make yarn-env` gets, root's rights and Linux.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from xml.sax.saxutils import escape

from chaos import hosts
from livy import rig as livy_rig
from livy.rig import RigError, java_home
from support.paths import ROOT

JARS = ROOT / "build" / "yarn" / "jars"
STATE = ROOT / "build" / "yarn" / "run"
#: What is known of the rig of the command line, and what a shell reads.
KNOWN, VARIABLES = STATE / "yarn.json", STATE / "environment"

NODES = 2
HEAD = 0
#: Of each NodeManager: two executors with a worker each.
MEMORY_MIB, CORES = 5120, 4
#: A queue of YARN besides `default`, and how soon it gets its share back.
URGENT = "urgent"
PREEMPTION = {
    "monitoring_interval": 1000,
    "max_wait_before_kill": 2000,
    "total_preemption_per_round": 1.0,
    "natural_termination_factor": 1.0,
}
SHUFFLE = "spark_shuffle"
START_SECONDS, STOP_SECONDS = 150, 20
RPC, HTTP = 8020, 8088
JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_YARN, _HDFS = "org.apache.hadoop.yarn.server", "org.apache.hadoop.hdfs.server"
CLIENT = "org.apache.hadoop.yarn.client.cli"
NAME_NODE = f"{_HDFS}.namenode.NameNode"


class Yarn:
    """`with Yarn(folder) as yarn:`. conf: the folder for HADOOP_CONF_DIR. Hosts 1 to `nodes` have NodeManagers."""

    def __init__(self, folder, nodes=NODES, **settings):
        """folder: for files, new or empty. settings: of yarn-site.xml, instead of the rig's or besides them."""
        self.folder, self.nodes, self._settings = Path(folder), range(1, nodes + 1), settings
        self.hosts = hosts.Hosts(1 + nodes, self.folder / "hosts", "java")
        self.conf, self.head = self.folder / "conf", self.hosts.address(HEAD)
        self._java = str(java_home() / "bin" / "java")
        self._daemons = {}

    def __enter__(self):
        if problem := obstacle():
            raise RigError(problem)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.hosts)
            stack.callback(self._end)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._stack.close()

    def settings(self, executors, worker_mib=1536):
        """Spark's for an application in client mode. worker_mib: of an executor besides its JVM."""
        import pyspark

        return {
            "spark.master": "yarn",
            "spark.driver.host": self.hosts.driver_address,
            "spark.driver.bindAddress": self.hosts.driver_address,
            "spark.executor.instances": str(executors),
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": f"{worker_mib}m",
            "spark.yarn.am.memory": "512m",
            "spark.ui.showConsoleProgress": "false",
            "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
        }

    @contextlib.contextmanager
    def livy(self, state, mode, **more):
        """A Livy on the first host. state: its folder; mode: `cluster` or `client`, where its drivers are.

        more: Spark's settings besides the rig's.
        """
        python, address = livy_rig.CLUSTER / "bin" / "python", self.head
        settings = self.settings(2)
        ours = {
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": livy_rig.java_options(),
            "spark.executor.extraJavaOptions": livy_rig.java_options(),
            "spark.yarn.jars": f"local:{livy_rig.pyspark()}/jars/*",
            # The session's Python, and the Spark of the runner of its statements.
            "spark.pyspark.python": python,
            "spark.yarn.appMasterEnv.SPARK_HOME": livy_rig.pyspark(),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": 4,
            "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        }
        for name in ("spark.driver.host", "spark.driver.bindAddress"):
            settings.pop(name)
            if mode == "client":
                ours[name] = address
        server = livy_rig.start(
            state,
            master="yarn",
            conf={"livy.spark.deploy-mode": mode, "livy.rsc.rpc.server.address": address},
            environment={**self.environment(), "SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address},
            host=livy_rig.Host(address, tuple(self.hosts.command(HEAD))),
            spark={**settings, **ours, **more},
        )
        try:
            yield server
        finally:
            server.stop()

    def environment(self):
        """Variables of a process whose Spark runs here."""
        address = self.hosts.driver_address
        return {"HADOOP_CONF_DIR": str(self.conf), "SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address}

    @property
    def uri(self):
        return f"hdfs://{self.head}:{RPC}"

    def put(self, file, path):
        """Copy a file of this machine to HDFS; returns its URI."""
        import requests

        url = f"http://{self.head}:9870/webhdfs/v1{path}?op=CREATE&user.name=root"
        requests.put(url, data=Path(file).read_bytes(), timeout=60).raise_for_status()
        return self.uri + path

    def metrics(self):
        """What the ResourceManager says of its cluster."""
        return self._ask("metrics")["clusterMetrics"]

    def applications(self):
        """The ids of those that are running or waiting."""
        apps = self._ask("apps?states=ACCEPTED,RUNNING")["apps"] or {}
        return [app["id"] for app in apps.get("app", [])]

    def end_application(self, application):
        """What `yarn application -kill` does."""
        body = json.dumps({"state": "KILLED"}).encode()
        self._ask(f"apps/{application}/state?user.name=root", body)

    def logs(self, application):
        """What `yarn logs -applicationId` prints of an application that has ended; "" while they are not there yet."""
        command = self.hosts.command(HEAD, self._java, "-cp", f"{self.conf}:{JARS}/*", f"{CLIENT}.LogsCLI")
        ended = subprocess.run(
            [*command, "-applicationId", application], capture_output=True, text=True, env=_environment()
        )
        return ended.stdout if not ended.returncode else ""

    def _ask(self, path, body=None):
        """The ResourceManager's answer; what to put there is in `body`."""
        url, method = f"http://{self.head}:{HTTP}/ws/v1/cluster/{path}", "GET" if body is None else "PUT"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)

    def containers(self, host):
        """The ids of the containers on the host; that of an ApplicationMaster ends with 000001."""
        listed = (self._ask_node(host, "ws/v1/node/containers")["containers"] or {}).get("container", [])
        return [container["id"] for container in listed]

    def shuffles(self, host):
        """How many executors have registered with the shuffle service of the host so far."""
        (service,) = self._ask_node(host, "jmx?qry=Hadoop:service=NodeManager,name=sparkShuffleService")["beans"]
        return service["registerExecutorRequestLatencyMillis_count"]

    def _ask_node(self, host, path):
        with urllib.request.urlopen(f"http://{self.hosts.address(host)}:8042/{path}", timeout=10) as reply:
            return json.load(reply)

    def die(self, host):
        """The host loses its power: nothing runs there any more, and nobody is told."""
        self.hosts.cut(host)
        self.hosts.kill(host)

    def end_node_manager(self, host):
        """The NodeManager's process ends, its containers live on, and nobody is told."""
        self._daemons[f"node-{host}"].kill()

    def revive(self, host):
        """After its processes have ended, or `die`: the host is there again, with a new NodeManager."""
        self.hosts.mend(host)
        self._daemons[f"node-{host}"].wait(STOP_SECONDS)
        self._start_node(host)

    # -- the daemons

    def _start(self):
        (self.folder / "logs").mkdir(parents=True)
        for part in ("hdfs", "datanode", "static"):  # pages, which Maven's jars do not have
            (self.folder / "web" / "webapps" / part).mkdir(parents=True)
        self._write_configurations()
        self._run(HEAD, "format", NAME_NODE, "-format", "-nonInteractive").wait(START_SECONDS)
        self._daemons["namenode"] = self._run(HEAD, "namenode", NAME_NODE)
        self._daemons["datanode"] = self._run(HEAD, "datanode", f"{_HDFS}.datanode.DataNode")
        self._daemons["resourcemanager"] = self._run(
            HEAD, "resourcemanager", f"{_YARN}.resourcemanager.ResourceManager"
        )
        for node in self.nodes:
            self._start_node(node)
        deadline = time.monotonic() + START_SECONDS
        while not self._is_up():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RigError(f"{ended[0] if ended else 'YARN'} did not come up: see {self.folder}/logs")
            time.sleep(0.2)

    def _start_node(self, host):
        self._daemons[f"node-{host}"] = self._run(host, f"node-{host}", f"{_YARN}.nodemanager.NodeManager")

    def _is_up(self):
        with contextlib.suppress(OSError):
            status = f"http://{self.head}:9870/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
            with urllib.request.urlopen(status, timeout=5) as reply:
                live = [bean["NumLiveDataNodes"] for bean in json.load(reply)["beans"]]
            return live == [1] and self.metrics()["activeNodes"] == len(self.nodes)
        return False

    def _run(self, host, name, main, *arguments):
        conf = self.folder / f"conf-{host}"
        java = [self._java, *JAVA_OPTIONS, f"-Dhadoop.log.dir={self.folder}/logs"]
        java += ["-cp", f"{conf}:{self.folder}/web:{JARS}/*", main, *arguments]
        with open(self.folder / "logs" / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                self.hosts.command(host, *self._with_own_folders(host), *java),
                env={**_environment(), "HADOOP_CONF_DIR": str(conf), "JAVA_HOME": str(Path(self._java).parents[1])},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _with_own_folders(self, host):
        """Before a command on a host with a NodeManager: /tmp is its own, but for the rig's folder."""
        if host == HEAD:
            return []
        own, names = self.temporary(host), self.folder / f"hosts-of-{host}"
        names.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")  # who looks it up takes the host's address
        own.mkdir(parents=True, exist_ok=True)
        own.chmod(0o1777)
        mounts = [f"mount --bind {names} /etc/hosts", f"mount --rbind {own} /tmp"]
        if self.folder.is_relative_to("/tmp"):
            ours = own / self.folder.relative_to("/tmp")
            ours.mkdir(parents=True, exist_ok=True)
            mounts.insert(0, f"mount --bind {self.folder} {ours}")
        return ["sh", "-c", " && ".join([*mounts, 'exec "$@"']), "host"]

    def temporary(self, host):
        """What is /tmp on the host."""
        return self.folder / f"node-{host}" / "tmp"

    def _end(self):
        for daemon in self._daemons.values():
            daemon.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for daemon in self._daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(max(0.1, deadline - time.monotonic()))
        for host in (HEAD, *self.nodes):
            self.hosts.kill(host)
        for daemon in self._daemons.values():
            daemon.wait(STOP_SECONDS)

    def _write_configurations(self):
        core = {
            "fs.defaultFS": self.uri,
            "hadoop.tmp.dir": self.folder / "tmp",
            "hadoop.proxyuser.root.hosts": "*",
            "hadoop.proxyuser.root.groups": "*",
        }
        scheduler = {
            # Each has half of the cluster. The first may use all of it, until the other takes its half back.
            "yarn.scheduler.capacity.root.queues": f"default,{URGENT}",
            "yarn.scheduler.capacity.root.default.capacity": 50,
            "yarn.scheduler.capacity.root.default.user-limit-factor": 2,
            f"yarn.scheduler.capacity.root.{URGENT}.capacity": 50,
            f"yarn.scheduler.capacity.root.{URGENT}.maximum-capacity": 50,
            "yarn.scheduler.capacity.maximum-am-resource-percent": 0.5,
            # A container after the other, so that executors are on both hosts.
            "yarn.scheduler.capacity.per-node-heartbeat.multiple-assignments-enabled": "false",
            "yarn.scheduler.capacity.resource-calculator": (
                "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
            ),
        }
        for folder, yarn in [
            (self.conf, {}),
            *((self.folder / f"conf-{host}", self._of(host)) for host in range(self.hosts.count)),
        ]:
            folder.mkdir()
            _write(folder / "core-site.xml", core)
            _write(folder / "hdfs-site.xml", self._hdfs())
            _write(folder / "capacity-scheduler.xml", scheduler)
            _write(folder / "yarn-site.xml", {**self._of_all(), **yarn, **self._settings})
            (folder / "log4j.properties").write_text(_LOG4J)

    def _hdfs(self):
        data_node = {
            name: f"{self.head}:{port}"
            for name, port in (("address", 9866), ("http.address", 9864), ("ipc.address", 9867))
        }
        return {
            "dfs.replication": 1,
            "dfs.namenode.name.dir": f"file://{self.folder}/name",
            "dfs.datanode.data.dir": f"file://{self.folder}/data",
            "dfs.namenode.http-address": f"{self.head}:9870",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.datanode.hostname": self.head,
            "dfs.namenode.safemode.extension": 0,
            **{f"dfs.datanode.{name}": address for name, address in data_node.items()},
        }

    def _of_all(self):
        return {
            "yarn.resourcemanager.hostname": self.head,
            "yarn.scheduler.minimum-allocation-mb": 256,
            "yarn.resourcemanager.scheduler.monitor.enable": "true",
            **{f"yarn.resourcemanager.monitor.capacity.preemption.{name}": value for name, value in PREEMPTION.items()},
            "yarn.nodemanager.resource.memory-mb": MEMORY_MIB,
            "yarn.nodemanager.resource.cpu-vcores": CORES,
            # TensorFlow reserves more addresses than it uses memory.
            "yarn.nodemanager.vmem-check-enabled": "false",
            # By default control groups end what is too large, where there are some, and the NodeManager nothing.
            "yarn.nodemanager.resource.memory.enforced": "false",
            "yarn.nodemanager.container-monitor.interval-ms": 1000,
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99,
            **_shuffle_service(),
            "yarn.log-aggregation-enable": "true",
            "yarn.nodemanager.remote-app-log-dir": "/app-logs",
            "yarn.application.classpath": f"{JARS}/*",
        }

    def _of(self, host):
        address = self.hosts.address(host)
        ports = {"": 8041, "localizer.": 8040, "webapp.": 8042, "collector-service.": 8048, "amrmproxy.": 8049}
        return {
            "yarn.nodemanager.hostname": address,
            "yarn.nodemanager.local-dirs": self.folder / f"node-{host}" / "local",
            "yarn.nodemanager.log-dirs": self.folder / f"node-{host}" / "logs",
            **{f"yarn.nodemanager.{name}address": f"{address}:{port}" for name, port in ports.items()},
        }


def _shuffle_service():
    """Settings of NodeManagers with Spark's shuffle service, as clusters with dynamic allocation have it."""
    import pyspark

    (jar,) = JARS.glob("spark-network-yarn_*.jar")
    return {
        "yarn.nodemanager.aux-services": SHUFFLE,
        f"yarn.nodemanager.aux-services.{SHUFFLE}.class": "org.apache.spark.network.yarn.YarnShuffleService",
        f"yarn.nodemanager.aux-services.{SHUFFLE}.classpath": f"{jar}:{Path(pyspark.__file__).parent}/jars/*",
    }


_LOG4J = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


def obstacle():
    """Why there can be no YARN here, in one line; "" if there can."""
    if problem := hosts.obstacle():
        return problem
    return "" if (JARS / ".ready").exists() else "Hadoop is not here: run `make yarn-env`"


def _write(path, settings):
    lines = [
        f"  <property><name>{name}</name><value>{escape(str(value))}</value></property>"
        for name, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def _environment():
    """Without variables that would lead Hadoop or the executors' Python elsewhere."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


# -- the command line


def main():
    """`start` and `stop` of `make yarn`; `keep` is the process in between."""
    parser = argparse.ArgumentParser(description="A real YARN and HDFS on this machine, for trying out.")
    parser.add_argument("action", choices=["start", "stop", "keep"])
    parser.add_argument("--livy", choices=["cluster", "client"], help="with a Livy, whose drivers are in this mode")
    options = parser.parse_args()
    try:
        return _stop() if options.action == "stop" else {"start": _start, "keep": _keep}[options.action](options.livy)
    except RigError as error:
        print(f"yarn: {error}", file=sys.stderr)
        return 1


def _start(livy):
    if problem := obstacle():
        raise RigError(problem)
    if _keeper() is None:
        shutil.rmtree(STATE, ignore_errors=True)
        STATE.mkdir(parents=True)
        with open(STATE / "rig.log", "wb") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "yarn.rig", "keep", *(["--livy", livy] if livy else [])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while not KNOWN.exists():
            if keeper.poll() is not None:
                raise RigError(
                    (STATE / "rig.log").read_text().strip().removeprefix("yarn: ") or f"it ended: see {STATE}"
                )
            time.sleep(0.1)
    known = json.loads(KNOWN.read_text())
    print(f"YARN answers at {known['pages']}, HDFS at {known['uri']} (make yarn-stop takes them down)")
    print(f"a session there: . {VARIABLES}, then SparkSession.builder.getOrCreate()")
    if known["livy"]:
        print(f"Livy answers at {known['livy']}: %ddl use livy {known['livy']}")
    return 0


def _stop():
    pid = _keeper()
    if pid is None:
        print("yarn: none is running")
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 3 * STOP_SECONDS
    while _keeper() is not None:
        if time.monotonic() > deadline:
            raise RigError(f"process {pid} does not end: see {STATE}")
        time.sleep(0.1)
    print("yarn: stopped")
    return 0


def _keep(livy):
    """Hold a rig until SIGTERM. Its files stay until the next one."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        yarn = stack.enter_context(Yarn(STATE / "files"))
        server = stack.enter_context(yarn.livy(STATE / "livy", livy)) if livy else None
        spark = STATE / "spark"
        spark.mkdir()
        lines = [f"{name} {value}\n" for name, value in yarn.settings(2).items()]
        (spark / "spark-defaults.conf").write_text("".join(lines))
        variables = {**yarn.environment(), "SPARK_CONF_DIR": str(spark), "PYSPARK_PYTHON": sys.executable}
        VARIABLES.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))
        known = {"pid": os.getpid(), "uri": yarn.uri, "pages": f"http://{yarn.head}:{HTTP}"}
        known["livy"] = server and server.url
        part = KNOWN.with_suffix(".part")
        part.write_text(json.dumps(known))
        part.rename(KNOWN)
        signal.pause()
    return 0


def _keeper():
    """The process of the rig of the command line; None where it has none."""
    with contextlib.suppress(OSError, ValueError):
        pid = json.loads(KNOWN.read_text())["pid"]
        if b"yarn.rig" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return pid
    return None


if __name__ == "__main__":
    sys.exit(main())
