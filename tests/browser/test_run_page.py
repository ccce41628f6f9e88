"""The page of a run in a real JupyterLab: its tabs, its logs, what changed since the run before, its replay."""

import re
import time

import pytest
from playwright.sync_api import expect
from server.stored import append, stored

from ddl_magics.runtime import events as ev

from .synthetic import Synthetic

CELL = "model.compile('{}')\nmodel.fit(x, y)\n"


def invented(share=1.0, ago=600, optimizer="adam", workers=2, end=None):
    """A run named digits in the store, and what goes on with it. It lasts 40 seconds."""
    run = Synthetic(workers, epochs=4, steps=100, gpus=0, step_seconds=0.1, start=time.time() - ago)
    told = [*run.begin(), *run.train(share)]
    if end:
        told += run.fail(1) if end == ev.FAILED else run.end()
    fields = {"name": "digits", "created": told[0]["time"], "workers": workers, "cell": CELL.format(optimizer)}
    folder = stored(end or ev.RUNNING, told, **fields)
    if end:
        folder.update({"ended": run.time, "failure": told[-1].get("failure")})
    return folder, run


def opened(panel, index=0):
    """Opens a run named digits, and returns its page."""
    panel.open()
    panel.root.locator(".ddl-row").nth(index).dblclick()
    page = panel.page.locator(".ddl-runpage")
    expect(page.get_by_role("heading", name="digits")).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    return page


def loss(page):
    """What the chart of the loss says of itself; the one of the replay where that is seen."""
    return page.locator(".ddl-canvas[aria-label^='loss']:visible")


def test_the_keyboard_walks_through_all_tabs(panel):
    invented(ago=900, end=ev.FINISHED, workers=4)
    invented(optimizer="sgd", end=ev.FAILED)
    page, keyboard = opened(panel), panel.page.keyboard
    expect(page.locator(".ddl-runpage-state")).to_have_text("FAILED")
    page.get_by_role("button", name="Delete").focus()
    keyboard.press("Tab")
    tabs = page.get_by_role("tablist", name="Parts of the run").get_by_role("tab")
    expect(tabs.nth(0)).to_be_focused()
    shown = {
        "Logs": "epoch 4: loss 0.134",
        "Cell": "model.compile('sgd')",
        "Details": "ValueError: Shapes (None, 10) and (None, 1) are incompatible",
        "Changes": "+model.compile('sgd')",
    }
    for number, (name, words) in enumerate(shown.items(), 1):
        keyboard.press("ArrowRight")
        expect(tabs.nth(number)).to_be_focused()
        expect(tabs.nth(number)).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("tabpanel", name=name)).to_contain_text(words)
    rows = page.locator(".ddl-runpage-table tbody tr")
    expect(rows.filter(has_text="--workers")).to_have_text("--workers42")
    keyboard.press("Home")
    expect(loss(page)).to_be_visible()


def test_logs_of_a_rank_are_searched_and_grow_while_the_run_goes_on(panel):
    folder, run = invented(0.5)
    page = opened(panel)
    page.get_by_role("tab", name="Logs").click()
    lines = page.locator(".ddl-runpage-log > div")
    expect(lines.last).to_contain_text("epoch 2: loss")
    append(folder, [*run.train(0.75), run.log(1, "said by rank 1\n")])
    expect(lines.last).to_contain_text("said by rank 1")
    page.get_by_role("searchbox").fill("EPOCH 3")
    expect(lines).to_have_count(1)
    expect(page.locator("mark")).to_have_text("epoch 3")
    page.get_by_role("searchbox").fill("")
    page.get_by_label("Whose lines are shown", exact=True).select_option("1")
    expect(lines).to_have_count(1)


def test_a_run_that_has_ended_is_played_again(panel):
    invented(end=ev.FINISHED)
    asked = []
    page = opened(panel)
    whole = loss(page).get_attribute("aria-label")
    slider = page.get_by_role("slider", name="Time in the run")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^0:4\d of 0:4\d$"))
    panel.page.on("request", lambda request: asked.append(request.url) if "/view" in request.url else None)
    slider.focus()
    panel.page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^0:00 of"))
    panel.page.keyboard.press("PageUp")
    early = loss(page)
    expect(early).to_have_attribute("aria-label", re.compile(r"now [1-9]\."))
    page.get_by_label("Speed of the replay").select_option("4")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(early).to_have_attribute("aria-label", re.compile(r"now 0\.[1-9]"))
    page.get_by_label("Speed of the replay").select_option("64")
    expect(page.get_by_role("button", name="Replay")).to_be_visible()
    expect(loss(page)).to_have_attribute("aria-label", whole)
    assert asked == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_tab(panel, theme):
    invented(ago=900, end=ev.FINISHED)
    invented(optimizer="sgd", end=ev.FAILED)
    page = opened(panel)
    panel.theme(theme)
    for name in ("Charts", "Logs", "Cell", "Details", "Changes"):
        page.get_by_role("tab", name=name).click()
        expect(page.get_by_role("tabpanel", name=name).get_by_text("Reading")).to_have_count(0)
        assert panel.serious(".ddl-runpage") == [], name
