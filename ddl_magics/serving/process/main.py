"""The process of a served model: MLServer on loopback, with a folder through which this machine's user steers it.

    python main.py FOLDER

`FOLDER/settings.json` says what to serve. The process writes `state.json`, `signature.json` with the model's inputs and
outputs, `status.json` each second, and `ended` when it exits normally. A file `control/load.json` makes it load another
version, which takes over when it is ready; `control/stop` ends it. No port can change what is served, as any user of
the machine can connect to them.

It runs in MLServer's environment, which lacks this package's dependencies, and imports only modules without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

CONTROL_SECONDS = 0.1
STATUS_SECONDS = 1.0


def main(folder: Path) -> None:
    """Serve until a signal, a request to stop, or the end of the parent process."""
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    if settings["detached"] and os.fork():
        os._exit(0)
    if settings["detached"]:
        os.setsid()
    # Importing the package itself would need the notebook's environment.
    package = types.ModuleType("ddl_magics")
    package.__path__ = [str(Path(__file__).resolve().parents[2])]
    sys.modules["ddl_magics"] = package
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    asyncio.run(_Process(folder, settings).run())


class _Process:
    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder, self._settings = folder, settings
        self._served: str | None = None
        self._problem: str | None = None
        self._parent_ended = threading.Event()
        # None where a program stands between: only the pipe tells then.
        self._parent = os.getppid() if settings.get("parent") == os.getppid() else None

    async def run(self) -> None:
        _write(self._folder / "state.json", {"pid": os.getpid(), "listening": False})
        from ddl_magics.serving.process import server
        from ddl_magics.serving.process.runtime import CONTEXT
        from ddl_magics.serving.request_log import open_log

        settings = self._settings
        self._context = CONTEXT
        if settings["log"] is not None:
            CONTEXT.log, CONTEXT.log_inputs = open_log(settings["log"]), settings["log_inputs"]
            CONTEXT.sample = settings["log_sample"]
        if not settings["detached"]:
            threading.Thread(target=self._watch_parent, name="parent", daemon=True).start()
        self._server = server.Server(settings["name"], settings["http_port"], settings["grpc_port"])
        await self._load(settings["version"], Path(settings["model"]))
        serving = asyncio.create_task(self._server.serve())
        steering = asyncio.create_task(self._steer())
        finished, _ = await asyncio.wait({serving, steering}, return_when=asyncio.FIRST_COMPLETED)
        await self._server.stop()
        if serving not in finished:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(serving, 10)
        steering.cancel()
        if CONTEXT.log is not None:
            CONTEXT.log.close()
        self._write_status()
        serving.result()
        with contextlib.suppress(OSError):  # the process that stops this one removes the folder
            (self._folder / "ended").touch()

    async def _load(self, version: str, model: Path, claim: Path | None = None) -> None:
        """Load a version, and serve it. claim: a file of who asks for it, who withdraws the request by removing it."""
        from ddl_magics.serving.process.loading import Model

        # In a thread, so that the present version continues to answer.
        loaded = self._context.loaded[version] = await asyncio.to_thread(Model.load, model)
        if claim is not None:
            claim.unlink()  # of the two sides, one alone can
        await self._server.replace(version)
        self._served = version
        inputs, outputs = ([[t.name, t.dtype, t.shape] for t in tensors] for tensors in (loaded.inputs, loaded.outputs))
        _write(self._folder / "signature.json", {"inputs": inputs, "outputs": outputs})

    async def _steer(self) -> None:
        """Execute the requests in `control`; returns when the process must end."""
        control, written, announced = self._folder / "control", 0.0, False
        while not (control / "stop").exists() and not self._has_lost_parent():
            if not announced and self._server.listening:
                _write(self._folder / "state.json", {"pid": os.getpid(), "listening": True})
                announced = True
            with contextlib.suppress(FileNotFoundError):
                load_request = json.loads((control / "load.json").read_text(encoding="utf-8"))
                (control / "load.json").unlink()
                asyncio.create_task(self._change(load_request))  # noqa: RUF006 - it answers by a file
            if time.monotonic() - written >= STATUS_SECONDS:
                self._write_status()
                written = time.monotonic()
            await asyncio.sleep(CONTROL_SECONDS)

    async def _change(self, load_request: dict[str, str]) -> None:
        claim = load_request.get("claim")
        answer: dict[str, Any] = {"version": load_request["version"], "claim": claim, "problem": None}
        try:
            claim_file = self._folder / "control" / claim if claim else None
            await self._load(load_request["version"], Path(load_request["model"]), claim_file)
        except Exception as error:  # of Keras and TensorFlow, of many kinds
            lines = (line.strip() for line in str(error).splitlines() if line.strip())
            answer["problem"] = next(lines, type(error).__name__)
            self._context.loaded.pop(load_request["version"], None)
        self._write_status()
        _write(self._folder / "control" / f"loaded-{load_request['version']}.json", answer)

    def _write_status(self) -> None:
        log = self._context.log
        status = {
            "time": time.time(),
            "version": self._served,
            **self._context.statistics.to_json(),
            "dropped": 0 if log is None else log.dropped,
        }
        with contextlib.suppress(OSError):  # a full disk is no reason to end
            _write(self._folder / "status.json", status)

    def _has_lost_parent(self) -> bool:
        """Whether the parent process has ended. The pipe does not close while a process that it has forked holds it."""
        return self._parent_ended.is_set() or self._parent not in (None, os.getppid())

    def _watch_parent(self) -> None:
        """Standard input is a pipe from the parent process: it closes when that ends."""
        while os.read(0, 1024):
            pass
        self._parent_ended.set()


def _write(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
