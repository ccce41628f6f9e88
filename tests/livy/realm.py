"""A Kerberos realm on the loopback, of Debian's KDC: it needs no root, and nothing of /etc.

with realm(folder) as town:
    town.kinit(seconds=30)          # a ticket for the user, in a cache that `town.environment` names
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from livy import rig

REALM = "TOWN.TEST"
USER, PASSWORD = "ann", "her password"
SERVICE = "HTTP/localhost"
#: Fails for any other status than 2xx, and says which; the user is whom the ticket names.
_CURL = ("--silent", "--show-error", "--fail", "--negotiate", "--user", ":", "--max-time", "30")
START_SECONDS = 10

_SBIN = "/usr/sbin"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "kdestroy")
_CONFIG = """
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  # Java before 19 knows no newer kind of encryption.
  default_tkt_enctypes = aes256-cts
  default_tgs_enctypes = aes256-cts
  permitted_enctypes = aes256-cts
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{port}
[dbmodules]
  {realm} = {{
    db_library = db2
    database_name = {folder}/principal
  }}
[logging]
  default = FILE:{folder}/kdc.log
"""
_KDC_CONFIG = """
[realms]
  {realm} = {{
    key_stash_file = {folder}/stash
    max_life = 1d
    supported_enctypes = aes256-cts:normal
  }}
"""


@dataclass(frozen=True)
class Realm:
    """A running realm with a user and a service.

    Attributes:
        environment: what leads a process to this realm and to the user's tickets.
        keytab: the service's key.
    """

    folder: Path
    environment: dict[str, str]
    keytab: Path

    @property
    def java(self) -> str:
        """The options of a Java whose service is in this realm."""
        opened = "--add-exports=java.security.jgss/sun.security.{}=ALL-UNNAMED"
        return f"-Djava.security.krb5.conf={self.folder}/krb5.conf {opened.format('krb5')} {opened.format('jgss')}"

    def kinit(self, seconds: int = 600) -> None:
        """A ticket for the user, for so long."""
        _run("kinit", "-l", f"{seconds}s", USER, environment=self.environment, told=PASSWORD)

    def ask(self, method: str, url: str) -> dict:
        """What a Livy of this realm answers to the user, for `rig.delete_sessions`."""
        self.kinit()
        words = ["--request", method, "--header", "X-Requested-By: rig", url.replace("127.0.0.1", "localhost")]
        try:
            return json.loads(_run("curl", *_CURL, *words, environment=self.environment))
        except subprocess.CalledProcessError as error:
            raise OSError(error.stderr) from None

    def kdestroy(self) -> None:
        _run("kdestroy", "-q", environment=self.environment)


@contextlib.contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    """Bring up a realm, whose files are in `folder`. Skips the test where Kerberos' programs are missing."""
    missing = [name for name in _PROGRAMS if not _path(name)]
    if missing:
        pytest.skip(f"{missing[0]} is missing: apt install krb5-kdc krb5-admin-server krb5-user")
    values = {"realm": REALM, "folder": folder, "port": rig.free_port()}
    (folder / "krb5.conf").write_text(_CONFIG.format(**values))
    (folder / "kdc.conf").write_text(_KDC_CONFIG.format(**values))
    environment = {"KRB5_CONFIG": str(folder / "krb5.conf"), "KRB5CCNAME": f"FILE:{folder}/tickets"}
    own = {**environment, "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
    town = Realm(folder, environment, folder / "livy.keytab")
    _run("kdb5_util", "create", "-s", "-P", "of the database", "-r", REALM, environment=own)
    for command in (
        f'addprinc -pw "{PASSWORD}" {USER}',
        f"addprinc -randkey {SERVICE}",
        f"ktadd -k {town.keytab} {SERVICE}",
    ):
        _run("kadmin.local", "-r", REALM, "-q", command, environment=own)
    kdc = subprocess.Popen(
        [_path("krb5kdc"), "-n", "-r", REALM, "-P", str(folder / "pid")],
        env={**os.environ, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=rig.end_with_parent,
    )
    try:
        _wait_for(town)
        yield town
    finally:
        kdc.send_signal(signal.SIGTERM)
        kdc.wait(START_SECONDS)


def _wait_for(town: Realm) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            town.kinit()
        except subprocess.CalledProcessError:
            if time.monotonic() > deadline:
                raise rig.RigError(f"the KDC did not come up: see {town.folder}/kdc.log") from None
            time.sleep(0.1)
        else:
            return town.kdestroy()


def _path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


def _run(program: str, *arguments: str, environment: dict[str, str], told: str = "") -> str:
    """What the program prints."""
    command = [_path(program), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment}, input=f"{told}\n", text=True, check=True, capture_output=True
    )
    return done.stdout
