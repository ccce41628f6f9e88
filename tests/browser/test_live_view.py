"""The live view in a real JupyterLab, with invented runs: what is drawn, what a reload restores, what it costs."""

import re

import nbformat
import pytest
from playwright.sync_api import expect
from support.synthetic import Synthetic

from ddl_magics.dashboard.static import static_bundle

OPEN_BYTES = 500_000
UPDATE_BYTES = 20_000

SETUP = """\
from IPython.display import display
from browser.player import Player
from support.synthetic import Synthetic
"""


PLAY = "player.play([*run.begin(), *run.train()])"


@pytest.fixture
def show(lab, notebook, request):
    """`show(run, line, ...)`: a notebook whose first cell displays the view of a run, after these lines."""

    def show(run, *lines, after=(), cells=(), fresh=False):
        begin = [SETUP, f"run = Synthetic({run})", "player = Player(run)"]
        source = [*begin, *lines, "display(player.view.widget)", *after]
        notebook.open(lab.write(f"{request.node.originalname}.ipynb", "\n".join(source), *cells), fresh)
        notebook.run_cell(0)

    return show


def test_a_run_moves_while_another_cell_runs_and_ends(notebook, show):
    start = "player.start([*run.begin(), *run.train(0.6)], [*run.train(), *run.end()], batch=20, interval=0.1)"
    show("2, epochs=4, steps=100, gpus=0", start, cells=["6 * 7", "player.go_on.release()"])
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


def test_the_pointer_reads_values_in_charts_of_one_scale(notebook, show):
    show("2, epochs=4, steps=250", PLAY)
    charts = notebook.view.locator(".ddl-charts > .ddl-chart")
    charts.nth(0).locator(".u-over").hover()
    for i, words in ((0, r"epoch 2\.\d"), (1, r"epoch 2\.\d"), (2, "of peak"), (3, "GPU %")):
        expect(charts.nth(i)).to_contain_text(re.compile(words))
    charts.nth(3).locator(".u-over").hover()
    expect(charts.nth(2)).to_contain_text(re.compile(r"at 0:1\d"))


def test_a_chart_grows_from_its_first_point(notebook, show):
    play = "player.play([*run.begin(), *run.train(0.01)])"
    show("2, epochs=4, steps=250", play, cells=["player.play(run.train(0.2))"])
    chart = notebook.view.locator(".ddl-chart").nth(0)
    expect(chart.locator("canvas")).to_be_visible()
    assert notebook.drawn()["metric:loss"]["points"] == 1
    notebook.run_cell(1)
    expect(notebook.view.locator(".ddl-status")).to_contain_text("step 200 of 250")
    chart.locator(".u-over").hover()
    expect(chart).to_contain_text("epoch 0.4")


def test_a_part_that_was_zoomed_into_stays_while_the_run_goes_on(notebook, show):
    start = "player.start([*run.begin(), *run.train(0.5)], [*run.train(), *run.end()], batch=5000, interval=0)"
    show("2, epochs=4, steps=250", start, cells=["player.go_on.release()"])
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


@pytest.mark.slow
def test_a_reload_restores_the_whole_history(notebook, show):
    play = 'player.play([*run.begin(), *run.train(0.5), run.log(1, "said before the reload\\n")])'
    later = "player.play([run.log(0, 'said after the reload\\n'), *run.end()])"
    show("2, epochs=4, steps=100", play, cells=[later], fresh=True)
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


def test_stop_reaches_the_kernel_while_a_cell_is_running(notebook, show):
    start = "player.start([*run.begin(), *run.train(), *run.end()], batch=20, interval=0.5)"
    show("2, epochs=50, steps=1000", start)
    notebook.view.get_by_role("button", name="Stop").click()
    expect(notebook.view.locator(".ddl-chip")).to_have_text("STOPPED", timeout=5000)
    expect(notebook.view).to_contain_text("model and history are kept")
    expect(notebook.view.get_by_role("button", name="Stop")).to_have_count(0)


def test_a_card_moves_opens_its_charts_and_stops_the_run(notebook, show):
    start = "player.start([*run.begin(), *run.train(), *run.end()], batch=20, interval=0.5)"
    show("2, epochs=50, steps=1000", "player.view.widget.form = 'card'", start)
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


def test_a_blocking_cell_is_watched_and_names_the_notebook_stop_button(notebook, show):
    follow = "player.follow([[*run.begin(), *run.train(), *run.end()]], batch=4, interval=0.1)"
    show("2, epochs=4, steps=200", "player = Player(run, waiting=True)", after=[follow])
    expect(notebook.view.locator(".ddl-chip")).to_have_text("RUNNING")
    expect(notebook.view.locator(".ddl-hint")).to_contain_text("the notebook's stop button")
    expect(notebook.view.get_by_role("button", name="Stop")).to_have_count(0)
    expect(notebook.view.locator(".ddl-status")).to_contain_text(re.compile(r"epoch \d of 4"))
    expect(notebook.prompt(0)).to_have_text("[*]:")
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "run", "batch"),
    [
        pytest.param(
            *(100_000, "2, epochs=100, steps=1000, bucket=1", 4000),
            id="100,000 steps by 2 workers",
            marks=pytest.mark.slow,
        ),
        pytest.param(1000, "64, epochs=4, steps=250, slow={11: 1.8}", 400, id="64 workers"),
    ],
)
def test_the_wire_budget(notebook, show, steps, run, batch):
    show(run, f"player.start([*run.begin(), *run.train(), *run.end()], batch={batch}, interval=0.15)", fresh=True)
    notebook.view.wait_for()
    expect(notebook.view.locator(".ddl-status")).to_contain_text(re.compile(r"epoch \d+ of"))
    assert sum(notebook.frames.sizes) <= OPEN_BYTES
    notebook.frames.sizes.clear()
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")
    assert len(notebook.frames.sizes) > 15
    assert max(notebook.frames.sizes) <= UPDATE_BYTES
    points = notebook.drawn()
    assert max(line["points"] for line in points.values()) <= 300
    assert points["metric:loss"]["x"] == steps
    notebook.frames.sizes.clear()
    notebook.reload()
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")
    assert notebook.drawn() == points
    assert sum(notebook.frames.sizes) <= OPEN_BYTES


def test_many_workers_are_tiles_and_the_slow_ones_rows(notebook, show):
    show("64, epochs=12, steps=250, slow={11: 1.8, 40: 1.6}", "player.play([*run.begin(), *run.train(0.9)])")
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


def test_keys_in_the_view_are_no_commands_of_the_notebook_and_colours_follow_the_theme(notebook, show):
    show("2, epochs=2, steps=50", PLAY)
    notebook.view.get_by_role("tab", name="All ranks").focus()
    for key in ("ArrowRight", "x", "d", "d", "a"):
        notebook.page.keyboard.press(key)
    expect(notebook.view.get_by_role("tab", name="rank 0")).to_be_focused()
    expect(notebook.page.locator(".jp-Notebook .jp-Cell")).to_have_count(1)
    expect(notebook.view.locator(".ddl-chip")).to_have_text("RUNNING")

    ground = "el => getComputedStyle(el).backgroundColor"
    expect(notebook.view).to_have_attribute("data-dark", "false")
    light = notebook.view.evaluate(ground)
    notebook.command("apputils:change-theme", theme="JupyterLab Dark")
    expect(notebook.view).to_have_attribute("data-dark", "true")
    assert notebook.view.evaluate(ground) != light


#: Whether the blocks are shown where nothing in the page is named as in JupyterLab: VS Code, Colab.
HIDDEN_ELSEWHERE = """() => {
    const area = document.querySelector(".jp-OutputArea:has(.ddl-static)"), { body } = document;
    const theme = body.dataset.jpThemeLight;
    area.classList.remove("jp-OutputArea");
    delete body.dataset.jpThemeLight;
    const shown = [...document.querySelectorAll(".ddl-static")].map(block => getComputedStyle(block).display);
    area.classList.add("jp-OutputArea");
    body.dataset.jpThemeLight = theme;
    return shown;
}"""


def test_the_saved_block_steps_back_behind_the_view_and_stays_without_a_kernel(notebook, show):
    about = "{'id': 'run-digits', 'name': 'digits', 'strategy': 'allreduce', 'workers': 2, 'cluster': 'here'}"
    lines = ["events = [*run.begin(), *run.train(), *run.end()]", "player.play(events)"]
    blocks = [
        "from ddl_magics.dashboard.static import static_bundle",
        f"display(static_bundle({about}, events), raw=True)",
        f"display(static_bundle({about}, []), raw=True)",  # as it is before the first step: HTML and no figure
    ]
    show("2, epochs=2, steps=50", *lines, after=blocks, fresh=True)
    expect(notebook.view.locator(".ddl-chip")).to_have_text("FINISHED")
    expect(notebook.output(0)).to_have_count(3)
    expect(notebook.output(0).nth(1)).to_be_hidden()
    expect(notebook.output(0).nth(2)).to_be_hidden()
    assert notebook.page.evaluate(HIDDEN_ELSEWHERE) == ["none", "none"]
    notebook.command("docmanager:save")
    notebook.shut_down()
    notebook.page.reload()
    expect(notebook.output(0).nth(1)).to_be_visible()
    expect(notebook.output(0).nth(1)).to_contain_text("digits")
    expect(notebook.output(0).nth(2)).to_be_visible()
    expect(notebook.output(0).nth(2)).to_contain_text("QUEUED")
    expect(notebook.view).to_have_count(0)


FAR = "print('far below the fold\\n' * 30)"
REAL = """\
from browser.slow_run import begin
from ddl_magics.notebook.display import show_live
show_live(begin("moved"), waiting=False)"""

_PAINTED = (
    """canvas => new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data).size > 20"""
)


def test_far_below_the_fold_a_view_is_drawn_after_a_reload_and_says_that_its_kernel_has_ended(lab, notebook):
    notebook.open(lab.write("far.ipynb", *[FAR] * 15, REAL), fresh=True)
    notebook.run_all()
    chip, canvas = notebook.view.locator(".ddl-chip"), notebook.view.locator("canvas").first
    expect(chip).to_have_text("RUNNING")
    notebook.reload()
    notebook.page.wait_for_function("document.querySelector('.ddl-run canvas')")
    notebook.view.first.scroll_into_view_if_needed()
    expect(chip).to_have_text("RUNNING")
    assert canvas.evaluate(_PAINTED), "lines and grid have their colours"

    stored = notebook.page.locator(".ddl-stored .ddl-run")
    notebook.restart()
    expect(stored).to_have_attribute("data-state", "LOST")
    expect(stored).to_contain_text("Its kernel has ended, and the run with it.")
    expect(stored).to_contain_text("%%distributed --resume 2")
    expect(stored.locator("canvas").first).to_be_visible()
    expect(notebook.view.locator(".ddl-chip", has_text="RUNNING")).to_be_hidden()
    expect(notebook.view.get_by_role("button", name="Stop")).to_have_count(0)
    saved = notebook.saved_block("LOST")
    assert ">LOST</b>" in saved["text/html"] and "As it was" not in saved["text/html"]
    assert saved["text/plain"].startswith("moved LOST") and "%%distributed --resume 2" in saved["text/plain"]

    notebook.reload()
    stored.scroll_into_view_if_needed()
    expect(stored).to_have_attribute("data-state", "LOST")
    expect(stored.locator("canvas").first).to_be_visible()
    expect(notebook.output(15).first).to_be_hidden()  # "Error displaying widget: model not found"


CARD = """\
from ddl_magics.notebook.display import Cards
Cards(get_ipython(), lambda run: True).show(run)"""


@pytest.mark.slow
def test_after_a_reload_in_mid_run_each_view_of_it_says_within_seconds_that_its_kernel_has_ended(lab, notebook):
    real = REAL.replace("show_live(begin", "show_live(run := begin")
    notebook.open(lab.write("restarted.ipynb", real, CARD), fresh=True)
    notebook.run_all()
    expect(notebook.view.locator(".ddl-chip")).to_have_text(["RUNNING"] * 2)
    notebook.reload()
    expect(notebook.view.locator(".ddl-chip")).to_have_text(["RUNNING"] * 2)
    notebook.restart()
    lost = notebook.page.locator(".ddl-stored .ddl-run[data-state=LOST]")
    expect(lost).to_have_count(2, timeout=10_000)
    for view in lost.all():
        expect(view).to_be_visible()
        expect(view.locator("canvas").first).to_be_visible()
    expect(notebook.page.locator(".ddl-run[data-state=RUNNING]:visible")).to_have_count(0)


def test_a_monitor_shows_what_has_moved_and_offers_the_cell(lab, notebook):
    source = """\
from ddl_magics.dashboard.live import LiveView
from IPython.display import display
from support.monitored import events
info = {"id": "watched", "name": "watch", "strategy": "monitor", "workers": 0, "cluster": "here", "waiting": False}
view = LiveView(info, lambda: None)
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


def test_a_colleagues_notebook_is_read_without_trust(lab, notebook):
    """JupyterLab takes styles and pictures' elements away then; the store does not know the run."""
    about = {"id": "elsewhere", "name": "digits", "strategy": "allreduce", "workers": 2, "cluster": "here"}
    run = Synthetic(2, epochs=3, steps=100)
    artifact = run.make("artifact", 0, name="model-0.keras", size=1, sha256="")
    bundle = static_bundle(about, [*run.begin(), *run.train(), artifact, *run.end()])
    name = lab.write("colleague.ipynb", "digits")
    saved = nbformat.read(lab.folder / name, 4)
    saved.cells[0].outputs = [nbformat.v4.new_output("display_data", data=bundle)]
    nbformat.write(saved, lab.folder / name)
    notebook.open(name)
    block = notebook.output(0)
    expect(block).to_contain_text("FINISHED")
    text = " ".join(block.inner_text().split())
    for words in (
        "FINISHED digits",
        "after 3 epochs",
        "0.1341",
        "The trained model: model = digits.model()",
        "wn3-hdi",
    ):
        assert words in text
    assert "border" not in text and "svg" not in text
    expect(block.get_by_role("img", name=re.compile(r"^loss: loss .* to 0\.1341"))).to_be_visible()
