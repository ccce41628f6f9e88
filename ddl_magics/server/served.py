"""The served models, as the panel lists them."""

from __future__ import annotations

from typing import Any

from ddl_magics.serving.servers import Served, list_served


def servers() -> list[dict[str, Any]]:
    """`ServedModel` of `openapi.yaml` for each."""
    return [_row(served) for served in list_served()]


def _row(served: Served) -> dict[str, Any]:
    status = served.status
    latency = status.get("latency") or {}
    return {
        "name": served.name,
        "version": served.version,
        "url": served.url,
        "grpc": served.grpc,
        "alive": served.alive,
        "problem": served.problem,
        "detached": bool(served.settings.get("detached")),
        "log": served.settings.get("log"),
        "rate": float(status.get("rate") or 0),
        "rates": [float(rate) for rate in status.get("rates") or ()],
        "requests": int(status.get("requests") or 0),
        "errors": int(status.get("errors") or 0),
        "recent_errors": int(status.get("recent_errors") or 0),
        "dropped": int(status.get("dropped") or 0),
        "latency": {name: latency.get(name) for name in ("p50", "p95", "p99")},
    }
