"""The served models, as the panel lists them."""

from __future__ import annotations

from typing import Any

from ddl_magics.serving.servers import list_served


def servers() -> list[dict[str, Any]]:
    """`ServedModel` of `openapi.yaml` for each."""
    return [served.to_record() for served in list_served()]
