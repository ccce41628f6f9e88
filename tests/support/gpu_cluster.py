"""A Spark whose executor has two GPUs that do not exist, for tests of how they are shared out. Run in a process of its
own: a process has one SparkContext.

    python -m support.gpu_cluster FOLDER '[{"workers": 2, "gpus": 1}, ...]' [SETTING=VALUE ...]

prints, as JSON, what each run's ranks saw of CUDA_VISIBLE_DEVICES, or why it was refused.
"""

import json
import sys
from pathlib import Path

from support import spark
from support.launch import Refused, finished, load_driver

CELL = "import os\nprint(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('CUDA_DEVICE_ORDER'))"


def session(folder, settings):
    discovery = Path(folder) / "gpus.sh"
    discovery.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["0", "1"]}\'\n')
    discovery.chmod(0o755)
    gpus = {
        "spark.worker.resource.gpu.amount": "2",
        "spark.worker.resource.gpu.discoveryScript": str(discovery),
        "spark.executor.resource.gpu.amount": "2",
    }
    made = spark.session(1, cores=2, **gpus, **settings)
    made.sparkContext.setLogLevel("OFF")
    return made


def seen(made, asked):
    try:
        ended = finished(made, CELL, **asked)
    except Refused as error:
        return str(error)
    warned = [event["message"] for event in ended.of_kind("notice") if event["level"] == "warning"]
    return {"ranks": sorted(ended.logs(rank).strip() for rank in range(asked["workers"])), "warned": sorted(warned)}


def main(folder, runs, *settings):
    made = session(folder, dict(setting.split("=") for setting in settings))
    try:
        info = json.loads(load_driver().info())
        answers = [seen(made, asked) for asked in json.loads(runs)]
        print(json.dumps({"info": {k: info[k] for k in ("executor_gpus", "task_gpus", "slots")}, "runs": answers}))
    finally:
        made.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
