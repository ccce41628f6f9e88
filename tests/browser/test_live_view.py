"""The live view in a real JupyterLab, with invented runs: what is drawn, what a reload restores, what it costs."""

import re

import pytest
from playwright.sync_api import expect

OPEN_BYTES = 500_000
UPDATE_BYTES = 20_000

SETUP = """\
from IPython.display import display
from browser.player import Player
from support.synthetic import Synthetic
"""


def show(run: str, *lines: str) -> str:
    """A cell that displays the view of `run`, after `lines`."""
    return "\n".join([SETUP, f"run = Synthetic({run})", "player = Player(run)", *lines, "display(player.view.widget)"])


def test_a_run_moves_while_another_cell_runs_and_ends(lab, notebook):
    start = "player.start([*run.begin(), *run.train(0.6)], [*run.train(), *run.end()], batch=20, interval=0.1)"
    run = show("2, epochs=4, steps=100, gpus=0", start)
    notebook.open(lab.write("moves.ipynb", run, "6 * 7", "player.go_on.release()"))
    notebook.run_cell(0)
    chip = notebook.view.locator(".ddl-chip")
    expect(chip).to_have_text("RUNNING")
    notebook.run_cell(1)
    expect(notebook.output(1)).to_have_text("42")
    expect(notebook.view.locator(".ddl-status")).to_contain_text("epoch 3 of 4")
    expect(chip).to_have_text("RUNNING")
    notebook.run_cell(2)
    expect(chip).to_have_text("FINISHED")
    expect(notebook.view.locator(".ddl-chart").first).to_contain_text("0.134")
    expect(notebook.view.get_by_role("img", name=re.compile("^loss over the epochs"))).to_be_visible()
    expect(notebook.view.locator("canvas")).to_have_count(4)


def test_the_pointer_reads_values_in_charts_of_one_scale(lab, notebook):
    play = "player.play([*run.begin(), *run.train()])"
    notebook.open(lab.write("pointer.ipynb", show("2, epochs=4, steps=250", play)))
    notebook.run_cell(0)
    charts = notebook.view.locator(".ddl-chart")
    charts.nth(0).locator(".u-over").hover()
    for i, words in ((0, r"epoch 2\.\d"), (1, r"epoch 2\.\d"), (2, "of peak"), (3, "GPU %")):
        expect(charts.nth(i)).to_contain_text(re.compile(words))
    charts.nth(3).locator(".u-over").hover()
    expect(charts.nth(2)).to_contain_text(re.compile(r"at 0:1\d"))


def test_a_chart_grows_from_its_first_point(lab, notebook):
    play = "player.play([*run.begin(), *run.train(0.01)])"
    rest = "player.play(run.train(0.2))"
    notebook.open(lab.write("grows.ipynb", show("2, epochs=4, steps=250", play), rest))
    notebook.run_cell(0)
    chart = notebook.view.locator(".ddl-chart").nth(0)
    expect(chart.locator("canvas")).to_be_visible()
    assert notebook.drawn()["metric:loss"]["points"] == 1
    notebook.run_cell(1)
    expect(notebook.view.locator(".ddl-status")).to_contain_text("step 200 of 250")
    chart.locator(".u-over").hover()
    expect(chart).to_contain_text("epoch 0.4")


def test_a_part_that_was_zoomed_into_stays_while_the_run_goes_on(lab, notebook):
    start = "player.start([*run.begin(), *run.train(0.5)], [*run.train(), *run.end()], batch=5000, interval=0)"
    notebook.open(lab.write("zoom.ipynb", show("2, epochs=4, steps=250", start), "player.go_on.release()"))
    notebook.run_cell(0)
    chart = notebook.view.locator(".ddl-chart").nth(0)
    over = chart.locator(".u-over")
    over.hover()
    box = over.bounding_box()
    at = [(box["x"] + share * box["width"], box["y"] + 30) for share in (0.25, 0.5)]
    notebook.page.mouse.move(*at[0])
    notebook.page.mouse.down()
    notebook.page.mouse.move(*at[1], steps=4)
    notebook.page.mouse.up()
    notebook.run_cell(1)
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")
    over.hover()
    # The middle of what was chosen: 3/8 of the two epochs that there were.
    expect(chart).to_contain_text(re.compile(r"epoch 0\.[678]"))
    over.dblclick()
    over.hover()
    expect(chart).to_contain_text(re.compile(r"epoch (1\.9|2\.[01])"))


def test_a_reload_restores_the_whole_history(lab, notebook):
    lines = ['player.play([*run.begin(), *run.train(0.5), run.log(1, "said before the reload\\n")])']
    later = "player.play([run.log(0, 'said after the reload\\n'), *run.end()])"
    notebook.open(lab.write("reload.ipynb", show("2, epochs=4, steps=100", *lines), later), fresh=True)
    notebook.run_cell(0)
    log = notebook.view.locator(".ddl-log")
    expect(log).to_contain_text("said before the reload")
    before = notebook.drawn()
    assert before["metric:loss"]["points"] == 20 and before["gpu:1"]["points"] > 3
    notebook.reload()
    expect(log).to_contain_text("said before the reload")
    assert notebook.drawn() == before
    notebook.run_cell(1)
    expect(log).to_contain_text("said after the reload")
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")


def test_stop_reaches_the_kernel_while_a_cell_is_running(lab, notebook):
    start = "player.start([*run.begin(), *run.train(), *run.end()], batch=20, interval=0.5)"
    notebook.open(lab.write("stop.ipynb", show("2, epochs=50, steps=1000", start)))
    notebook.run_cell(0)
    notebook.view.get_by_role("button", name="Stop").click()
    expect(notebook.view.locator(".ddl-chip")).to_have_text("STOPPED", timeout=5000)
    expect(notebook.view).to_contain_text("model and history are kept")
    expect(notebook.view.get_by_role("button", name="Stop")).to_have_count(0)


def test_a_card_moves_opens_its_charts_and_stops_the_run(lab, notebook):
    start = "player.start([*run.begin(), *run.train(), *run.end()], batch=20, interval=0.5)"
    lines = ["player.view.widget.form = 'card'", start]
    notebook.open(lab.write("card.ipynb", show("2, epochs=50, steps=1000", *lines)))
    notebook.run_cell(0)
    card = notebook.page.locator(".ddl-card")
    expect(card.locator(".ddl-chip")).to_have_text("RUNNING")
    expect(card.locator(".ddl-card-line")).to_contain_text(re.compile(r"loss \d.*epoch \d+ of 50"))
    expect(card.locator("canvas")).to_have_count(0)
    card.get_by_role("button", name="Show charts").click()
    expect(card.locator(".ddl-charts canvas").first).to_be_visible()
    expect(card.get_by_role("button", name="Stop")).to_have_count(1)
    card.get_by_role("button", name="Hide charts").click()
    expect(card.locator("canvas")).to_have_count(0)
    card.get_by_role("button", name="Stop").click()
    expect(card.locator(".ddl-chip")).to_have_text("STOPPED", timeout=5000)
    expect(card.get_by_role("button", name="Stop")).to_have_count(0)


def test_a_blocking_cell_is_watched_and_names_the_notebook_stop_button(lab, notebook):
    lines = ["player = Player(run, waiting=True)", "display(player.view.widget)"]
    lines += ["player.follow([[*run.begin(), *run.train(), *run.end()]], batch=4, interval=0.1)"]
    source = "\n".join([SETUP, "run = Synthetic(2, epochs=4, steps=200)", *lines])
    notebook.open(lab.write("blocks.ipynb", source))
    notebook.run_cell(0)
    expect(notebook.view.locator(".ddl-chip")).to_have_text("RUNNING")
    expect(notebook.view.locator(".ddl-hint")).to_contain_text("the notebook's stop button")
    expect(notebook.view.get_by_role("button", name="Stop")).to_have_count(0)
    expect(notebook.view.locator(".ddl-status")).to_contain_text(re.compile(r"epoch \d of 4"))
    expect(notebook.prompt(0)).to_have_text("[*]:")
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")


@pytest.mark.parametrize(
    ("name", "run", "batch", "interval"),
    [
        pytest.param(
            *("steps", "2, epochs=100, steps=1000, bucket=1", 4000, 0.15),
            id="100,000 steps by 2 workers",
            marks=pytest.mark.slow,
        ),
        pytest.param("workers", "64, epochs=4, steps=250, slow={11: 1.8}", 400, 0.15, id="64 workers"),
    ],
)
def test_the_wire_budget(lab, notebook, name, run, batch, interval):
    start = f"player.start([*run.begin(), *run.train(), *run.end()], batch={batch}, interval={interval})"
    notebook.open(lab.write(f"budget-{name}.ipynb", show(run, start)), fresh=True)
    notebook.run_cell(0)
    notebook.view.wait_for()
    expect(notebook.view.locator(".ddl-status")).to_contain_text(re.compile(r"epoch \d+ of"))
    opened = sum(notebook.frames.sizes)
    assert opened <= OPEN_BYTES
    notebook.frames.sizes.clear()
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")
    updates = list(notebook.frames.sizes)
    assert len(updates) > 15
    assert max(updates) <= UPDATE_BYTES
    points = notebook.drawn()
    assert max(line["points"] for line in points.values()) <= 300
    assert points["metric:loss"]["x"] == (100_000 if name == "steps" else 1000)
    notebook.frames.sizes.clear()
    notebook.reload()
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")
    assert notebook.drawn() == points
    reopened = sum(notebook.frames.sizes)
    assert reopened <= OPEN_BYTES
    print(f"open {opened:,} B, update at most {max(updates):,} B, mean {sum(updates) // len(updates):,} B")
    print(f"reload {reopened:,} B")


def test_many_workers_are_tiles_and_the_slow_ones_rows(lab, notebook):
    play = "player.play([*run.begin(), *run.train(0.9)])"
    notebook.open(lab.write("tiles.ipynb", show("64, epochs=12, steps=250, slow={11: 1.8, 40: 1.6}", play)))
    notebook.run_cell(0)
    tiles = notebook.view.locator(".ddl-tiles button")
    expect(tiles).to_have_count(64)
    rows = notebook.view.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("1.8× slower")
    tiles.nth(3).focus()
    notebook.page.keyboard.press("ArrowDown")
    expect(tiles.nth(19)).to_be_focused()
    expect(tiles.nth(19)).to_have_accessible_name(re.compile("^rank 19"))
    notebook.page.keyboard.press("Enter")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("wn22-hdi")


def test_keys_in_the_view_are_no_commands_of_the_notebook(lab, notebook):
    notebook.open(lab.write("keys.ipynb", show("2, epochs=2, steps=50", "player.play([*run.begin(), *run.train()])")))
    notebook.run_cell(0)
    notebook.view.get_by_role("tab", name="All ranks").focus()
    for key in ("ArrowRight", "x", "d", "d", "a"):
        notebook.page.keyboard.press(key)
    expect(notebook.view.get_by_role("tab", name="rank 0")).to_be_focused()
    expect(notebook.page.locator(".jp-Notebook .jp-Cell")).to_have_count(1)
    expect(notebook.view.locator(".ddl-chip")).to_have_text("RUNNING")


def test_the_colours_follow_the_theme(lab, notebook):
    notebook.open(lab.write("theme.ipynb", show("2, epochs=2, steps=50", "player.play([*run.begin(), *run.train()])")))
    notebook.run_cell(0)
    ground = "el => getComputedStyle(el).backgroundColor"
    expect(notebook.view).to_have_attribute("data-dark", "false")
    light = notebook.view.evaluate(ground)
    notebook.command("apputils:change-theme", theme="JupyterLab Dark")
    expect(notebook.view).to_have_attribute("data-dark", "true")
    assert notebook.view.evaluate(ground) != light


def test_the_saved_block_steps_back_behind_the_view_and_stays_without_a_kernel(lab, notebook):
    about = "{'id': 'run-digits', 'name': 'digits', 'strategy': 'allreduce', 'workers': 2, 'cluster': 'here'}"
    lines = ["events = [*run.begin(), *run.train(), *run.end()]", "player.play(events)"]
    block = (
        f"\nfrom ddl_magics.dashboard.static import static_bundle\ndisplay(static_bundle({about}, events), raw=True)"
    )
    early = f"\ndisplay(static_bundle({about}, []), raw=True)"  # as it is before the first step: HTML and no figure
    notebook.open(lab.write("saved.ipynb", show("2, epochs=2, steps=50", *lines) + block + early), fresh=True)
    notebook.run_cell(0)
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")
    expect(notebook.output(0)).to_have_count(3)
    expect(notebook.output(0).nth(1)).to_be_hidden()
    expect(notebook.output(0).nth(2)).to_be_hidden()
    notebook.command("docmanager:save")
    notebook.shut_down()
    notebook.page.reload()
    expect(notebook.output(0).nth(1)).to_be_visible()
    expect(notebook.output(0).nth(1)).to_contain_text("digits")
    expect(notebook.output(0).nth(2)).to_be_visible()
    expect(notebook.output(0).nth(2)).to_contain_text("QUEUED")
    expect(notebook.view).to_have_count(0)


def test_a_monitor_shows_what_has_moved_and_offers_the_cell(lab, notebook):
    source = """\
from ddl_magics.dashboard.live import LiveView
from IPython.display import display
from support.monitored import events
view = LiveView("watched", "watch", "monitor", 0, "this machine", lambda: None)
view.feed(events())
display(view.widget)"""
    notebook.open(lab.write("monitor.ipynb", source))
    notebook.run_cell(0)
    rows = notebook.view.locator(".ddl-monitor tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("temperature")
    expect(rows.first).to_have_attribute("data-level", "severe")
    expect(rows.nth(4)).to_contain_text("<b>holiday</b>")
    advice = notebook.view.locator(".ddl-monitor-advice")
    expect(advice).to_contain_text("the error rose from 3.4 to 4.9")
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    advice.get_by_role("button", name="Copy the training cell").click()
    expect(advice.get_by_role("button", name="Copied")).to_be_visible()
    assert notebook.page.evaluate("navigator.clipboard.readText()").startswith("%%distributed --name energy")
