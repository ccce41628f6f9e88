"""nginx in front of a Livy as HDInsight's gateway: TLS, Basic auth, X-Requested-By, everything under /livy."""

import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from livy import rig

START_SECONDS = 10


@dataclass(frozen=True)
class Gateway:
    """A running gateway. `url` ends in /livy; `ca` is the file that its certificate is checked with; `cookie` is the
    value of the one that it sets.
    """

    url: str
    user: str
    password: str = field(repr=False)
    cookie: str = field(repr=False)
    ca: Path
    folder: Path
    process: subprocess.Popen = field(repr=False)

    @property
    def log(self) -> str:
        """nginx's lines, of requests and of errors."""
        return "".join((self.folder / name).read_text() for name in ("access.log", "error.log"))

    def stop(self) -> None:
        """End nginx and remove its folder, the password with it."""
        self.process.terminate()
        self.process.wait(timeout=10)
        shutil.rmtree(self.folder)


def gateway(livy) -> Gateway:
    """A gateway in front of `livy`: anything with a plain http `url`, a rig.Livy or a faults.Faults."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None or shutil.which("openssl") is None:
        raise rig.RigError("nginx or openssl is missing: run `make livy-env` first")
    folder = Path(tempfile.mkdtemp(prefix="livy-gateway-"))
    port, user, password, cookie = rig.free_port(), "admin", secrets.token_urlsafe(12), secrets.token_urlsafe(12)
    _certificate(folder)
    _users(folder / "users", user, password)
    template = (rig.HERE / "templates" / "nginx.conf").read_text()
    for key, value in {"folder": folder, "port": port, "upstream": livy.url, "cookie": cookie}.items():
        template = template.replace("{" + key + "}", str(value))
    (folder / "nginx.conf").write_text(template)
    process = subprocess.Popen(
        [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=rig.end_with_parent,
    )
    _wait_for(port, process, folder)
    return Gateway(f"https://localhost:{port}/livy", user, password, cookie, folder / "gateway.crt", folder, process)


def _certificate(folder: Path) -> None:
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", names, "-keyout", str(folder / "gateway.key"), "-out", str(folder / "gateway.crt")]
    subprocess.run(command, check=True, capture_output=True)


def _users(file: Path, user: str, password: str) -> None:
    # By standard input: a command line can be read by everybody on the machine.
    hashed = subprocess.run(
        ["openssl", "passwd", "-apr1", "-stdin"], input=password, check=True, capture_output=True, text=True
    ).stdout.strip()
    file.write_text(f"{user}:{hashed}\n")


def _wait_for(port: int, process: subprocess.Popen, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise rig.RigError(f"nginx did not come up: see {folder}/error.log")
        time.sleep(0.05)
