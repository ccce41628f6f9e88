"""The page of a run in a real JupyterLab: its tabs, its logs, what changed since the run before, its replay."""

import re

import pytest
from playwright.sync_api import expect
from support.monitored import events as events_of_a_monitor
from support.stored import stored

from browser.invented import invented
from ddl_magics.runtime import events as ev


def opened(panel, index=0, path=None):
    """Opens a run named digits, and returns its page."""
    panel.open(path)
    panel.root.locator(".ddl-row").nth(index).dblclick()
    page = panel.page.locator(".ddl-runpage")
    expect(page.get_by_role("heading", name="digits")).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    return page


def loss(page):
    """What the chart of the loss says of itself; the one of the replay where that is seen."""
    return page.locator(".ddl-canvas[aria-label^='loss']:visible")


def slower(page):
    """The times of the workers that hold the others back, in their table."""
    return page.get_by_role("table", name="workers").locator("td[data-verdict]")


def outlined(page):
    """Whether it is seen where the keyboard is, as far as it is in what is ours."""
    return page.evaluate(
        """() => {
            const focused = document.activeElement;
            const ours = ":is(.ddl-panel-body, .ddl-runpage, .ddl-compare) *";
            if (!focused.matches(ours)) return true;
            const drawn = focused.matches(".ddl-list") ? focused.querySelector("[data-active]") : focused;
            const { outlineStyle, outlineWidth } = getComputedStyle(drawn);
            return outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
        }"""
    )


def go(page, key, target):
    """Presses a key until the keyboard is in an element, and sees on the way where it is."""
    for _ in range(25):
        if target.evaluate("element => element.contains(document.activeElement)"):
            return
        page.keyboard.press(key)
        assert outlined(page), page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
    raise AssertionError(f"{key} does not lead to {target}")


def listed(panel):
    """Two runs, and the keyboard in the list of them; returns the list."""
    invented(ago=900, workers=4)
    invented()
    panel.open()
    expect(panel.root.locator(".ddl-row")).to_have_count(2)
    rows = panel.root.get_by_role("tree")
    panel.root.get_by_role("searchbox").focus()
    go(panel.page, "Tab", rows)
    panel.page.keyboard.press("Home")
    return rows


@pytest.mark.timeout(300)
def test_the_keyboard_alone_goes_from_the_list_to_a_run_its_tabs_a_replay_and_back(panel):
    rows, keyboard = listed(panel), panel.page.keyboard
    keyboard.press("Enter")
    page = panel.page.locator(".ddl-runpage")
    expect(page.locator("canvas").first).to_be_visible()
    go(panel.page, "Tab", page.get_by_role("tab", name="Charts"))
    keyboard.press("ArrowRight")
    expect(page.get_by_role("tabpanel", name="Logs")).to_contain_text("epoch 4: loss 0.134")
    keyboard.press("ArrowLeft")
    slider = page.get_by_role("slider", name="Time in the run")
    go(panel.page, "Tab", slider)
    keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^0:00 of"))
    keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    keyboard.press("Space")
    expect(page.get_by_role("button", name="Replay")).to_be_visible()
    go(panel.page, "Shift+Tab", rows)


@pytest.mark.timeout(300)
def test_the_keyboard_alone_goes_from_the_list_to_a_comparison_and_back(panel):
    rows, keyboard = listed(panel), panel.page.keyboard
    keyboard.press("Shift+ArrowDown")
    expect(panel.root.locator(".ddl-row[aria-selected=true]")).to_have_count(2)
    toolbar = panel.root.locator(".jp-Toolbar").first
    compare = toolbar.locator("[data-command='ddl-magics:compare-runs']")
    expect(compare).to_have_attribute("aria-disabled", "false")  # the keyboard passes over what is disabled
    go(panel.page, "Shift+Tab", toolbar)
    for _ in range(8):  # to its first button, from the one where the keyboard has been last
        keyboard.press("ArrowLeft")
    go(panel.page, "ArrowRight", compare)
    keyboard.press("Enter")
    compared = panel.page.locator(".ddl-compare")
    expect(compared.locator("canvas").first).to_be_visible()
    go(panel.page, "Tab", compared.get_by_role("checkbox").first)
    keyboard.press("Space")
    expect(compared.get_by_role("checkbox").first).not_to_be_checked()
    go(panel.page, "Shift+Tab", rows)


@pytest.mark.parametrize("path", ["tree", "notebooks/beside.ipynb"])
def test_notebook_7_has_the_panel_and_the_tab_with_all_its_parts(lab, panel, path):
    lab.write("beside.ipynb", "1")
    invented(ago=900)
    invented(optimizer="sgd")
    page = opened(panel, path=path)
    expect(page.locator("canvas").first).to_be_in_viewport()
    label, icon = (
        panel.page.locator(f".lm-TabBar-tab:has-text('digits') .lm-TabBar-tab{part}") for part in ("Label", "Icon svg")
    )
    middles = [box["y"] + box["height"] / 2 for box in (label.bounding_box(), icon.bounding_box())]
    assert abs(middles[0] - middles[1]) < 3, "icon and name of the tab are on a line"
    shown = {
        "Logs": "epoch 4: loss",
        "Cell": "model.compile('sgd')",
        "Files": 'digits.fetch("best.keras") brings it here',
        "Details": "--workers",
        "Changes": "+model.compile('sgd')",
    }
    for name, words in shown.items():
        page.get_by_role("tab", name=name).click()
        expect(page.get_by_role("tabpanel", name=name).get_by_text(words, exact=False).first).to_be_in_viewport()
    page.get_by_role("tab", name="Charts").click()
    page.get_by_role("slider", name="Time in the run").focus()
    panel.page.keyboard.press("Home")
    expect(page.locator(".ddl-times")).to_have_text(re.compile("elapsed$"))
    assert panel.serious() == panel.serious(".ddl-runpage") == []


def test_a_run_that_has_ended_is_played_again_with_its_table_and_lines(panel):
    invented(slow={1: 2.0})
    asked = []
    page = opened(panel)
    lines, workers = page.get_by_role("tabpanel", name="printed by all ranks"), slower(page)
    expect(workers).to_have_text([re.compile(r" · (1\.9|2\.0)× slower$")])
    expect(lines).to_contain_text("epoch 4: loss")
    whole = loss(page).get_attribute("aria-label")
    slider = page.get_by_role("slider", name="Time in the run")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^0:5\d of 0:5\d$"))
    panel.page.on("request", lambda request: asked.append(request.url) if "/view" in request.url else None)
    slider.focus()
    panel.page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^0:00 of"))
    panel.page.keyboard.press("PageUp")
    early = loss(page)
    expect(early).to_have_attribute("aria-label", re.compile(r"now [1-9]\."))
    expect(workers).to_have_count(0)
    expect(lines).not_to_contain_text("epoch 3: loss")
    page.get_by_label("Speed of the replay").select_option("4")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(early).to_have_attribute("aria-label", re.compile(r"now 0\.[1-9]"))
    page.get_by_label("Speed of the replay").select_option("64")
    expect(page.get_by_role("button", name="Replay")).to_be_visible()
    expect(loss(page)).to_have_attribute("aria-label", whole)
    expect(workers).to_have_text([re.compile("slower$")])
    expect(lines).to_contain_text("epoch 4: loss")
    assert asked == []


def test_axe_finds_nothing_serious_in_any_tab(panel):
    invented(ago=900)
    invented(optimizer="sgd", failed=True)
    page = opened(panel)
    for name in ("Charts", "Logs", "Cell", "Files", "Details", "Changes"):
        page.get_by_role("tab", name=name).click()
        expect(page.get_by_role("tabpanel", name=name).get_by_text("Loading")).to_have_count(0)
        assert panel.serious_in_themes(".ddl-runpage") == [], name
        assert panel.serious(".ddl-runpage", ("minor", "moderate")) == [], name  # such as the order of headings
    page.get_by_role("tab", name="Charts").click()
    page.get_by_role("slider", name="Time in the run").focus()
    panel.page.keyboard.press("PageDown")
    expect(page.locator(".ddl-times")).to_have_text(re.compile("elapsed$"))
    assert panel.serious_in_themes(".ddl-runpage") == [], "replay"


def test_the_tab_of_a_monitor_says_when_to_train_again(panel):
    stored(ev.RUNNING, events_of_a_monitor(), name="watch", strategy="monitor", workers=0, monitor={})
    panel.open()
    panel.row("watch").dblclick()
    page = panel.page.locator(".ddl-runpage")
    expect(page.locator(".ddl-monitor-advice").get_by_text("TRAIN AGAIN")).to_be_visible()
    expect(page.get_by_role("tab", name="Output")).to_have_count(1)
    expect(page.locator(".ddl-head .ddl-chip")).to_be_hidden()
