"""Requests to a model as a server logs them, and a reference of its data, for the tests of monitoring."""

import json

import numpy as np

from ddl_magics.runtime.monitoring import reference, watched

#: When the first request was: a Tuesday, in seconds since the epoch.
BEGIN = 1_763_000_000.0
ROWS = 10
FEATURES = ("load", "heat", "wind")


def reference_of(rows, outputs):
    """The reference of rows (rows, features) and outputs (rows, 1), as a run keeps it."""
    tensor = watched.with_columns(watched.of_input("", "load", rows.shape[1:], False, False), FEATURES)
    output = watched.of_output("", outputs.shape[1:])
    parts = [*watched.values(tensor, rows), *watched.values(output, outputs)]
    features = [
        reference.merged(name, [reference.sketch(values, 401)], False)
        for name, values in zip([*FEATURES, "output"], parts, strict=True)
    ]
    return {
        "v": 1,
        "run": "r",
        "rows": len(rows),
        "inputs": [tensor],
        "outputs": [output],
        "features": features,
    }


def requests(count, random, shift=0.0, first=0, seconds=0.5):
    """Records of `count` requests of `ROWS` rows, `seconds` apart; `shift` is added to heat."""
    for number in range(first, first + count):
        rows = random.normal(size=(ROWS, len(FEATURES)))
        rows[:, 1] += shift
        yield {
            "time": BEGIN + number * seconds,
            "id": f"q{number}",
            "model": "energy",
            "version": "1",
            "rows": ROWS,
            "inputs": {"features": rows.tolist()},
            "outputs": {"demand": rows.sum(axis=1, keepdims=True).tolist()},
            "latency": 0.004 if number % 10 else 0.02,
            "error": None,
        }


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def write_whole(path, text):
    """A file that appears complete."""
    part = path.with_name(f".{path.name}")
    part.write_text(text)
    part.rename(path)


def trained(random):
    """The reference of the data that `requests` without a shift have."""
    rows = random.normal(size=(20_000, len(FEATURES)))
    return reference_of(rows, rows.sum(axis=1, keepdims=True))


def expected_counts(records, feature, thing):
    """Rows per bin of a feature, by NumPy."""
    values = np.array([row[thing] for record in records for row in record["inputs"]["features"]])
    return np.bincount(
        np.searchsorted(feature["edges"], values, side="right"), minlength=len(feature["counts"])
    ).tolist()
