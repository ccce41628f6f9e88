"""MLServer with one model, on loopback, without the routes that change what is served."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from mlserver import MLServer
from mlserver.settings import ModelParameters, ModelSettings, Settings
from starlette.middleware.trustedhost import TrustedHostMiddleware

from ddl_magics.serving.process.runtime import ExportedModel

LOOPBACK = "127.0.0.1"
#: Accepted Host headers: a site whose name resolves to loopback (DNS rebinding) has another one.
HOSTS = [LOOPBACK, "localhost", "[::1]"]


class Server:
    """MLServer, which sends new requests to one version at a time."""

    def __init__(self, name: str, http_port: int, grpc_port: int) -> None:
        settings = Settings(
            debug=False,
            host=LOOPBACK,
            http_port=http_port,
            grpc_port=grpc_port,
            parallel_workers=0,  # one process, and so one TensorFlow
            metrics_endpoint=None,
            gzip_enabled=False,
            load_models_at_startup=False,
        )
        # Otherwise two servers could listen on the port and share the requests.
        settings._custom_grpc_server_settings = {"grpc.so_reuseport": 0}
        self._name, self._version = name, ""
        self._server = MLServer(settings)
        app = self._server._rest_server._app
        app.router.routes[:] = [
            route for route in app.router.routes if "/repository/" not in getattr(route, "path", "")
        ]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)
        app.add_exception_handler(RequestValidationError, _bad_request)
        self._server._model_repository_handlers.load = _refused
        self._server._model_repository_handlers.unload = _refused

    @property
    def listening(self) -> bool:
        """Whether it accepts requests over HTTP."""
        return bool(getattr(getattr(self._server._rest_server, "_server", None), "started", False))

    async def replace(self, version: str) -> None:
        """Send new requests to a version, whose model is loaded, and then unload its predecessor.

        Nothing awaits between the version's registration and its readiness, so that no request meets it unready.
        """
        parameters = ModelParameters(version=version)
        model = ModelSettings(name=self._name, implementation=ExportedModel, parameters=parameters)
        registry, before = self._server._model_registry, self._version
        await registry.load(model)
        self._version = version
        if before and before != version:
            await registry.unload_version(self._name, before)

    async def serve(self) -> None:
        """Serve until `stop`, or a signal."""
        await self._server.start()

    async def stop(self) -> None:
        """End after the requests in progress."""
        if self.listening:
            await self._server.stop()


async def _bad_request(request: Request, error: RequestValidationError) -> JSONResponse:
    """Status 400 and one line for what is no request of the protocol, where FastAPI answers 422 and a list."""
    await asyncio.sleep(0)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        problem = f"the body is no JSON: {first['ctx']['error']}"
    else:
        problem = ".".join(map(str, first["loc"])) + f": {first['msg']}"
    return JSONResponse({"error": " ".join(problem.split())}, 400)


async def _refused(*arguments: Any) -> Any:
    from mlserver.errors import MLServerError

    await asyncio.sleep(0)
    raise MLServerError("what is served changes by %ddl serve alone", 403)
