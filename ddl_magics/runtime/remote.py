"""The driver as Livy brings requests to it: by statements, and by jobs of its side channel beside them.

What the side channel may call never asks Spark: under Livy job groups belong to the JVM's threads, and a call from
there would take over the group of the statement that runs. Every function may be called again with the same request: an
answer can be lost on its way, and the notebook then asks once more.
"""

import json

from . import driver


def launch(spec, namespace):
    """`driver.launch`, which starts a run once."""
    if driver.held.get(json.loads(spec)["run"]) is not None:
        return json.dumps({"ok": True})
    return driver.launch(spec, namespace)


def busy(_request="{}"):
    """{} -> {"busy": slots that runs hold}."""
    return json.dumps({"busy": driver.held.busy()})


def runs(_request="{}"):
    """{} -> {"runs": [{"run", "state", "spec"}, ...]}, for a notebook that does not know them."""
    held = [{"run": run, "state": job.state, "spec": job.spec} for run, job in driver.held.all().items()]
    return json.dumps({"runs": held})


#: What the side channel may call.
BESIDE = {
    "poll": driver.poll,
    "stop": driver.stop,
    "fetch": driver.fetch,
    "release": driver.release,
    "busy": busy,
    "runs": runs,
}
#: What a statement may call.
CALLS = dict(BESIDE, launch=launch, info=driver.info)


def job(request):
    """What the pickle of a side-channel job calls: the job that answers `request`, JSON of {"function", "argument"}."""
    request = json.loads(request)
    function = BESIDE[request["function"]]
    return lambda _context: function(request["argument"])
