"""The panel of runs in a real JupyterLab: what it lists, what it does, what it survives."""

import csv
import json
import re
import time

import pytest
from playwright.sync_api import expect
from support.fake_cluster import training
from support.stored import finished, kill_owner, stored

from ddl_magics import store
from ddl_magics.runtime import events as ev

BEGIN = "from browser.slow_run import begin\n{name} = begin('{name}')"


@pytest.fixture(autouse=True)
def clipboard(context):
    """Pages may write and read it."""
    context.grant_permissions(["clipboard-read", "clipboard-write"])


def lost(name):
    """A run whose kernel is gone, and whose driver may live on."""
    folder = stored(ev.RUNNING, list(training(2))[:8], name=name, place={"livy": "http://127.0.0.1:1", "session": 1})
    kill_owner(folder)
    return folder


def failed(name):
    folder = stored(ev.FAILED, training(1), name=name)
    cause = {"rank": 1, "host": "wn4", "kind": "error", "message": "ValueError: no such column", "traceback": ""}
    folder.update({"failure": cause, "ended": time.time()})
    return folder


def test_an_empty_store_says_how_to_begin_and_stored_runs_are_listed(panel):
    panel.open()
    expect(panel.root.locator(".ddl-empty-state")).to_contain_text("%%distributed")
    finished(name="mnist", workers=4)
    stored(ev.RUNNING, training(2), name="digits", created=time.time() - 3600)
    failed("higgs")
    expect(panel.root.locator(".ddl-row")).to_have_count(3)
    expect(panel.root.locator(".ddl-row-name")).to_have_text(["digits", "higgs", "mnist"])
    expect(panel.root.locator(".ddl-row-state")).to_have_text(["RUNNING", "FAILED", "FINISHED"])
    expect(panel.row("mnist")).to_contain_text(re.compile(r"2 of 2 epochs.*loss 0.500.*4 workers.*this machine"))
    expect(panel.row("higgs")).to_contain_text("ValueError: no such column")
    expect(panel.row("mnist").locator("polyline")).to_have_attribute("points", re.compile(r"\d"))

    panel.root.get_by_role("searchbox").fill("fail")
    expect(panel.root.locator(".ddl-row-name")).to_have_text(["higgs"])
    panel.root.get_by_role("searchbox").fill("nothing like it")
    expect(panel.root.locator(".ddl-empty-state")).to_contain_text("None of the 3 runs")
    panel.root.get_by_role("button", name="Show all runs").click()
    panel.root.get_by_label("Running only").check()
    expect(panel.root.locator(".ddl-row-name")).to_have_text(["digits"])


@pytest.mark.slow
def test_runs_of_two_notebooks_appear_move_and_are_stopped_from_the_panel(lab, panel, notebook):
    panel.open()
    notebook.open(lab.write("one.ipynb", BEGIN.format(name="one")))
    notebook.run_cell(0)
    expect(panel.state("one")).to_have_text("RUNNING")
    notebook.open(lab.write("two.ipynb", BEGIN.format(name="two")))
    notebook.run_cell(0)
    expect(panel.state("two")).to_have_text("RUNNING")
    expect(panel.row("two")).to_contain_text("two.ipynb")

    panel.page.bring_to_front()
    far = panel.row("one").locator(".ddl-row-progress")
    expect(far).to_contain_text("left")
    before = far.text_content()
    expect(far).not_to_have_text(before)
    expect(panel.page.locator(".ddl-status-item")).to_have_text("Distributed runs: 2 running")

    panel.row("one").click()
    panel.button("Stop").click()
    panel.answer("Cancel")
    expect(panel.state("one")).to_have_text("RUNNING")
    panel.button("Stop").click()
    panel.answer("Stop")
    expect(panel.state("one")).to_have_text("STOPPED")
    expect(panel.page.get_by_role("alert").filter(has_text="one: STOPPED")).to_be_visible()
    expect(panel.state("two")).to_have_text("RUNNING")

    panel.command("running:show-panel")
    panel.page.evaluate("window.jupyterapp.shell.activateById('jp-running-sessions')")
    item = panel.page.locator(".jp-RunningSessions-item", has_text="two").filter(has_text="%")
    item.hover()
    item.locator(".jp-RunningSessions-itemShutdown").click()
    panel.answer("Stop")
    expect(item).to_have_count(0)
    panel.command("ddl-magics:show-panel")
    expect(panel.state("two")).to_have_text("STOPPED")


def test_a_run_of_a_busy_kernel_is_there_after_a_reload_moves_and_is_stopped(lab, panel, notebook):
    notebook.open(lab.write("busy.ipynb", BEGIN.format(name="busy") + "\nbusy.wait()"))
    notebook.run_cell(0)
    panel.open(fresh=True)
    expect(panel.state("busy")).to_have_text("RUNNING")
    panel.page.reload()
    panel.ready()
    panel.command("ddl-magics:show-panel")
    far = panel.row("busy").locator(".ddl-row-progress")
    expect(far).to_contain_text("left")
    before = far.text_content()
    expect(far).not_to_have_text(before)
    expect(notebook.prompt(0)).to_have_text("[*]:")
    panel.menu("busy", "Stop Run…")
    panel.answer("Stop")
    expect(panel.state("busy")).to_have_text("STOPPED")
    expect(notebook.prompt(0)).to_have_text("[1]:")


@pytest.mark.slow
def test_a_kernel_restart_loses_its_run_and_the_next_one_is_beside_it(lab, panel, notebook):
    notebook.open(lab.write("again.ipynb", BEGIN.format(name="again")))
    notebook.run_cell(0)
    panel.open()
    expect(panel.state("again")).to_have_text("RUNNING")
    notebook.restart()
    expect(panel.state("again")).to_have_text("LOST")
    notebook.run_cell(0)
    expect(panel.state("again")).to_have_text(["RUNNING", "LOST"])


def test_what_became_of_a_run_without_a_kernel_is_said(panel):
    lost("gone")
    panel.open()
    expect(panel.state("gone")).to_have_text("LOST")
    panel.menu("gone", "Stop Run…")
    panel.answer("Stop")
    told = panel.page.locator(".jp-Dialog")
    expect(told).to_contain_text("gone is LOST: its kernel is gone, and it may still train")
    expect(told).to_contain_text("end the whole session: DELETE http://127.0.0.1:1/sessions/1")
    assert panel.serious(".jp-Dialog") == []
    panel.answer("Close")


def test_a_run_is_named_tagged_copied_exported_and_deleted(panel):
    finished(name="digits", cell="model.fit(x, y)")
    finished(name="other")
    panel.open()
    panel.menu("digits", "Rename Run…")
    panel.answer("Rename", "The <best> of all")
    best = "The <best> of all"
    expect(panel.row(best)).to_be_visible()
    panel.menu(best, "Tag Run…")
    panel.answer("Set", "keep, paper")
    expect(panel.row(best).locator(".ddl-row-label")).to_have_text(["keep", "paper"])

    panel.menu(best, "Copy Run as Cell")
    expect(panel.page.get_by_role("alert").filter(has_text="to the clipboard")).to_be_visible()
    cell = panel.page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(r"%%distributed --name digits .*\nmodel\.fit\(x, y\)", cell)

    for form, read in (("CSV", lambda f: next(csv.reader(f))[0] == "time"), ("JSON", json.load), ("HTML", str)):
        with panel.page.expect_download() as download:
            panel.menu(best, f"Export Run as {form}")
        with open(download.value.path(), encoding="utf-8") as file:
            assert read(file)
        assert download.value.suggested_filename.endswith(f".{form.lower()}")

    panel.menu("other", "Delete Run…")
    panel.answer("Cancel")
    expect(panel.row("other")).to_be_visible()
    panel.menu("other", "Delete Run…")
    panel.answer("Delete")
    expect(panel.row("other")).to_have_count(0)
    assert [record.name for record in store.list_runs()] == ["digits"]


def test_a_run_leads_to_its_cell(lab, panel):
    cell = "model.fit(dataset)"
    lab.write("cells.ipynb", "1", *(["x = 1\n" * 40] * 3), f"%%distributed --name digits\n{cell}")
    finished(name="digits", cell=cell).update({"notebook": str(lab.folder / "cells.ipynb")})
    finished(name="elsewhere").update({"notebook": "/nowhere/at/all.ipynb"})
    panel.open()
    panel.menu("digits", "Open Notebook of Run")
    expect(panel.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")).to_contain_text("%%distributed")
    panel.menu("elsewhere", "Open Notebook of Run")
    expect(panel.page.get_by_role("alert").filter(has_text="is not among the files")).to_be_visible()


def test_a_reload_brings_panel_filter_and_tabs_back(panel):
    run = finished(name="digits")
    finished(name="other")
    panel.open(fresh=True)
    panel.row("digits").dblclick()
    tab = panel.page.locator(f".lm-TabBar-tab[data-id='ddl-magics-run-{run.path.name}']")
    expect(tab).to_have_text("digits")
    panel.root.get_by_role("searchbox").fill("dig")
    expect(panel.root.locator(".ddl-row")).to_have_count(1)
    # JupyterLab writes its layout a second after the last change.
    with panel.page.expect_response(lambda answer: "/api/workspaces" in answer.url and answer.request.method == "PUT"):
        panel.command("application:toggle-side-tabbar", side="right")
    panel.page.reload()
    panel.ready()
    expect(tab).to_have_text("digits")
    expect(panel.root.locator(".ddl-row-name")).to_have_text(["digits"])


@pytest.mark.slow
def test_lines_have_the_colours_of_the_settings(panel):
    finished(name="digits")
    panel.open()
    panel.row("digits").dblclick()
    value = panel.page.locator(".ddl-run .ddl-values span").first
    expect(value).to_have_css("color", "rgb(47, 111, 222)")
    save = "raw => window.jupyterapp.serviceManager.settings.save('ddl-magics:runs', raw)"
    panel.page.evaluate(save, '{"series": "colour-blind"}')
    try:
        panel.open(fresh=True)
        panel.row("digits").dblclick()
        expect(value).to_have_css("color", "rgb(0, 114, 178)")
        assert panel.serious(".ddl-run") == []
    finally:
        panel.page.evaluate(save, "{}")
        panel.forget()


@pytest.mark.slow
def test_the_panel_outlives_the_server(lab, panel):
    finished(name="digits")
    panel.open()
    expect(panel.row("digits")).to_be_visible()
    port = int(re.search(r":(\d+)/", lab.url)[1])
    lab.stop()
    expect(panel.root.locator(".ddl-banner")).to_contain_text("does not respond")
    expect(panel.row("digits")).to_be_visible()
    lab.start(port)
    finished(name="later")
    dialog = panel.page.locator(".jp-Dialog")
    if dialog.count():
        dialog.locator("button").last.click()
    panel.button("Refresh").click()
    expect(panel.row("later")).to_be_visible()
    expect(panel.root.locator(".ddl-banner")).to_be_hidden()
    panel.forget()


def test_the_keyboard_does_all(panel):
    finished(name="second", created=time.time() - 60)
    first = finished(name="first")
    panel.open()
    expect(panel.root.locator(".ddl-row")).to_have_count(2)
    panel.root.get_by_role("searchbox").focus()
    for _ in range(3):
        panel.page.keyboard.press("Tab")
    expect(panel.root.get_by_role("tree")).to_be_focused()
    panel.page.keyboard.press("Home")
    expect(panel.row("first")).to_have_attribute("aria-selected", "true")
    panel.page.keyboard.press("F2")
    expect(panel.page.locator(".jp-Dialog input")).to_be_focused()
    panel.page.keyboard.type("renamed")
    panel.page.keyboard.press("Enter")
    expect(panel.row("renamed")).to_be_visible()
    expect(panel.root.get_by_role("tree")).to_be_focused()
    panel.page.keyboard.press("Enter")
    expect(panel.page.locator(f"#ddl-magics-run-{first.path.name}")).to_be_visible()
    panel.command("ddl-magics:show-panel")
    expect(panel.root.get_by_role("tree")).to_be_focused()
    panel.page.keyboard.press("End")
    panel.page.keyboard.press("Delete")
    expect(panel.page.locator(".jp-Dialog").get_by_role("button", name="Delete")).to_be_focused()
    panel.page.keyboard.press("Enter")
    expect(panel.row("second")).to_have_count(0)


def test_axe_finds_nothing_serious(panel):
    panel.open()
    expect(panel.root.locator(".ddl-empty-state")).to_contain_text("No runs yet")
    assert panel.serious_in_themes(".ddl-panel") == []
    stored(ev.RUNNING, training(2), name="digits")
    finished(name="mnist").label(["best"], None)
    failed("higgs")
    lost("gone")
    expect(panel.root.locator(".ddl-row")).to_have_count(4)
    panel.row("higgs").click()
    expect(panel.page.locator(".ddl-status-item")).to_be_visible()
    assert panel.serious_in_themes(".ddl-panel", ".ddl-status") == []
