"""What the routes answer, on a server in this process."""

import asyncio
import csv
import errno
import io
import json
import os
from unittest.mock import Mock

import pytest
from support.fake_cluster import epoch, state, steps, training
from support.stored import append, finished, kill_owner, stored, stored_by_0_1_0

from ddl_magics import store
from ddl_magics.runtime import events as ev
from ddl_magics.server import download, listing

ROUTES = ("", "/events", "/view", "/logs/all", "/logs/0", "/export?format=csv", "/export?format=html", "/export")


def names(answer):
    return [run["name"] for run in answer["runs"]]


async def test_the_list_is_in_pages_newest_first(ask):
    for number in range(5):
        finished(name=f"run{number}", created=float(number))
    code, first, _ = await ask("runs", limit=2)
    assert (code, names(first), first["total"], first["live"]) == (200, ["run4", "run3"], 5, 0)
    _, second, _ = await ask("runs", limit=2, cursor=first["next"])
    _, third, _ = await ask("runs", limit=2, cursor=second["next"])
    assert names(second) == ["run2", "run1"] and names(third) == ["run0"] and third["next"] is None


async def test_a_row_says_how_far_a_run_is(ask):
    paced = [*list(training(4))[:7], epoch(0, loss=1.0), steps(0, 1, step=0, count=5, loss=0.75)]
    folder = stored(events=[{**event, "time": event["time"] + 5.0 * k} for k, event in enumerate(paced)])
    begun = next(event["time"] for event in folder.events() if event["kind"] == "fit")
    done = {"epoch": 1, "epochs": 4, "steps": 10, "begun": begun - 10, "metrics": {"loss": 1.0}}
    folder.update({"progress": done})
    (row,) = (await ask("runs"))[1]["runs"]
    assert (row["state"], row["live"], row["workers"], row["notebook"]) == (ev.RUNNING, True, 2, "a.ipynb")
    assert (row["epoch"], row["epochs"], row["step"], row["steps"], row["fraction"]) == (1, 4, 5, 10, 0.375)
    assert row["loss"] == 0.75 and row["sparkline"][-1] == 0.75 and row["metrics"] == {"loss": 1.0}
    view = (await ask(f"runs/{folder.path.name}/view"))[1]["message"]
    assert row["remaining"] == pytest.approx(view["progress"]["end"] - view["now"], abs=0.5), "as in the views"
    kill_owner(folder)
    (row,) = (await ask("runs"))[1]["runs"]
    assert (row["state"], row["remaining"]) == (ev.LOST, None)


async def test_the_list_can_be_searched(ask):
    finished(name="digits")
    stored(name="higgs")
    lost = stored(name="energy")
    kill_owner(lost)
    assert names((await ask("runs", live="true"))[1]) == ["higgs"]
    assert names((await ask("runs", q="lost a.ipynb"))[1]) == ["energy"]
    assert names((await ask("runs", q="nothing has this"))[1]) == []


async def test_who_asks_again_gets_what_changed(ask):
    kept, renamed, removed = finished(name="kept"), finished(name="renamed"), finished(name="removed")
    version = (await ask("runs"))[1]["version"]
    code, body, _ = await ask("runs", since=version)
    assert (code, body) == (204, "")
    renamed.label(["good"])
    removed.remove()
    new = finished(name="new")
    _, answer, _ = await ask("runs", since=version)
    assert sorted(names(answer)) == ["new", "renamed"] and answer["removed"] == [removed.path.name]
    assert (await ask("runs", since=answer["version"]))[0] == 204
    _, part, _ = await ask("runs", since=version, limit=1)
    _, rest, _ = await ask("runs", since=part["version"], limit=1)
    assert part["more"] and not rest["more"] and sorted(names(part) + names(rest)) == ["new", "renamed"]
    assert {kept.path.name, new.path.name} <= {run["id"] for run in (await ask("runs"))[1]["runs"]}


@pytest.mark.parametrize("since", ["", "x", "abcdef-1", "abcdef-99999999999999999999", "-"])
async def test_a_version_of_another_server_is_told(ask, since):
    assert (await ask("runs", since=since))[0] == 410


async def test_a_removal_that_is_forgotten_asks_for_the_list_anew(ask, monkeypatch):
    known = listing.Listing()
    known._removed = type(known._removed)(maxlen=2)
    monkeypatch.setattr(listing, "MAX_REMOVED", 2)
    version = known.page().version
    for _ in range(3):
        folder = finished()
        known.page()
        folder.remove()
        known.page()
    with pytest.raises(LookupError):
        known.changes(version)


async def test_a_run_is_lost_as_soon_as_its_kernel_is(ask):
    folder = stored()
    version = (await ask("runs"))[1]["version"]
    kill_owner(folder)
    _, answer, _ = await ask("runs", since=version)
    assert [(run["state"], run["live"]) for run in answer["runs"]] == [(ev.LOST, False)]
    assert [run["message"] for run in answer["runs"]] == ["its kernel has ended"]


async def test_several_servers_list_one_store():
    one, other = listing.Listing(), listing.Listing()
    folder = finished()
    assert one.page().total == other.page().total == 1
    folder.label(title="the one to beat")
    assert one.page().runs == other.page().runs
    assert one.page().runs[0]["title"] == "the one to beat"
    assert not [path for path in folder.path.parent.rglob("*") if "cache" in path.name]


@pytest.mark.parametrize(
    ("query", "word"),
    [("limit=0", "limit"), ("limit=201", "limit"), ("limit=x", "limit"), ("live=1", "live"), ("cursor=x", "cursor")],
)
async def test_a_wrong_argument_is_named(ask, query, word):
    finished()
    code, answer, _ = await ask(f"runs?{query}")
    assert code == 400 and word in answer["message"]


def broken(runs_folder):
    """Folders that cannot be read, by id, with what is said of them."""
    good = json.loads((finished().path / "run.json").read_text())
    texts = {
        "half": ('{"format": 1, "id"', "damaged"),
        "newer": (json.dumps({**good, "id": "newer", "format": 2}), "update ddl_magics"),
        "odd": (json.dumps({**good, "id": "odd", "state": "DANCING"}), "no version writes"),
        "other": (json.dumps({**good, "id": "another"}), "no version writes"),
        "number": (json.dumps({**good, "id": "number", "created": float("nan")}), "damaged"),
        "listed": ("[1]", "damaged"),
        "deep": ("[" * 100_000, "damaged"),
        "empty": (None, "no run.json"),
    }
    for name, (text, _) in texts.items():
        (runs_folder / name).mkdir()
        if text is not None:
            (runs_folder / name / "run.json").write_text(text)
    os.utime(runs_folder / "empty", (1.0, 1.0))
    (runs_folder / "young").mkdir()
    return {name: said for name, (_, said) in texts.items()}


async def test_what_cannot_be_read_is_listed_with_the_reason(ask, runs_folder):
    said = broken(runs_folder)
    _, answer, _ = await ask("runs")
    told = {run["id"]: run["problem"] for run in answer["runs"] if run["problem"]}
    assert told.keys() == said.keys()
    assert all(said[name] in told[name] for name in said)
    assert answer["total"] == len(said) + 1
    for name in said:
        assert (await ask(f"runs/{name}"))[1]["problem"] == told[name]
        assert (await ask(f"runs/{name}/view"))[0] == (await ask(f"runs/{name}/stop", "POST"))[0] == 409
    assert (await ask("runs/newer", "DELETE"))[0] == 409
    assert (await ask("runs/half", "DELETE"))[0] == 204


async def test_damaged_events_are_passed_over_and_counted(ask):
    folder = finished()
    with open(folder.path / "events.jsonl", "ab") as file:
        file.write(b'\x00\xff\n[1]\n{"seq": "x"}\n{"seq":99,"kind":"steps","rank":0,"time":1.0}\n{"seq":100,"ki')
    whole = len(list(training()))
    _, events, _ = await ask(f"runs/{folder.path.name}/events")
    assert [event["seq"] for event in events["events"]] == [*range(1, whole + 1)]
    assert events["damaged"] == 4 and not events["more"]
    _, view, _ = await ask(f"runs/{folder.path.name}/view")
    assert view["damaged"] == 4 and view["message"]["state"]["state"] == ev.FINISHED
    for route in ROUTES:
        assert (await ask(f"runs/{folder.path.name}{route}"))[0] == 200, route


@pytest.mark.parametrize("run", ["none", "..", "%2e%2e", "..%2F..%2Fsecret", "%2Fetc", "a%00b", ".hidden", "x" * 65])
async def test_no_path_reaches_the_file_system(ask, runs_folder, run):
    folder = finished()
    secret = runs_folder.parent.parent / "secret"
    os.rename(folder.path, secret)
    os.symlink(secret, runs_folder / "linked")
    for route in ("", "/events", "/view", "/logs/0", "/export", "/files/model-0.keras"):
        for name in (run, "linked"):
            assert (await ask(f"runs/{name}{route}"))[0] == 404
    for name in (run, "linked"):
        assert (await ask(f"runs/{name}", "DELETE"))[0] == (await ask(f"runs/{name}/stop", "POST"))[0] == 404
    assert (secret / "run.json").exists()


async def test_the_page_of_a_run(ask):
    folder = stored(ev.FAILED, training())
    cause = {"rank": 1, "host": "h", "kind": "error", "message": "no such thing", "traceback": "Traceback ..."}
    files = [{"name": "logs/a.csv", "size": 3, "path": None}]
    folder.update({"failure": cause, "ended": 5.0, "versions": {"keras": "3.15.0"}, "cell_files": files})
    folder.file("model-0.keras").write_bytes(b"12345")
    _, answer, _ = await ask(f"runs/{folder.path.name}")
    assert answer["cause"] == cause and answer["failure"] == "no such thing"
    assert answer["spec"]["cell"] == "model.fit(dataset)" and answer["environment"] == {"python": "3.11"}
    assert answer["versions"] == {"keras": "3.15.0"}
    assert answer["cell_files"] == files
    assert answer["files"] == [{"name": "model-0.keras", "size": 5}] and answer["owner"]["alive"]
    assert (answer["stop_requested"], answer["stop"]) == (False, None)


async def test_events_come_after_a_number_and_within_bounds(ask, monkeypatch):
    monkeypatch.setattr("ddl_magics.server.handlers.EVENT_BYTES", 2000)
    folder = finished(epochs=20)
    whole = list(folder.events())
    after, seen = 0, []
    while True:
        _, answer, response = await ask(f"runs/{folder.path.name}/events", after=after)
        assert len(response.body) < 2300
        seen += answer["events"]
        after = answer["last"]
        if not answer["more"]:
            break
    assert seen == whole and (answer["state"], answer["live"]) == (ev.FINISHED, False)
    _, answer, _ = await ask(f"runs/{folder.path.name}/events", after=10**9)
    assert (answer["events"], answer["last"]) == ([], 10**9)


async def test_who_waits_for_events_gets_them_when_they_come(ask):
    folder = stored(events=[state(ev.RUNNING)])
    waiting = asyncio.create_task(ask(f"runs/{folder.path.name}/events", after=1, wait=20))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    append(folder, [steps(0, 0, loss=1.0)])
    _, answer, _ = await asyncio.wait_for(waiting, 5)
    assert [event["seq"] for event in answer["events"]] == [2]
    ended = finished()
    _, answer, _ = await asyncio.wait_for(ask(f"runs/{ended.path.name}/events", after=10**6, wait=20), 5)
    assert answer["events"] == [] and not answer["live"]


async def test_logs_of_a_rank_and_of_all(ask):
    folder = stored(events=training())
    append(folder, [ev.make("log", 1, stream="stderr", text="\x1b[31mred\x1b[0m\r\nsecond\n")])
    _, answer, _ = await ask(f"runs/{folder.path.name}/logs/1")
    assert [line[1:] for line in answer["lines"]] == [
        [1, "out", "not the chief"],
        [1, "out", "not the chief"],
        [1, "err", "red"],
        [1, "err", "second"],
    ]
    _, later, _ = await ask(f"runs/{folder.path.name}/logs/1", offset=answer["offset"])
    assert later["lines"] == [] and later["offset"] == answer["offset"] and not later["more"]
    append(folder, [ev.make("log", 1, stream="stdout", text="third\n"), ev.make("log", 0, stream="stdout", text="x\n")])
    _, later, _ = await ask(f"runs/{folder.path.name}/logs/1", offset=answer["offset"])
    assert [line[3] for line in later["lines"]] == ["third"]
    _, job, _ = await ask(f"runs/{folder.path.name}/logs/-1")
    assert job["lines"][0][3] == "PREFLIGHT: looking for 2 slots"
    assert len((await ask(f"runs/{folder.path.name}/logs/all"))[1]["lines"]) == 11
    for rank in ("none", "-2", "٣", "1234567", "%00", ".."):
        code, answer, _ = await ask(f"runs/{folder.path.name}/logs/{rank}")
        assert code == 404 and (rank == ".." or answer["message"] == "there is no such rank"), rank


async def test_logs_are_bounded_and_their_end_comes_first_where_it_is_asked_for(ask, monkeypatch):
    folder = stored(events=(ev.make("log", 0, stream="stdout", text="x" * 990 + f"{n:09}\n") for n in range(3000)))
    _, begin, response = await ask(f"runs/{folder.path.name}/logs/0")
    assert len(response.body) < 600_000 and begin["more"]
    monkeypatch.setattr("ddl_magics.server.logs.TAIL_BYTES", 50_000)
    _, end, _ = await ask(f"runs/{folder.path.name}/logs/0", tail="true")
    assert end["lines"][-1][3].endswith("2999") and end["begin"] > begin["offset"] and not end["more"]


async def test_parts_of_a_log_from_its_end_on_are_all_of_it_once(ask, monkeypatch):
    folder = stored(events=(ev.make("log", n % 2, stream="stdout", text=f"{n} {'x' * n}\n") for n in range(200)))
    monkeypatch.setattr("ddl_magics.server.logs.TAIL_BYTES", 10_000)
    monkeypatch.setattr("ddl_magics.server.logs.TEXT_BYTES", 1000)
    monkeypatch.setattr("ddl_magics.server.logs.BATCH_BYTES", 2000)
    found, before = [], {}
    while before.get("before") != 0:
        _, answer, _ = await ask(f"runs/{folder.path.name}/logs/1", tail="true", **before)
        begin, part = answer["begin"], answer["lines"]
        while answer["more"]:
            _, answer, _ = await ask(f"runs/{folder.path.name}/logs/1", offset=answer["offset"], **before)
            part += answer["lines"]
        found, before = part + found, {"before": begin}
    assert [int(line[3].split()[0]) for line in found] == list(range(1, 200, 2))


async def test_names_are_given_and_taken_away(ask):
    folder = finished()
    path = f"runs/{folder.path.name}"
    _, answer, _ = await ask(path, "PATCH", {"title": " the one ", "labels": ["good", "good", "für später"]})
    assert (answer["title"], answer["labels"], answer["name"]) == ("the one", ["für später", "good"], "digits")
    _, answer, _ = await ask(path, "PATCH", {"title": ""})
    assert (answer["title"], answer["labels"]) == ("", ["für später", "good"])


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"state": "FINISHED"}',
        '{"title": 1}',
        '{"title": null}',
        '{"labels": null}',
        '{"note": null}',
        '{"title": "a\\nb"}',
        '{"labels": "a"}',
    ]
    + ['{"labels": [1]}', '{"labels": [" "]}', '{"title": "%s"}' % ("x" * 101), '{"labels": %s}' % (["x"] * 21)],
)
async def test_names_that_are_wrong_are_refused(ask, body):
    folder = finished()
    code, answer, _ = await ask(f"runs/{folder.path.name}", "PATCH", body.replace("'", '"'))
    assert code == 400 and answer["message"]
    assert not (folder.path / "labels.json").exists()


async def test_a_body_that_is_too_long_is_refused(ask):
    folder = finished()
    assert (await ask(f"runs/{folder.path.name}", "PATCH", {"title": "x" * 20_000}))[0] == 413


async def test_a_run_that_goes_on_is_not_removed(ask):
    folder = stored()
    code, answer, _ = await ask(f"runs/{folder.path.name}", "DELETE")
    assert code == 409 and "stop it first" in answer["message"] and folder.path.exists()
    kill_owner(folder)
    assert (await ask(f"runs/{folder.path.name}", "DELETE"))[0] == 204
    assert os.listdir(folder.path.parent) == [] and (await ask(f"runs/{folder.path.name}", "DELETE"))[0] == 404


async def test_of_two_who_remove_a_run_one_is_told_that_it_is_gone(ask):
    folder = finished()
    answers = await asyncio.gather(*(ask(f"runs/{folder.path.name}", "DELETE") for _ in range(2)))
    assert sorted(code for code, _, _ in answers) == [204, 404]


@pytest.mark.parametrize(("verb", "method"), [("DELETE", "discard"), ("PATCH", "label"), ("POST", "request")])
async def test_a_store_that_takes_no_changes_says_so(ask, monkeypatch, verb, method):
    folder = stored() if verb == "POST" else finished()
    path = f"runs/{folder.path.name}{'/stop' if verb == 'POST' else ''}"

    monkeypatch.setattr(store.RunFolder, method, Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
    code, answer, _ = await ask(path, verb, {"title": "the one"})
    assert (code, answer["message"]) == (409, "the store cannot be changed: Read-only file system")
    folder.remove()
    assert (await ask(path, verb, {"title": "the one"}))[0] == 404


async def test_exports(ask, monkeypatch):
    folder = finished(cell="print('<script>alert(1)</script>')", name="digits")
    path = f"runs/{folder.path.name}/export"
    folder.append([{"kind": "epoch", "seq": 10**6, "time": 1.0, "rank": 0, "metrics": 3}])  # a damaged one
    _, text, response = await ask(path, format="csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["value"] for row in rows if row["name"] == "loss" and not row["step"]] == ["1.0", "0.5"]
    assert f'filename="{folder.path.name}.csv"' in response.headers["Content-Disposition"]
    _, whole, _ = await ask(path, format="json")
    assert whole["events"] == list(folder.events()) and whole["run"]["spec"]["workers"] == 2
    _, report, response = await ask(path, format="html")
    assert response.headers["Content-Type"].startswith("text/html")
    assert "<svg" in report and "&lt;script&gt;" in report and "<script" not in report
    assert (await ask(path, format="pdf"))[0] == 400
    monkeypatch.setattr(download, "MAX_BYTES", folder.events_bytes() - 1)
    code, answer, _ = await ask(path, format="csv")
    assert code == 413 and "the run is too large to export: copy events.jsonl" in answer["message"]
    monkeypatch.setattr(download, "MAX_BYTES", folder.events_bytes())
    assert (await ask(path, format="csv"))[0] == 200


async def test_a_file_of_a_run_is_downloaded_and_no_other(ask, monkeypatch):
    monkeypatch.setattr("ddl_magics.server.handlers.FILE_CHUNK_BYTES", 3)
    folder = finished()
    files = folder.path / "files"
    files.mkdir(exist_ok=True)
    (files / "model-0.keras").write_bytes(b"a model")
    (files / "linked").symlink_to(folder.path / "run.json")
    (files / "folder").mkdir()
    status, content, response = await ask(f"runs/{folder.path.name}/files/model-0.keras")
    assert (status, content) == (200, "a model")
    assert response.headers["Content-Disposition"].endswith("model-0.keras")
    assert response.headers["Content-Type"] == "application/octet-stream"
    for name in ("none", "linked", "folder", "..%2Frun.json", "..", "%2Fetc%2Fpasswd"):
        assert (await ask(f"runs/{folder.path.name}/files/{name}"))[0] == 404, name


async def test_a_report_is_read_in_parts_and_whole(ask, monkeypatch):
    monkeypatch.setattr("ddl_magics.server.run_reader.BATCH_BYTES", 2000)
    monkeypatch.setattr("ddl_magics.server.download.READ_SECONDS", 0.0)
    folder = finished(epochs=50)
    for headers in ({}, {"Accept-Encoding": "gzip"}):
        code, report, _ = await ask(f"runs/{folder.path.name}/export", headers=headers, format="html")
        assert code == 200 and "<td>0.02</td><td>5.4</td>" in report and report.endswith("</html>\n")


async def test_a_metric_of_the_csv_is_no_formula(ask):
    folder = stored(events=[epoch(0, **{"=HYPERLINK(1)": -1.5})])
    _, text, _ = await ask(f"runs/{folder.path.name}/export", format="csv")
    assert ",'=HYPERLINK(1),-1.5," in text


async def test_long_answers_are_compressed_for_who_takes_it(ask):
    folder = finished(epochs=30)
    for route in ("/events", "/export"):
        _, plain, _ = await ask(f"runs/{folder.path.name}{route}")
        _, unpacked, response = await ask(f"runs/{folder.path.name}{route}", headers={"Accept-Encoding": "gzip"})
        assert unpacked == plain and response.headers["X-Consumed-Content-Encoding"] == "gzip"


async def test_the_document_is_served(ask):
    _, text, response = await ask("openapi.yaml")
    assert text.startswith("openapi: 3") and "yaml" in response.headers["Content-Type"]


async def test_runs_of_version_0_1_0_are_served_in_all_routes(ask):
    stored_by_0_1_0()
    _, answer, _ = await ask("runs")
    shared, digits = answer["runs"]
    assert (digits["name"], digits["state"], digits["title"]) == ("digits", ev.FINISHED, "digits, first try")
    assert (digits["labels"], digits["epoch"], digits["problem"]) == (["baseline", "good"], 5, None)
    assert (shared["name"], shared["state"], shared["fraction"]) == ("shared", ev.FAILED, 1.0)
    for run in (shared, digits):
        for route in ROUTES:
            assert (await ask(f"runs/{run['id']}{route}"))[0] == 200, (run["name"], route)

    _, page, _ = await ask(f"runs/{digits['id']}")
    assert page["environment"]["ddl_magics"] == "0.1.0" and page["versions"]["keras"] == "3.15.1"
    assert {file["name"] for file in page["files"]} == {"model-0.keras", "weights-0.npz"}
    _, page, _ = await ask(f"runs/{shared['id']}")
    assert page["cause"]["rank"] == 1 and "bad share" in page["failure"]
    _, events, _ = await ask(f"runs/{digits['id']}/events")
    assert [event["seq"] for event in events["events"]] == list(range(1, 115)) and not events["damaged"]
    _, logs, _ = await ask(f"runs/{digits['id']}/logs/1")
    assert [line[-1] for line in logs["lines"]] == ["trained by 1"]
    _, table, _ = await ask(f"runs/{digits['id']}/export", format="csv")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert {"loss", "val_accuracy", "held_out"} <= {row["name"] for row in rows}
    _, view, _ = await ask(f"runs/{shared['id']}/view")
    assert view["message"]["state"]["state"] == ev.FAILED and not view["damaged"]


async def test_a_surrogate_in_a_message_of_the_cell_hides_no_run(ask):
    """Python's names of files that are no UTF-8 have surrogates, and exceptions quote names."""
    message = os.fsdecode(b"cannot read caf\xe9.csv")
    failure = {"rank": 0, "host": "h", "kind": "error", "message": message, "traceback": f"ValueError: {message}"}
    printed = ev.make("log", 0, stream="stdout", text=message)
    folder = stored(ev.FAILED, [printed, state(ev.FAILED, message, failure=failure)], name=message)
    finished(name="other")
    assert names((await ask("runs"))[1]) == ["other", "cannot read caf?.csv"]
    for route in ROUTES:
        assert (await ask(f"runs/{folder.path.name}{route}"))[0] == 200, route


async def test_a_store_that_cannot_be_listed_is_not_an_empty_one(monkeypatch):
    folder, known = finished(), listing.Listing()
    before = known.page()

    monkeypatch.setattr(listing.os, "scandir", Mock(side_effect=OSError(24, "too many open files")))
    assert [row["id"] for row in known.page().runs] == [folder.path.name]
    assert known.changes(before.version) is None


async def test_a_run_that_cannot_be_read_is_not_written_over(monkeypatch):
    folder = finished()
    before = (folder.path / "run.json").read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr(type(folder.path), "read_bytes", Mock(side_effect=OSError(5, "input/output error")))
        for change in (lambda: folder.update({"progress": {}}), lambda: folder.label(["new"])):
            with pytest.raises(OSError, match="input/output"):
                change()
    assert (folder.path / "run.json").read_bytes() == before
