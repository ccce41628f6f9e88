"""The Jupyter Server extension: the runs of all kernels over REST, for the panel. `openapi.yaml` says what it answers.

It sees the store alone. Importing it needs no Jupyter Server: the handlers are imported by the server that loads it.
"""

from __future__ import annotations

from typing import Any

from ddl_magics._version import __version__

#: The version is what `jupyter server extension list` shows.
__all__ = ["__version__"]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "ddl_magics.server"}]


def _load_jupyter_server_extension(app: Any) -> None:
    from ddl_magics.server.handlers import install

    install(app.web_app)
