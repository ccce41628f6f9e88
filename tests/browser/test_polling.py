"""What a page asks the server for, and when it asks for nothing."""

import pytest
from playwright.sync_api import expect
from support.fake_cluster import steps, training
from support.stored import append, finished, stored

from ddl_magics.runtime import events as ev

from .lab import POLL_SECONDS

#: Of a list that is seen while something goes on; three times that where nothing does, five times where nobody sees it.
POLL_MS = 1000 * POLL_SECONDS
#: Headless Chromium has no page that is really hidden.
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Asked:
    """What the page has asked our routes for, as "runs?limit=50", and the statuses of the answers about runs."""

    def __init__(self, page):
        self.page = page
        self.paths, self.answers = [], []
        page.on("request", lambda request: self.paths.extend(_ours(request.url)))
        page.on("response", lambda response: self.answers.extend(_statuses(response)))

    def lists(self):
        return [path for path in self.paths if path.startswith("runs?")]

    def views(self, folder):
        return [path for path in self.paths if path.startswith(f"runs/{folder.path.name}/view")]

    def during(self, milliseconds):
        """Forgets what was, and waits."""
        self.paths.clear()
        self.answers.clear()
        self.page.wait_for_timeout(milliseconds)

    def until(self, found):
        """Waits until `found()`."""
        for _ in range(600):
            if found():
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"not asked for in a minute: {self.paths}")


def _ours(url):
    _, ours, path = url.partition("/ddl_magics/")
    return [path] if ours else []


def _statuses(response):
    return [response.status for path in _ours(response.url) if path.startswith("runs")]


@pytest.fixture
def panel(fresh_panel):
    """All that it asks for is counted, from its first question."""
    return fresh_panel


@pytest.fixture
def asked(panel):
    return Asked(panel.page)


def live(name):
    return stored(ev.RUNNING, list(training(3))[:8], name=name)


def open_run(panel, folder):
    panel.command("ddl-magics:open-run", run=folder.path.name)
    expect(panel.page.locator(f"#ddl-magics-run-{folder.path.name} .ddl-canvas").first).to_be_visible()


def test_a_page_that_is_hidden_asks_for_nothing_until_it_is_seen(panel, asked):
    folder = live("digits")
    panel.open()
    expect(panel.row("digits")).to_be_visible()
    open_run(panel, folder)
    asked.during(0)
    asked.until(lambda: len(asked.lists()) > 2)
    panel.page.evaluate(HIDE, True)
    # The question that waits for news is answered; no other follows.
    append(folder, [steps(0, 1, loss=0.25)])
    asked.during(POLL_MS)
    asked.during(4 * POLL_MS)
    assert asked.paths == []
    panel.page.evaluate(HIDE, False)
    asked.until(lambda: asked.lists() and asked.views(folder))
    expect(panel.row("digits")).to_contain_text("loss 0.250")


@pytest.mark.slow
def test_a_tab_behind_another_asks_for_nothing(panel, asked):
    behind, front = live("behind"), live("front")
    panel.open()
    for folder in (behind, front):
        open_run(panel, folder)
    append(behind, [steps(0, 1, loss=0.25)])
    asked.during(POLL_MS)
    asked.during(0)
    for number in range(3):
        for folder in (behind, front):
            append(folder, [steps(0, 1, step=10 * number, loss=0.125)])
        asked.until(lambda seen=number: len(asked.views(front)) > seen)
    assert asked.views(behind) == []
    panel.command("ddl-magics:open-run", run=behind.path.name)
    asked.until(lambda: asked.views(behind))


@pytest.mark.slow
def test_nothing_is_fetched_twice(panel, asked):
    folders = [finished(name=f"run{i}") for i in range(3)]
    panel.open()
    expect(panel.row("run0")).to_be_visible()
    open_run(panel, folders[0])
    asked.until(lambda: len(asked.lists()) > 2)
    first, *later = asked.lists()
    assert "since=" not in first and all("since=" in path for path in later)
    assert len(asked.views(folders[0])) == 1, "a run that is over has nothing new"
    asked.during(0)
    asked.until(lambda: len(asked.answers) > 1)
    assert set(asked.answers) == {204}, "where nothing has changed, nothing is sent"
    stored(ev.RUNNING, training(1), name="another")
    expect(panel.row("another")).to_be_visible()
    assert all("since=" in path for path in asked.lists()) and asked.views(folders[0]) == []
