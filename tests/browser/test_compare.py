"""Runs over each other in a real JupyterLab: chosen in the panel, drawn over an axis, followed, deleted."""

import re

import pytest
from playwright.sync_api import expect
from support.stored import append

from browser.invented import invented
from ddl_magics.runtime import events as ev


def compare(panel, *names):
    """Chooses rows of the panel, and compares them; returns the page."""
    for name in names:
        panel.row(name).click(modifiers=["Control"])
    panel.button("Compare").click()
    page = panel.page.locator(".ddl-compare")
    expect(page.locator("canvas").first).to_be_visible()
    return page


def test_two_runs_are_chosen_and_compared_by_keyboard(panel):
    invented("one")
    invented("two", workers=4, optimizer="sgd", steps=50, ago=1200)
    panel.open()
    expect(panel.root.locator(".ddl-row")).to_have_count(2)
    page = compare(panel, "one", "two")
    expect(page.locator(".ddl-legend-name")).to_have_count(2)
    expect(page.locator(".ddl-chart h3")).to_have_text(["loss", "accuracy", "val_loss", "val_accuracy", "samples/s"])
    charts = page.locator(".ddl-chart .ddl-canvas")
    expect(charts.first).to_have_attribute("aria-label", "loss over steps; last values: A 0.134, B 0.134")

    page.get_by_role("radio", name="Steps").focus()
    panel.page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="Time since training began")).to_be_checked()
    expect(charts.first).to_have_attribute("aria-label", "loss over time; last values: A 0.134, B 0.134")
    panel.page.keyboard.press("ArrowRight")
    expect(charts.last).to_have_attribute(
        "aria-label", re.compile(r"samples/s over epochs; last values: A 2,5\d\d, B 2,5")
    )

    panel.page.keyboard.press("ArrowRight")
    expect(charts.first).to_have_attribute("aria-label", "loss over samples; last values: A 0.134, B 0.134")

    first = page.get_by_role("checkbox").first
    first.focus()
    panel.page.keyboard.press("Space")
    expect(charts.first).to_have_attribute("aria-label", "loss over samples; last values: B 0.134")
    panel.page.keyboard.press("Space")
    expect(charts.first).to_have_attribute("aria-label", "loss over samples; last values: A 0.134, B 0.134")

    row = page.locator("tr", has=panel.page.get_by_role("rowheader", name="--workers"))
    expect(row.locator("td")).to_have_text(["4", "2"])  # the older run comes first
    assert sorted(
        page.locator(".ddl-diff [data-change=added], .ddl-diff [data-change=removed]").all_text_contents()
    ) == [
        "+model.compile('adam')",
        "−model.compile('sgd')",
    ]
    equal = page.get_by_role("rowheader", name="cluster")
    expect(equal).to_be_hidden()
    page.get_by_role("button", name="equal rows").press("Enter")
    expect(equal).to_be_visible()


@pytest.mark.slow
def test_a_live_run_is_followed_and_a_deleted_one_stays_as_it_was(panel):
    one, _ = invented("one")
    folder, run = invented("two", 0.5)
    panel.open()
    page = compare(panel, "one", "two")
    state = page.locator(".ddl-legend li", has_text="two").locator(".ddl-chip")
    expect(state).to_have_text("RUNNING")
    append(folder, [*run.train(1.0), *run.end()])
    folder.update({"state": ev.FINISHED, "ended": run.time})
    expect(state).to_have_text("FINISHED")
    expect(page.locator("tr", has=panel.page.get_by_role("rowheader", name="epochs done"))).to_be_hidden()

    one.remove()
    gone = page.locator(".ddl-legend li", has_text="one")
    expect(gone).to_contain_text("It was deleted. Its last known state is shown.")
    expect(page.locator(".ddl-chart")).to_have_count(5)
    expect(page.locator("thead th")).to_have_count(2)


def test_axe_finds_nothing_serious_in_a_comparison(panel):
    invented("one")
    invented("two", 0.5)
    panel.open()
    page = compare(panel, "one", "two")
    page.get_by_role("button", name="equal rows").click()
    assert panel.serious_in_themes(".ddl-compare") == []
