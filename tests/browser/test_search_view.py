"""The live view of a search in a real JupyterLab, with invented trials: what is drawn, chosen, sorted and asked for."""

import pytest
from playwright.sync_api import expect

#: A thousand trials are drawn within this time, and the next change of one of them.
OPEN_MS, UPDATE_MS = 2500, 500

SHOW = """\
from IPython.display import display
from ddl_magics.search.live import LiveSearch
from support.invented_search import InventedSearch, search_view
search = InventedSearch(search_view(TRIALS, 3))
live = LiveSearch(search)
display(live.widget)
"""


#: The texts that are cut, or stand outside of the view. In an SVG, labels may reach over its edge.
CUT = """view => [...view.querySelectorAll("h3, span, button, td, th, p")]
    .filter(e => e.offsetParent && !e.closest(".ddl-visually-hidden"))
    .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "visible"
        || e.getBoundingClientRect().right > view.getBoundingClientRect().right)
    .map(e => e.textContent)"""


@pytest.fixture
def shown(lab, notebook):
    """`shown(trials)`: the view of a search with so many trials that have ended, and three that train."""

    def shown(trials, *cells):
        notebook.open(lab.write("search.ipynb", SHOW.replace("TRIALS", str(trials)), *cells), fresh=True)
        notebook.run_cell(0)
        expect(notebook.view.locator(".ddl-chip")).to_have_text("RUNNING")
        return notebook.view

    return shown


def drag(page, axis, low, high):
    """Along an axis, between two shares of its length from the bottom."""
    box = axis.bounding_box()
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + (1 - low) * box["height"])
    page.mouse.down()
    page.mouse.move(x, box["y"] + (1 - high) * box["height"], steps=4)
    page.mouse.up()


def test_trials_are_chosen_and_stopped(shown, notebook):
    view = shown(20, "search.asked", "search.show(search_view(23, state='FINISHED'))")
    rows = view.locator("tbody tr")
    expect(rows).to_have_count(23)
    expect(rows.first).to_contain_text("best")
    expect(view.locator(".ddl-title")).to_contain_text("20 of 40 trials")
    drag(notebook.page, view.locator(".ddl-brush-area").last, 0.6, 1.0)
    expect(view.locator(".ddl-parallel .ddl-values")).to_contain_text("of 23 trials chosen")
    assert 0 < rows.count() < 23
    view.locator(".ddl-brush-area").last.click()
    expect(rows).to_have_count(23)
    view.get_by_role("button", name="stop trial 21").click()
    view.get_by_role("button", name="Stop", exact=True).click()
    notebook.run_cell(1)
    expect(notebook.output(1)).to_have_text("[21, 'stop']")
    notebook.run_cell(2)
    expect(view.locator(".ddl-chip")).to_have_text("FINISHED")
    expect(view.locator(".ddl-times")).to_have_text("took 6:12")

    notebook.page.set_viewport_size({"width": 390, "height": 900})  # a phone's
    try:
        notebook.page.evaluate("window.jupyterapp.shell.collapseLeft()")
        notebook.page.wait_for_function("(w => w > 200 && w < 390)(document.querySelector('.ddl-search').clientWidth)")
        assert view.evaluate(CUT) == []
        assert notebook.serious(".ddl-search") == []
    finally:
        notebook.page.set_viewport_size({"width": 1280, "height": 1000})


@pytest.mark.slow
def test_the_pointer_finds_a_curve_and_a_reload_restores_the_search(shown, notebook):
    view = shown(5)
    curves = view.locator(".ddl-chart svg").first
    path = curves.locator("path[data-look=best]").get_attribute("d")
    x, y = map(float, path[1:].split("L")[5].split())
    curves.hover(position={"x": x, "y": y + 2})
    expect(curves.locator("path[data-look=picked]")).not_to_have_attribute("d", "")
    notebook.reload()
    expect(view.locator("tbody tr")).to_have_count(8)


def test_a_thousand_trials_stay_fluent_and_axe_finds_nothing_serious(shown, notebook):
    view = shown(1000, "search.show(search_view(1003))")
    expect(view.locator(".ddl-title")).to_contain_text("1000 of 40 trials")
    redraw = """view => { const from = performance.now(); window.dispatchEvent(new Event('resize'));
        return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
            done(performance.now() - from)))); }"""
    view.locator(".ddl-sort").nth(3).click()
    assert view.evaluate(redraw) < UPDATE_MS
    notebook.run_cell(1)
    expect(view.locator(".ddl-title")).to_contain_text("1003 of 40 trials", timeout=OPEN_MS)
    assert notebook.serious(".ddl-search") == []
