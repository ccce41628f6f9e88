"""A real JupyterLab on a free port, and a page of headless Chromium in it."""

import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Browser, Error, Locator, Page, WebSocket, sync_playwright
from support.paths import ROOT, environment

from ddl_magics.dashboard.static import RUN_TYPE

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
START_SECONDS = 60
STOP_SECONDS = 15
PAGE_MS = 60_000
#: Of the panel, instead of two seconds: what tests wait for comes sooner.
POLL_SECONDS = 1
#: The live view, and not the run that is drawn from the store below it.
VIEW = ".ddl-run:not(.ddl-stored *)"

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]


#: The others are closed afterwards: an empty JupyterLab would open its launcher.
_OPEN_ALONE = """async path => {
    const { commands, shell } = window.jupyterapp;
    const before = [...shell.widgets("main")];
    const opened = await commands.execute("docmanager:open", { path, factory: "Notebook" });
    before.filter(widget => widget !== opened).forEach(widget => widget.dispose());
    shell.activateById(opened.id);
}"""


def light(page: Page) -> None:
    """Gives a page the theme that it has at first."""
    change = "() => window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })"
    if page.evaluate("document.body.dataset.jpThemeLight") != "true":
        page.evaluate(change)
        page.wait_for_function("document.body.dataset.jpThemeLight === 'true'")


def lent(page: Page) -> bool:
    """Whether a page shows JupyterLab, so that a test may begin with closing what it has open.

    A page that was reloaded does not count: what it restores late would come in front.
    """
    return "/lab/" in page.url and page.evaluate("performance.getEntriesByType('navigation')[0].type") != "reload"


_HAS_BLOCK = """([type, state]) => window.jupyterapp.shell.currentWidget.content.widgets.some(
    cell => (cell.model.sharedModel.getOutputs?.() ?? []).some(output => output.data?.[type]?.state === state))"""


class Lab:
    """JupyterLab that serves `folder`; its kernels can import ddl_magics and the helpers of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_hex(16)
        self._environment = {
            **environment(),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / ".settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / ".workspaces"),
            "JUPYTER_CONFIG_DIR": str(folder / ".config"),
            "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"),
            "IPYTHONDIR": str(folder / ".ipython"),
        }
        settings = folder / ".settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        ours = folder / ".settings" / "ddl-magics"
        ours.mkdir()
        (ours / "runs.jupyterlab-settings").write_text(json.dumps({"pollSeconds": POLL_SECONDS}))
        self.log = folder / "jupyterlab.log"
        self.start()

    def start(self, port: int = 0) -> None:
        """Starts the server: on the port that it had before, the pages that are open find it again."""
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--allow-root"]
        command += [f"--port={port}", "--ServerApp.port_retries=0"]
        command += [f"--IdentityProvider.token={self.token}", "--LabApp.expose_app_in_browser=True"]
        command += ["--JupyterNotebookApp.expose_app_in_browser=True"]
        command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
        # Should the tests be killed, the server ends by itself.
        command += ["--MappingKernelManager.cull_idle_timeout=600", "--ServerApp.shutdown_no_activity_timeout=900"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.url = self._wait()

    def _wait(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"http://127\.0\.0\.1:\d+/", self.log.read_text(errors="replace"))
            if found:
                return found[0]
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def write(self, name: str, *cells: str) -> str:
        """A notebook of code cells; returns its name. An older one of this name is replaced."""
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.folder / name)
        return name

    def stop(self) -> None:
        """Shuts the kernels down with the server."""
        # One that did not come up has no address.
        with contextlib.suppress(OSError, ValueError):
            request = urllib.request.Request(f"{getattr(self, 'url', '')}api/shutdown", method="POST")
            request.add_header("Authorization", f"token {self.token}")
            urllib.request.urlopen(request, timeout=10).close()
        for end in (lambda: None, self.process.terminate, self.process.kill):
            end()
            # Now and then an idle thread of anyio, which Jupyter Server reads files with, outlives its event loop.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
                return


class Frames:
    """Sizes of what the page receives on its kernel's websocket."""

    def __init__(self, page: Page) -> None:
        self.sizes: list[int] = []
        page.on("websocket", self._opened)

    def _opened(self, socket: WebSocket) -> None:
        if "/channels" in socket.url:
            socket.on("framereceived", lambda data: self.sizes.append(len(data)))


class JupyterPage:
    """A page of the server. errors: the uncaught ones of ours."""

    def __init__(self, lab: Lab, page: Page) -> None:
        self.lab = lab
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", self._failed)
        page.set_default_timeout(PAGE_MS)

    def _failed(self, error: Error) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """Has the next test load JupyterLab, as this one leaves dialogs or lost connections behind."""
        self.page.goto("about:blank")

    def serious(self, selector: str, impacts: Container[str] = ("serious", "critical")) -> list[str]:
        """What axe finds to be serious or worse below `selector`, a line each; or what has one of the impacts."""
        self.page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("selector => axe.run(selector, {resultTypes: ['violations']})", selector)
        return [
            f"{violation['id']}: {violation['help']}: {[node['html'][:200] for node in violation['nodes']]}"
            for violation in found["violations"]
            if violation["impact"] in impacts
        ]


class NotebookPage(JupyterPage):
    """A notebook open in JupyterLab."""

    def __init__(self, lab: Lab, page: Page) -> None:
        super().__init__(lab, page)
        self.frames = Frames(page)

    def _failed(self, error: Error) -> None:
        """An uncaught error of ours; others have some when a notebook with a busy kernel is closed."""
        raised_in = re.search(r"(?:blob:|https?://)\S+", error.stack or "")
        if raised_in is None or raised_in[0].startswith("blob:") or "/extensions/ddl-magics/" in raised_in[0]:
            self.errors.append(f"{error}\n{error.stack}")

    def open(self, name: str, fresh: bool = False) -> None:
        """Opens a notebook and waits for its kernel.

        A page that shows JupyterLab already closes what it has open, as loading it takes ten times as long. With
        `fresh` it is loaded in any case, into a workspace of its own: a reload would bring back what was open before.
        """
        self.frames.sizes.clear()
        if fresh or not lent(self.page):
            self.page.goto(f"{self.lab.url}lab/workspaces/{secrets.token_hex(4)}/tree/{name}?token={self.lab.token}")
        else:
            self.page.evaluate(_OPEN_ALONE, name)
            light(self.page)
        self.ready()

    def ready(self) -> None:
        """Waits until the notebook is there, shown, and its kernel idle.

        The tab of a notebook that is opened while another one closes may stay behind: it is activated again.
        """
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", state="attached")
        self.page.wait_for_function(
            """() => {
                const shell = window.jupyterapp?.shell;
                const panel = shell?.currentWidget;
                if (panel && !panel.isVisible) { shell.activateById(panel.id); return false; }
                const kernel = panel?.sessionContext?.session?.kernel;
                return kernel?.connectionStatus === "connected" && kernel.status === "idle";
            }"""
        )

    def command(self, name: str, **arguments: Any) -> None:
        """Runs a command of JupyterLab, as a click in its menus does."""
        self.page.evaluate(f"window.jupyterapp.commands.execute({json.dumps(name)}, {json.dumps(arguments)})")

    def run_all(self) -> None:
        """Runs all cells, and does not wait for them."""
        self.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def run_cell(self, index: int) -> None:
        """Runs one cell, and does not wait for it."""
        self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-InputPrompt").click()
        self.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")

    def output(self, index: int) -> Locator:
        """The outputs of a cell."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-OutputArea-output")

    def saved_block(self, state: str) -> dict[str, str]:
        """Saves the notebook once it has a block of a run in this state, which is returned as the file has it."""
        self.page.wait_for_function(_HAS_BLOCK, arg=[RUN_TYPE, state])
        name = self.page.evaluate("window.jupyterapp.shell.currentWidget.context.path")
        self.command("docmanager:save")
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            cells = nbformat.read(self.lab.folder / name, 4).cells
            outputs = [output.get("data", {}) for cell in cells for output in cell.outputs]
            blocks = [data for data in outputs if data.get(RUN_TYPE, {}).get("state") == state]
            if blocks:
                return blocks[0]
            time.sleep(0.1)
        raise AssertionError(f"{name} has no block in the state {state} on the disk")

    def reload(self) -> None:
        """Saves and reloads the page."""
        self.command("docmanager:save")
        self.page.reload()
        self.ready()

    def restart(self) -> None:
        """Restarts the kernel, and waits for it."""
        self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self.ready()

    def prompt(self, index: int) -> Locator:
        """What stands left of a cell: [*]: while it runs."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-InputPrompt")

    def shut_down(self) -> None:
        """Ends the notebook's kernel."""
        self.page.evaluate(
            "async () => { await window.jupyterapp?.shell?.currentWidget?.sessionContext?.shutdown?.(); }"
        )

    def drawn(self) -> dict[str, Any]:
        """key -> number of points and last point of each line that the view has."""
        self.page.wait_for_function(f"document.querySelector('{VIEW}')?.model.run")
        return self.view.evaluate(
            """view => Object.fromEntries([...view.model.lines].map(
                ([key, {x, y}]) => [key, {points: x.length, x: x.at(-1), y: y.at(-1)}]))"""
        )

    @property
    def view(self) -> Locator:
        """The live view."""
        return self.page.locator(VIEW)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()
