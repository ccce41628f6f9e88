"""The served models in the panel of a real JupyterLab: live counts, the keyboard, a stop, one that was killed."""

import pytest
from playwright.sync_api import expect
from support.invented_server import InventedServer


@pytest.fixture
def invented(lab):
    servers = []

    def make(*arguments, **options):
        servers.append(InventedServer(*arguments, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.end()


def test_served_models_are_shown_live_and_stopped_with_the_keyboard(panel, invented):
    panel.open()
    section = panel.root.locator(".ddl-servers")
    expect(section).to_be_hidden()
    server = invented("digits", "1")
    invented("energy", "4").kill()
    expect(section.locator(".ddl-server-name")).to_have_text(["digits", "energy"])
    digits = section.locator("[data-server=digits]")
    server.count(48.2, 120, 2, "2", (0.0012, 0.0034, 0.0081), [40, 52, 48])
    expect(digits).to_contain_text("version 2")
    expect(digits).to_contain_text("48.2 requests/s")
    expect(digits).to_contain_text("p50 1.20 · p95 3.40 · p99 8.10 ms")
    expect(digits).to_contain_text("2 errors")
    expect(section.locator("[data-server=energy]")).to_contain_text("its process was killed")
    assert panel.serious_in_themes(".ddl-panel") == []

    stop = panel.root.get_by_role("button", name="Stop serving digits")
    panel.root.get_by_role("button", name="Remove energy").focus()
    panel.page.keyboard.press("Enter")
    expect(section.locator(".ddl-server-name")).to_have_text(["digits"])
    panel.page.keyboard.press("Tab")
    stop.focus()
    panel.page.keyboard.press("Space")
    panel.answer("Cancel")
    assert server.process.poll() is None
    stop.focus()
    panel.page.keyboard.press("Enter")
    panel.answer("Stop")
    expect(section).to_be_hidden()
    assert server.process.wait(10) == 0
