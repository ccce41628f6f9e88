"""Kernels of the notebook's machine: `.venv-notebook`, with sparkmagic and without TensorFlow and Spark."""

import base64
import json

from support.kernels import Kernel
from support.paths import NOTEBOOK_PYTHON as PYTHON

IPYTHON_KERNEL = "ipykernel_launcher"
PYSPARK_KERNEL = "sparkmagic.kernels.pysparkkernel.pysparkkernel"

#: Sessions start in 10 s on an idle machine, and in a minute on a busy one.
STARTUP_SECONDS = 200


def configuration(folder, url, user="", password="", auth="", **settings):
    """Write sparkmagic's config.json for the Livy at `url`; the variables with which a kernel finds it.

    `auth`: sparkmagic's word; the default is that of a password, if there is a user.
    """
    given = {"username": user, "base64_password": base64.b64encode(password.encode()).decode(), "url": url}
    given["auth"] = auth or ("Basic_Access" if user else "None")
    config = {
        "kernel_python_credentials": given,
        "custom_headers": {"X-Requested-By": "tests"},
        "livy_session_startup_timeout_seconds": STARTUP_SECONDS,
        "wait_for_idle_timeout_seconds": 60,
        **settings,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return {"SPARKMAGIC_CONF_DIR": str(folder), "IPYTHONDIR": str(folder / "ipython")}


def start(kind, environment):
    return Kernel([str(PYTHON), "-m", kind, "-f", "{connection_file}"], environment)
