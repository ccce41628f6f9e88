"""One JupyterLab and one Chromium for all browser tests; each test has a page of its own."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from ddl_magics import store

from .lab import CHROMIUM, Lab, NotebookPage, chromium
from .panel_page import PanelPage

#: For what a test waits; the machine may be busy.
expect.set_options(timeout=30_000)


def pytest_collection_modifyitems(items):
    """Every test here drives a browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A running JupyterLab."""
    if not Path(CHROMIUM).exists():
        pytest.fail(f"{CHROMIUM} is missing: apt-get install chromium, or set CHROMIUM")
    server = Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def panel_lab(tmp_path_factory):
    """A JupyterLab with a store of its own, for the tests of one file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(tmp_path_factory.mktemp("panel-data")))
        server = Lab(tmp_path_factory.mktemp("panel-lab"))
        yield server
        server.stop()


@pytest.fixture
def panel_context(panel_lab, browser):
    """A browser's context with an empty store, which it leaves as it was: without runs."""
    made = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    yield made
    made.close()
    for record in store.list_runs():
        store.RunFolder(record.folder).remove()


@pytest.fixture
def panel(panel_lab, panel_context):
    """A page with the panel; an uncaught error in it fails the test."""
    page = PanelPage(panel_lab, panel_context.new_page())
    yield page
    assert page.errors == []


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium. While it is there, no other event loop can run in this thread: not for the whole session."""
    with chromium() as launched:
        yield launched


@pytest.fixture
def notebook(lab, browser):
    """A fresh page for one notebook; an uncaught error in the page fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    made = NotebookPage(lab, context.new_page())
    yield made
    errors = list(made.errors)
    made.shut_down()
    context.close()
    assert not errors
