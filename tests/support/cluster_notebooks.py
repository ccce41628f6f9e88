"""A notebook on each kind of cluster, with what differs between them: the tests that use it hold on all of them.

embedded   the IPython kernel of `.venv`, with the Spark that the first run makes
ipython    an IPython kernel without Spark and TensorFlow, `%ddl use livy`
pyspark    sparkmagic's PySpark kernel and its own Livy session
gateway    the same behind a gateway as HDInsight's: TLS, a password, X-Requested-By

And an IPython kernel without sparkmagic before a stand-in for each service that is like Livy: `LOOKALIKES`.
"""

import json
import re
from functools import cached_property

from support import livy_lookalikes, sparkmagic_kernels, trainings
from support.kernels import Kernel

KINDS = ("embedded", "ipython", "pyspark", "gateway")

#: Services that are like Livy, by the name of their stand-in.
LOOKALIKES = ("Fabric", "EmrServerless", "Lighter")
#: What a user would take from AWS: it signs requests. In the file signing.py.
_SIGNER = """
class Signer:
    def __init__(self, credentials):
        self.url = credentials.url
    def __call__(self, request):
        scope = "AKIDEXAMPLE/20150830/us-east-1/emr-serverless/aws4_request"
        request.headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
        return request
"""

#: How a cell says that it is for the notebook's own Python, and for the one that has Spark.
LOCAL = {"embedded": "", "ipython": "", "pyspark": "%%local\n", "gateway": "%%local\n"}
REMOTE = {"embedded": "", "ipython": "%%spark -s ddl\n", "pyspark": "", "gateway": ""}

#: A session may take this long to start on a busy machine, and the first run a little more.
FIRST_SECONDS = 300


class _OfKernel:
    """What notebooks have in common: `kernel`, and a `value` of its expressions."""

    @cached_property
    def first(self):
        """The answer of the notebook's first cell, a training called digits."""
        return self.kernel.run(trainings.cell("--name digits --seed 7", epochs=3), timeout=FIRST_SECONDS)

    @cached_property
    def history(self):
        """That of digits."""
        assert self.first.error == "", self.first.traceback
        return self.value("digits.history")

    def run(self, code, **how):
        """A cell that must go well."""
        answer = self.kernel.run(code, **how)
        assert answer.error == "", answer.traceback
        return answer


class LookAlikeNotebook(_OfKernel):
    """A kernel whose runs are executed behind a stand-in for a service that is like Livy: what a notebook shows there.

    Args:
        kind: one of LOOKALIKES.
        folder: for the configuration.
        livy: the Livy (Endpoint) behind the stand-in.
    """

    def __init__(self, kind, folder, livy):
        self.kind, self.livy = kind, livy
        self.service = getattr(livy_lookalikes, kind)(livy.url)
        configuration = {"username": "", "password": "", "url": self.service.url, "auth": "None"}
        settings = {"kernel_python_credentials": configuration}
        if kind == "EmrServerless":
            (folder / "signing.py").write_text(_SIGNER)
            configuration["auth"] = "Signed"
            settings["authenticators"] = {"Signed": "signing.Signer"}
            settings["session_configs"] = {"conf": {self.service.ROLE: "arn:aws:iam::123456789012:role/r"}}
        (folder / "config.json").write_text(json.dumps(settings))
        token = folder / "token"
        token.write_text("first")
        environment = {
            "SPARKMAGIC_CONF_DIR": str(folder),
            "IPYTHONDIR": str(folder / "ipython"),
            "PYTHONPATH": str(folder),
        }
        self.kernel = sparkmagic_kernels.start(sparkmagic_kernels.IPYTHON_KERNEL, environment)
        self.run("import sys; sys.modules['sparkmagic'] = sys.modules['gssapi'] = None\n%load_ext ddl_magics")
        more = f"--token-from 'cat {token}'" if kind == "Fabric" else ""
        self.run(f"%ddl use livy {self.service.url} {more}", timeout=FIRST_SECONDS)

    local = _OfKernel.run

    def value(self, expression):
        """The value of an expression of the notebook's own Python, which must be of literals."""
        return self.kernel.value(expression)

    def close(self):
        self.kernel.close()
        for number in self.service.ids.values():
            self.livy.client().delete(f"/sessions/{number}")
        self.service.__exit__()


class Notebook(_OfKernel):
    """A kernel with `ddl_magics`, and the session that its runs are executed in.

    Args:
        kind: one of KINDS.
        folder: for sparkmagic's configuration and logs; for the temporary files of `embedded`, in `temporary`.
        livy: the Livy (Endpoint), but for `embedded`.
        gateway: the Gateway before it, for `gateway`.
    """

    def __init__(self, kind, folder, livy=None, gateway=None):
        self.kind, self.folder, self.livy = kind, folder, livy
        self._door = gateway or livy
        self._environment = {}
        if livy is not None:
            door = self._door
            self._environment = sparkmagic_kernels.configuration(folder, door.url, door.user, door.password)
        else:
            self.temporary = folder / "tmp"
            self.temporary.mkdir()
            self._has_spark = False  # the variable
            self._environment = {"TMPDIR": str(self.temporary)}
        if gateway is not None:
            self._environment["REQUESTS_CA_BUNDLE"] = str(gateway.ca)
        self.open()
        if kind == "ipython":
            self.run("%load_ext sparkmagic.magics")
            self.run(f"%ddl use livy {livy.url} --detached", timeout=FIRST_SECONDS)

    def open(self, **variables):
        """A kernel, with further environment variables; the session of an earlier one is not taken up by itself."""
        environment = {**self._environment, **variables}
        if self.kind == "embedded":
            self.kernel = Kernel(environment=environment)
        else:
            of = sparkmagic_kernels
            module = of.IPYTHON_KERNEL if self.kind == "ipython" else of.PYSPARK_KERNEL
            self.kernel = of.start(module, environment)
        self.run("%load_ext ddl_magics")

    @cached_property
    def run_id(self):
        """That of digits."""
        assert self.first.error == "", self.first.traceback
        return self.value("digits.id")

    @cached_property
    def session(self):
        """The number of the Livy session; None where there is none."""
        said = re.search(r"Livy session (\d+) at", self.run("%ddl check").text)
        return said and int(said[1])

    def local(self, code, **how):
        """A cell of the notebook's own Python."""
        return self.run(LOCAL[self.kind] + code, **how)

    def remote(self, code):
        """A cell, of one statement, of the Python that has Spark."""
        if self.kind == "embedded" and not self._has_spark:
            self.run("%ddl spark")
            self._has_spark = True
        return self.run(REMOTE[self.kind] + code)

    def value(self, expression):
        """The value of an expression of the notebook's own Python, which must be of literals."""
        return self.kernel.value(expression, LOCAL[self.kind])

    def use_session(self):
        """In a new kernel: the session of the first one."""
        answer = self.run(f"%ddl use livy {self._door.url} --session {self.session}")
        assert "UsageError" not in answer.text, answer.text

    def kill(self):
        self.kernel.kill()
        self.kernel.close()

    def close(self):
        """End the kernel, and the session too, which may have lost the kernel that would have ended it."""
        self.kernel.close()
        if self.livy is not None and self.__dict__.get("session") is not None:
            self.livy.client().delete(f"/sessions/{self.session}")
