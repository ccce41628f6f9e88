"""The report of a run as an HTML file: it stands alone, says everything, and nothing of the run is markup in it."""

import re

import pytest
from support.markup import Markup
from support.stored import stored
from support.synthetic import Synthetic

from ddl_magics import store
from ddl_magics.runtime import events as ev
from ddl_magics.server.download import chunks

pytestmark = pytest.mark.usefixtures("data_dir")

EVIL = "</pre></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


def report(folder):
    return "".join(chunks("html", store.find_run(folder.path.name), {}))


def trained(state=ev.FINISHED, failing=False, **fields):
    run = Synthetic(2, epochs=3, steps=40, gpus=0)
    told = [*run.begin(), *run.train(0.5 if failing else 1.0), *(run.fail(1) if failing else run.end())]
    folder = stored(state, told, **fields)
    folder.update({"ended": told[-1]["time"], **({"failure": told[-1]["failure"]} if failing else {})})
    return folder


def test_a_report_has_charts_options_cell_and_log():
    folder = trained(
        name="digits",
        cell="model.fit(x, y)\n",
        min_workers=1,
        features=["a", "b"],
        conf={"spark.cores": "2"},
        prewarm=False,
    )
    folder.label(["paper", "best"], "The one")
    page = Markup(report(folder))
    assert page.tags.count("h1") == 1 and page.tags.count("svg") == 4
    for words in (
        "The one",
        "FINISHED",
        "after 3 epochs",
        "tags best, paper",
        "1..2 workers",
        "--workers 1..2",
        "--features a,b",
        "--no-prewarm ✓ --conf spark.cores 2",
    ):
        assert words in page.text
    assert re.search(r"Log \d+ lines, by rank", page.text), "none is left out"
    assert "Cell model.fit(x, y)" in page.text and "0 epoch 3: loss" in page.text
    assert "--name" not in page.text and "--batch-size" not in page.text


def test_a_failed_run_says_why():
    page = Markup(report(trained(ev.FAILED, failing=True)))
    assert "Rank 1 on wn4-hdi failed: ValueError: Shapes" in page.text and "traceback_utils.py" in page.text


def test_a_run_without_steps_is_reported_too():
    page = Markup(report(stored(ev.QUEUED, [Synthetic(2).state(ev.QUEUED)])))
    assert "QUEUED" in page.text and "svg" not in page.tags and "Printed" not in page.text


def test_a_report_loads_nothing():
    page = Markup(report(trained()))
    assert {"script", "link", "img", "iframe", "a", "image", "use", "form"}.isdisjoint(page.tags)
    assert {"src", "href", "xlink:href", "action"}.isdisjoint(name for name, _ in page.attributes)
    assert not [value for _, value in page.attributes if "url(" in (value or "")]
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_nothing_of_a_run_is_markup():
    run = Synthetic(1, epochs=1, steps=20, gpus=0)
    told = [*run.begin(), run.log(0, EVIL), run.make("values", 0, metrics={EVIL: 1.0}), *run.train()]
    told += [run.state(ev.FAILED, EVIL, failure={**_failure(), "message": EVIL, "traceback": EVIL})]
    folder = stored(ev.FAILED, told, name="n", cell=EVIL, data=EVIL, conf={EVIL: EVIL})
    changes = {"cluster": EVIL, "notebook": EVIL, "environment": {EVIL: EVIL}, "failure": told[-1]["failure"]}
    folder.update(changes)
    folder.label([EVIL], EVIL)
    text = report(folder)
    page = Markup(text)
    assert {"script", "img"}.isdisjoint(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert text.count("&lt;script&gt;") >= 9 and not re.search(r"<script|<img", text)


def _failure():
    return {"rank": 0, "host": "", "kind": "error", "message": "", "traceback": ""}
