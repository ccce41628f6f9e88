"""The drift of logged requests by Evidently on pandas: python evidently_drift.py FOLDER REFERENCE.csv.

Prints JSON with the seconds that reading the log and the report took. It runs in an environment of its own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from evidently import Report
from evidently.presets import DataDriftPreset


def read(folder: Path) -> pd.DataFrame:
    """The rows of all requests. json.loads is faster here than pandas.read_json, whose lists would be taken apart."""
    rows, outputs, seen = [], [], set()
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as lines:
            for line in lines:
                record = json.loads(line)
                if record["id"] not in seen:
                    seen.add(record["id"])
                    rows.append(np.array(record["inputs"]["features"]))
                    outputs.append(np.array(record["outputs"]["y"]))
    values = np.concatenate([np.concatenate(rows), np.concatenate(outputs)], axis=1)
    return pd.DataFrame(values, columns=[*(f"f{k}" for k in range(values.shape[1] - 1)), "output"])


def main() -> None:
    folder, reference = Path(sys.argv[1]), pd.read_csv(sys.argv[2])
    begun = time.perf_counter()
    current = read(folder)
    read_seconds = time.perf_counter() - begun
    Report([DataDriftPreset()]).run(current, reference)
    took = time.perf_counter() - begun
    print(json.dumps({"rows": len(current), "read": read_seconds, "seconds": took}))


if __name__ == "__main__":
    main()
