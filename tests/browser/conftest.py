"""One JupyterLab and one Chromium for all browser tests, and pages that are loaded once."""

import contextlib
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Error, expect

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


@pytest.fixture(scope="package")
def lab(tmp_path_factory):
    """A running JupyterLab with a store of its own, which is this folder's tests' as well."""
    if not Path(CHROMIUM).exists():
        pytest.fail(f"{CHROMIUM} is missing: apt-get install chromium, or set CHROMIUM")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(tmp_path_factory.mktemp("lab-data")))
        server = Lab(tmp_path_factory.mktemp("lab"))
        yield server
        server.stop()


@pytest.fixture(scope="package")
def browser():
    """A headless Chromium. While it is there, no other event loop can run in this thread: not for the whole session."""
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="package")
def context(browser):
    """The browser's context of the pages that tests share."""
    made = browser.new_context(viewport={"width": 1280, "height": 1000}, accept_downloads=True)
    yield made
    made.close()


class Shared:
    """A page that one test after the other has; there is another one after a test that failed."""

    def __init__(self, make):
        self._make, self._made = make, None

    def renew(self):
        """Has the next test another page."""
        if self._made is not None:
            with contextlib.suppress(Error):  # the browser has ended after the last test
                self._made.page.close()
            self._made = None

    @contextlib.contextmanager
    def lend(self, session):
        """The page, during a test of the session. An uncaught error in it fails the test."""
        if self._made is None:
            self._made = self._make()
        failed = session.testsfailed
        self._made.page.bring_to_front()  # behind another page, Chromium draws nothing
        yield self._made
        errors, self._made.errors = self._made.errors, []
        if errors or session.testsfailed > failed:
            self.renew()
        assert not errors


@pytest.fixture(scope="package")
def shared_panel(lab, context):
    return Shared(lambda: PanelPage(lab, context.new_page()))


@pytest.fixture(scope="package")
def shared_notebook(lab, context):
    return Shared(lambda: NotebookPage(lab, context.new_page()))


@pytest.fixture
def empty_store(lab):
    """The store is without runs and searches before the test, and behind it."""
    yield
    for record in store.list_runs():
        store.RunFolder(record.folder).remove()
    for search in store.list_searches():
        shutil.rmtree(search.folder)


@pytest.fixture
def panel(request, shared_panel, empty_store):
    """A page with the panel."""
    with shared_panel.lend(request.session) as page:
        yield page


@pytest.fixture
def fresh_panel(request, lab, context, empty_store):
    """A page with the panel that is this test's alone."""
    with Shared(lambda: PanelPage(lab, context.new_page())).lend(request.session) as page:
        yield page
        page.page.close()


@pytest.fixture
def notebook(request, shared_notebook, empty_store):
    """A page for a notebook, whose kernel ends with the test."""
    with shared_notebook.lend(request.session) as page:
        yield page
        page.shut_down()
