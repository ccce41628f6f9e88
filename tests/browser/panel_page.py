"""The panel of runs in a page, in JupyterLab or Notebook 7."""

import re
import secrets
from collections.abc import Container
from typing import Any

from playwright.sync_api import Error, Locator, expect

from ddl_magics import store

from .lab import JupyterPage, lent, light

_CLOSE_ALL = """async () => {
    const { commands, shell } = window.jupyterapp;
    [...shell.widgets("main")].forEach(widget => widget.dispose());
    await commands.execute("apputils:dismiss-notification", {});
}"""


#: No row of an earlier test is left.
_LISTED = """ids => {
    const rows = [...document.querySelectorAll(".ddl-panel .ddl-row")].map(row => row.id);
    return rows.length === ids.length && ids.every(id => rows.includes(id));
}"""


class PanelPage(JupyterPage):
    """A page with the panel open."""

    def open(self, path: str | None = None, fresh: bool = False) -> None:
        """Opens JupyterLab, or a path of the server, and shows the panel as it is at first.

        A page that shows JupyterLab already closes what it has open, as loading it takes ten times as long. With
        `fresh` it is loaded in any case, into a workspace of its own.
        """
        if fresh or path or not lent(self.page):
            self.page.goto(f"{self.lab.url}{path or 'lab/workspaces/' + secrets.token_hex(4)}?token={self.lab.token}")
            self.ready()
            self._show(empty=not path)
        else:
            self._begin_again()

    def _begin_again(self) -> None:
        self.page.evaluate(_CLOSE_ALL)
        light(self.page)
        self._show(empty=True)
        self.root.get_by_role("searchbox").fill("")
        self.root.get_by_label("Running only").uncheck()
        self.button("Refresh").click()
        searches = {record.id for record in store.list_searches()}
        runs = {record.id for record in store.list_runs() if record.spec.get("parent") not in searches}
        self.page.wait_for_function(_LISTED, arg=[f"ddl-row-{each}" for each in searches | runs])

    def _show(self, empty: bool) -> None:
        """Shows the panel; in an `empty` JupyterLab after its launcher, which takes the focus when it appears."""
        if empty:
            expect(self.page.locator(".jp-Launcher")).to_be_visible()
        self.command("ddl-magics:show-panel")
        expect(self.root).to_be_visible()

    def ready(self) -> None:
        """Waits until Jupyter has started with our commands."""
        self.page.wait_for_function("window.jupyterapp?.commands.hasCommand('ddl-magics:show-panel')")
        self.page.evaluate("window.jupyterapp.restored")

    def command(self, name: str, **arguments: Any) -> None:
        """Runs a command of JupyterLab, and does not wait for it: it may ask the reader."""
        self.page.evaluate("([name, args]) => void window.jupyterapp.commands.execute(name, args)", [name, arguments])

    def row(self, name: str) -> Locator:
        """The row of the run of this name or title."""
        return self.root.locator(".ddl-row", has=self.page.locator(".ddl-row-name", has_text=re.compile(f"^{name}$")))

    def state(self, name: str) -> Locator:
        """What its row says of a run's state."""
        return self.row(name).locator(".ddl-row-state")

    def button(self, name: str) -> Locator:
        """A button of the panel's toolbar."""
        return self.root.locator(".jp-Toolbar").get_by_role("button", name=re.compile(name))

    def menu(self, name: str, entry: str) -> None:
        """Chooses an entry of the menu of a run's row."""
        self.row(name).click(button="right")
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}$")).click()

    def answer(self, button: str, text: str | None = None) -> None:
        """Answers the question that Jupyter asks."""
        dialog = self.page.locator(".jp-Dialog")
        if text is not None:
            dialog.locator("input").fill(text)
        dialog.get_by_role("button", name=button).click()
        expect(dialog).to_have_count(0)

    def theme(self, name: str) -> None:
        """Changes Jupyter's theme: light or dark."""
        self.command("apputils:change-theme", theme=f"JupyterLab {name.title()}")
        dark = "true" if name == "dark" else "false"
        self.page.wait_for_function(f"document.body.dataset.jpThemeLight !== '{dark}'")

    def serious(self, selector: str = ".ddl-panel", impacts: Container[str] = ("serious", "critical")) -> list[str]:
        return super().serious(selector, impacts)

    def serious_in_themes(self, *selectors: str) -> list[str]:
        """The same in the dark theme, then in the light one, which stays."""
        lines = []
        for theme in ("dark", "light"):
            self.theme(theme)
            lines += [f"{theme}: {line}" for selector in selectors for line in self.serious(selector)]
        return lines

    def _failed(self, error: Error) -> None:
        """An uncaught error; Notebook 7.6 has one of its own at each start, of its shortcuts."""
        if "/extensions/ddl-magics/" in (error.stack or ""):
            self.errors.append(error.stack or "")

    @property
    def root(self) -> Locator:
        """The panel."""
        return self.page.locator(".ddl-panel")
