"""S3 and HDFS on ports of the loopback, a process each. Wants what `make stores-env` makes."""

import contextlib
import os
import signal
import subprocess
import urllib.request

from support import starts
from support.paths import ROOT
from support.ports import answers, free_port
from support.until import until

JARS = ROOT / "build" / "stores"
MOTO = ROOT / ".venv-stores" / "bin" / "moto_server"
START_SECONDS = 100


@contextlib.contextmanager
def s3(folder):
    """moto's S3, with an empty bucket: the address of its server. It takes any key."""
    assert MOTO.exists(), "make stores-env makes the environment of S3"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with _running([str(MOTO), "-H", "127.0.0.1", "-p", str(port)], folder / "moto.log"):
        until(lambda: answers(f"{url}/moto-api/"), START_SECONDS)
        urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"), timeout=10).close()
        yield url


@contextlib.contextmanager
def hdfs(folder):
    """An HDFS of one data node: its URI."""
    port, ready = free_port(), folder / "core-site.xml"
    command = [str(starts.java_home() / "bin" / "java"), "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dtest.build.data={folder}/data", f"-Dhadoop.log.dir={folder}", "-cp", f"{JARS / 'hdfs'}/*"]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"]
    command += ["-httpport", "0", "-nnport", str(port), "-writeConfig", str(ready)]
    with _running(command, folder / "hdfs.log"):
        until(ready.exists, START_SECONDS)
        yield f"hdfs://127.0.0.1:{port}"


@contextlib.contextmanager
def _running(command, log):
    with (
        open(log, "wb") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent) as process,
    ):
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)


def environment(url):
    """What executors of Spark, and pyarrow there, need to know of an S3."""
    variables = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    return {**variables, "AWS_ENDPOINT_URL": url}


def settings(url):
    """Spark's settings for an S3, which executors and the ranks' pyarrow know by their environment."""
    executors = {f"spark.executorEnv.{name}": value for name, value in environment(url).items()}
    client = {"endpoint": url, "path.style.access": "true", "access.key": "key", "secret.key": "secret"}
    jars = os.pathsep.join(sorted(map(str, (JARS / "s3a").glob("*.jar"))))
    return {
        **executors,
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in client.items()},
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
    }
