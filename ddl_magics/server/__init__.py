"""The Jupyter Server extension: the stored runs over REST, for the panel. `openapi.yaml` describes the routes.

It reads the store and nothing else. Importing it does not need Jupyter Server: the handlers are imported only by a
server that loads the extension.
"""

from __future__ import annotations

from typing import Any

from ddl_magics._version import __version__

#: `jupyter server extension list` shows the version.
__all__ = ["__version__"]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "ddl_magics.server"}]


def _load_jupyter_server_extension(app: Any) -> None:
    from ddl_magics.server.handlers import install

    install(app.web_app)
