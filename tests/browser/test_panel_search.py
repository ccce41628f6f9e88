"""Searches in the panel: the row that unfolds into trials, and the tab, in a real JupyterLab with invented trials."""

import pytest
from playwright.sync_api import expect
from support.invented_search import StoredSearch
from support.stored import finished, kill_owner
from support.until import until

from ddl_magics.runtime import events as ev

#: A tab of a thousand trials is drawn within this time, and sorted.
OPEN_MS, SORT_MS = 2500, 500

SORT = """button => { const from = performance.now(); button.click();
    return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
        done(performance.now() - from)))); }"""


def tab(panel):
    return panel.page.locator(".ddl-search")


def opened(panel, search):
    """The tab of a search, by a double click on its row."""
    panel.open()
    panel.row("tuned").dblclick()
    expect(tab(panel).locator("tbody tr").first).to_be_visible()
    return tab(panel)


def test_a_search_is_one_row_that_unfolds_into_its_trials(panel):
    search = StoredSearch(3, training=1)
    finished(name="other")
    panel.open()
    expect(panel.root.locator(".ddl-row-name")).to_have_text(["tuned", "other"])
    expect(panel.row("tuned")).to_contain_text("3 of 40 trials")
    expect(panel.row("tuned")).to_contain_text("val_accuracy 0.9")
    expect(panel.page.locator(".ddl-status-item")).to_contain_text("tuned: 3 of 40 trials")
    panel.row("tuned").locator(".ddl-row-fold").click()
    expect(panel.root.locator(".ddl-row")).to_have_count(6)
    expect(panel.row("tuned_0")).to_contain_text("lr 0.0")
    expect(panel.state("tuned_1")).to_have_text("PRUNED")
    expect(panel.row("tuned_1")).to_contain_text("pruned after epoch 3")
    search.show(4)
    expect(panel.row("tuned")).to_contain_text("4 of 40 trials")
    panel.row("tuned_0").click()
    panel.row("tuned_2").click(modifiers=["Shift"])
    panel.button("Compare").click()
    expect(panel.page.locator(".ddl-compare")).to_be_visible()


def test_the_keyboard_unfolds_opens_and_stops(panel):
    search = StoredSearch(2, training=1)
    panel.open()
    panel.root.get_by_role("tree").focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        panel.page.keyboard.press(key)
    expect(panel.row("tuned_2")).to_have_attribute("aria-selected", "true")
    for key in ("ArrowLeft", "ArrowLeft"):
        panel.page.keyboard.press(key)
    expect(panel.root.locator(".ddl-row")).to_have_count(1)
    panel.page.keyboard.press("Enter")
    expect(tab(panel).locator("tbody tr")).to_have_count(3)
    tab(panel).get_by_role("button", name="stop trial 2").focus()
    panel.page.keyboard.press("Enter")
    panel.answer("Cancel")
    expect(tab(panel).get_by_role("button", name="stop trial 2")).to_be_focused()
    panel.page.keyboard.press("Enter")
    panel.answer("Stop")
    expect(tab(panel).get_by_role("button", name="stop trial 2")).to_be_disabled()
    until(lambda: search.run(2).requested("stop"))
    assert not search.folder.requested("stop")
    tab(panel).get_by_role("button", name="Stop", exact=True).focus()
    panel.page.keyboard.press("Enter")
    panel.answer("Stop")
    expect(tab(panel).locator(".ddl-stop")).to_have_text("Stopping…")
    until(lambda: search.folder.requested("stop"))


def test_the_tab_follows_the_search_and_opens_and_compares_its_trials(panel):
    search = StoredSearch(5, training=1)
    view = opened(panel, search)
    expect(view.locator(".ddl-title")).to_contain_text("5 of 40 trials")
    search.show(7, training=1)
    expect(view.locator("tbody tr")).to_have_count(8)
    view.get_by_label("compare trial 0").check()
    view.get_by_label("compare trial 2").check()
    view.get_by_role("button", name="Compare 2 trials").click()
    expect(panel.page.locator(".ddl-compare")).to_contain_text("tuned_2")
    panel.command("ddl-magics:open-search", search=search.id)
    view.get_by_role("button", name="open trial 2").click()
    expect(panel.page.locator(".ddl-runpage h1")).to_have_text("tuned_2")
    panel.command("ddl-magics:open-search", search=search.id)
    search.show(8, state=ev.FINISHED)
    expect(view.locator(".ddl-chip")).to_have_text("FINISHED")
    expect(panel.page.get_by_role("alert").filter(has_text="tuned: FINISHED")).to_be_visible()


def test_a_search_whose_kernel_is_gone_is_said_and_deleted_with_its_trials(panel):
    search = StoredSearch(2)
    finished(name="other")
    view = opened(panel, search)
    kill_owner(search.folder)
    expect(view.locator(".ddl-message")).to_contain_text("%ddl attach tuned continues it")
    expect(panel.state("tuned")).to_have_text("LOST")
    panel.menu("tuned", "Delete Run…")
    panel.answer("Delete")
    expect(panel.root.locator(".ddl-row-name")).to_have_text(["other"])
    expect(panel.page.locator(".ddl-banner", has_text="This search was deleted")).to_be_visible()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_thousand_trials_stay_fluent_a_reload_restores_them_and_axe_finds_nothing_serious(panel):
    search = StoredSearch(1000, planned=1003, runs=20)
    panel.open(fresh=True)
    panel.row("tuned").locator(".ddl-row-fold").click()
    panel.row("tuned").dblclick()
    expect(tab(panel).locator(".ddl-title")).to_contain_text("1000 of 1003 trials", timeout=OPEN_MS)
    assert tab(panel).locator(".ddl-sort").nth(3).evaluate(SORT) < SORT_MS
    assert panel.serious_in_themes(".ddl-search", ".ddl-panel") == []
    with panel.page.expect_response(lambda answer: "/api/workspaces" in answer.url and answer.request.method == "PUT"):
        panel.command("application:toggle-side-tabbar", side="right")
    panel.page.reload()
    panel.ready()
    search.show(1001, 2)
    expect(tab(panel).locator(".ddl-title")).to_contain_text("1001 of 1003 trials")
