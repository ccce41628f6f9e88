"""One JupyterLab and one Chromium for all browser tests; each test has a page of its own."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from .lab import CHROMIUM, Lab, NotebookPage, chromium

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
