"""What stays in the notebook, and the figure: bounded, escaped, readable."""

import json

import pytest
from support.markup import Markup
from support.synthetic import START, Synthetic

from ddl_magics.dashboard.charts import charts, history_of
from ddl_magics.dashboard.figure import figure
from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.messages import Packer
from ddl_magics.dashboard.static import MAX_BYTES, RUN_TYPE, static_bundle
from ddl_magics.runtime import events as ev

RUN = {
    "id": "20261121-digits",
    "name": "digits",
    "strategy": "allreduce",
    "workers": 2,
    "cluster": "this machine",
    "state": "FINISHED",
    "created": START,
    "ended": START + 133,
    "failure": None,
}


def finished(**options) -> list:
    run = Synthetic(2, epochs=3, steps=100, **options)
    return [*run.begin(), *run.train(), *run.end()]


def test_a_finished_run_is_readable_in_every_form():
    bundle = static_bundle(RUN, finished())
    assert bundle[RUN_TYPE] == {"id": "20261121-digits", "name": "digits", "state": "FINISHED"}
    assert bundle["text/plain"].startswith("digits FINISHED (all-reduce · 2 workers · this machine)\nloss 0.134")
    page = Markup(bundle["text/html"])
    assert "after 3 epochs" in page.text and "took 2:13" in page.text and "wn4-hdi" in page.text
    assert "0.1341" in page.text and "0.2041" in page.text
    assert page.tags.count("img") == 4 and not {"script", "style", "svg"} & set(page.tags)
    assert json.dumps(bundle, allow_nan=False)


def test_workers_that_came_and_went_are_a_chart_and_are_said():
    run = Synthetic(3, epochs=4, steps=100, gpus=0, groups={0.3: [0, 2], 0.6: [0, 2, 3]})
    events = [*run.begin(), *run.train(), *run.end()]
    bundle = static_bundle({**RUN, "workers": 3, "min_workers": 2}, events)
    assert "2..3 workers" in bundle["text/plain"]
    page = Markup(bundle["text/html"]).text
    assert page.index("samples/s") < page.index("workers", page.index("samples/s")) < page.index("CPU %")
    assert "<td>1, left</td>" in bundle["text/html"] and "<td>3</td>" in bundle["text/html"]
    (line,) = next(chart for chart in charts(history_of(events)) if chart.title == "workers").lines
    corners = [point for point in zip(line.x, line.y, strict=True) if line.x.count(point[0]) == 2]
    assert [y for _, y in corners] == [3.0, 2.0, 2.0, 3.0], "a value holds until the next one"


def test_what_was_waited_for_is_no_time_of_the_training():
    text = Markup(static_bundle(dict(RUN, created=START - 60), finished())["text/html"]).text
    assert "trained 2:13, 3:13 with waiting" in text


def test_a_run_that_starts_has_a_word_of_a_person():
    page = static_bundle({**RUN, "state": "PREFLIGHT", "ended": None}, [])["text/html"]
    assert "STARTING" in page and "PREFLIGHT" not in page


def test_where_the_model_was_written_stays_in_the_notebook():
    uri = "hdfs://nn/models/<mine>/"
    files = [ev.make("artifact", 0, name=n, size=1, sha256="", uri=uri + n) for n in ("model-0.keras", "weights-0.npz")]
    page = static_bundle(RUN, [*finished(), *files])["text/html"]
    assert "<p>model-0.keras, weights-0.npz in <code>hdfs://nn/models/&lt;mine&gt;</code></p>" in page


def test_the_figure_has_the_values_of_the_run():
    made = figure("digits", finished())
    traces = {trace.name: trace for trace in made.data}
    assert {"loss", "val_loss", "accuracy", "val_accuracy", "samples/s"} <= set(traces)
    assert made.layout.title.text == "digits"
    assert list(traces["val_loss"].x) == [1, 2, 3]
    assert traces["val_loss"].y[-1] == pytest.approx(0.20415, abs=1e-4)
    assert list(traces["loss"].x) == [1, 2, 3]
    assert traces["loss"].y[-1] == pytest.approx(0.13415, abs=1e-4)
    of_training = {traces[name].line.color for name in ("loss", "val_loss")}
    ranks = {trace.line.color for trace in made.data if trace.name.startswith("rank ")}
    assert len(ranks) == 2 and not ranks & of_training
    steps = traces["loss by step"]
    assert steps.x[-1] == 3 and steps.x[0] == pytest.approx(0.1) and len(steps.x) == 30


def test_in_a_figure_no_legend_lies_on_a_title_and_no_title_is_cut():
    run = Synthetic(12, epochs=2, steps=20)
    events = [*run.begin(), *run.train(), *run.end()]
    for event in events:
        if "metrics" in event:
            event["metrics"] = {
                f"{name}_of_an_output_with_a_long_name": value for name, value in event["metrics"].items()
            }
    layout = figure("ValueError: " + 20 * "long words ", events)
    assert max(map(len, layout.layout.title.text.split("<br>"))) <= 70
    named = [trace for trace in layout.data if trace.showlegend]
    assert len([trace for trace in named if trace.name.startswith("rank ")]) == 6
    assert not [trace for trace in named if "by step" in trace.name or trace.name.endswith("est rank")]
    titles = layout.layout.annotations[:4]
    assert all(len(title.text) <= len("<b></b>") + 36 and title.yshift > 0 for title in titles)


def test_a_figure_of_nothing_is_empty():
    assert not figure("nothing", []).data


def test_before_the_first_step_there_is_nothing_to_plot():
    bundle = static_bundle({"id": "r", "name": "digits"}, [])
    assert "<img" not in bundle["text/html"]
    assert "QUEUED" in bundle["text/plain"] and "QUEUED" in bundle["text/html"]


def test_a_failure_is_said_with_rank_host_and_traceback():
    run = Synthetic(2, epochs=3, steps=100)
    events = [*run.begin(), *run.train(0.5), *run.fail(1)]
    bundle = static_bundle(dict(RUN, state="FAILED"), events)
    page = Markup(bundle["text/html"])
    for text in (page.text, bundle["text/plain"]):
        assert "Rank 1 on wn4-hdi failed: ValueError: Shapes" in text
    assert "<distributed cell>" in page.text and "pre" in page.tags


def test_nothing_that_a_run_says_becomes_markup():
    evil = "</div><script>alert(1)</script><img src=x onerror=alert(1)>"
    run = Synthetic(1, epochs=1, steps=10)
    events = [*run.begin(), *run.train()]
    for event in events:
        if event["kind"] == "worker":
            event.update(host=evil, device=evil)
        if "metrics" in event:
            event["metrics"] = {evil: 1.0}
    failure = {"rank": 0, "host": evil, "kind": "error", "message": evil, "traceback": evil}
    events += [run.state("FAILED", evil, failure=failure)]
    page = static_bundle(dict(RUN, id=evil, name=evil, cluster=evil, state="FAILED"), events)["text/html"]
    tags = Markup(page).tags
    assert "script" not in tags and "onerror" not in dict(Markup(page).attributes)
    assert "&lt;script&gt;" in page
    drawn = figure(evil, events)
    texts = [trace.name for trace in drawn.data] + [each.text for each in drawn.layout.annotations]
    assert len(texts) > 2 and not any("<script" in text or "<img" in text for text in [*texts, drawn.layout.title.text])


@pytest.mark.parametrize(
    ("workers", "epochs", "steps", "names"), [(2, 100, 1000, 2), (64, 5, 200, 2), (16, 4, 400, 40)]
)
def test_the_block_is_bounded_whatever_the_run(workers, epochs, steps, names):
    run = Synthetic(workers, epochs=epochs, steps=steps)
    events = [*run.begin(), *run.train()]
    if names > 2:
        for event in events:
            if "metrics" in event:
                event["metrics"] = {f"{name}_{i}": v for name, v in event["metrics"].items() for i in range(names)}
    failure = {"rank": 0, "host": "h", "kind": "error", "message": "m" * 99_999, "traceback": "t" * 999_999}
    for end in ([*run.end()], [run.state("FAILED", "m", failure=failure)]):
        bundle = static_bundle({"id": "r", "name": "n" * 9999, "workers": workers}, [*events, *end])
        assert len(json.dumps(bundle)) <= MAX_BYTES


@pytest.mark.parametrize(
    "values", [(1.7e308, -1.7e308), (5e-324, 1.5e-323), (1e39, 2e39), (1.0, 1.0 + 2.3e-16)], ids=str
)
def test_values_at_the_bounds_of_a_float_are_drawn(values, recwarn):
    made = [
        ev.make("epoch", 0, fit=0, epoch=k, metrics={"loss": value, "\0": value}, seconds=1.0)
        for k, value in enumerate(values)
    ]
    events = [ev.make("fit", 0, fit=0, model="m", epochs=2, steps=1), *made]
    assert "data:image/svg+xml" in static_bundle(RUN, events)["text/html"]
    history = History(1)
    history.feed(events)
    Packer(history, {}).full(0.0, None)
    assert not recwarn.list
