"""The events of an invented monitor: an input and the output that have moved, one that has not, latency and errors."""

import math

from ddl_magics.runtime import events as ev

BEGIN = 1_763_000_000.0


def shares(middle, spread, bins=10):
    found = [math.exp(-(((k - middle) / spread) ** 2) / 2) for k in range(bins)]
    return [round(2000 * share / sum(found)) for share in found]


def thing(name, psi, level, now, output=False, **fields):
    before = shares(4.5, 2.5)
    known = psi or 0.0
    about = {"ks": known / 1.2, "chi2": 900 * known, "p": math.exp(-900 * known), "threshold": 0.1, "nulls": 0.0}
    found = {"name": name, "output": output, "psi": psi, "level": level, "before": before, "now": now, **about}
    return {**found, "since": BEGIN + 3600 if level != "none" else None, "edges": list(range(9)), **fields}


def watch(advice=True):
    points = 60
    wave = [math.sin(k / 6) for k in range(points)]
    return ev.make(
        "watch",
        ev.JOB,
        model="energy",
        log="/srv/requests/energy",
        window=60.0,
        rows=5_120,
        wanted=5000,
        totals={"rows": 48_200, "requests": 48_200, "errors": 3, "double": 12, "late": 1, "unreadable": 0},
        lines={
            "time": [BEGIN + 60 * k for k in range(points)],
            "rate": [48 + 6 * value for value in wave],
            "errors": [0] * points,
            "p50": [0.0061 + 0.0004 * value for value in wave],
            "p95": [0.0098 + 0.0008 * value for value in wave],
            "p99": [0.014 + 0.002 * value for value in wave],
        },
        things=[
            thing("temperature", 0.41, "severe", shares(7.5, 2.0)),
            thing("output", 0.19, "drift", shares(6.0, 2.4), output=True),
            thing("load, 24 h before", 0.12, "drift", shares(5.6, 2.6)),
            thing("hour", 0.01, "none", shares(4.6, 2.5)),
            thing("<b>holiday</b>", None, "none", [0] * 10, ks=None, threshold=None),
        ],
        hidden=20,
        bounds={"drift": 0.1, "severe": 0.25},
        error={
            "name": "MAPE, %",
            "mean": 4.9,
            "before": 3.4,
            "spread": 2.0,
            "rows": 5_000,
            "time": [BEGIN + 60 * k for k in range(points)],
            "values": [3.4 + max(0, k - 35) * 0.06 for k in range(points)],
        },
        advice={
            "reasons": [
                "temperature has drifted from the training data (PSI 0.41, limit 0.25)",
                "the error rose from 3.4 to 4.9 (MAPE, %)",
            ],
            "cell": "%%distributed --name energy --data load --label demand\nmodel.fit(dataset)",
        }
        if advice
        else None,
    )


def events():
    """All of a monitor that runs."""
    return [
        ev.make("state", ev.JOB, state="PREFLIGHT", message="opening the checkpoint"),
        ev.make("state", ev.JOB, state="RUNNING", message="watching /srv/requests/energy"),
        watch(advice=False),
        watch(),
        ev.make("notice", ev.JOB, level="warning", message="temperature has moved: PSI 0.41 over 0.10, in 5,120 rows"),
    ]
