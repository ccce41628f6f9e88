"""The DAG of docs/airflow: three tasks, each with its cells of the pipeline. Airflow itself is played by stubs."""

import ast
import re
import runpy
import shlex
import sys
from contextlib import nullcontext
from datetime import datetime
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from jinja2 import Environment, StrictUndefined
from support.paths import ROOT

from ddl_magics.commands.table import BY_VERB

STEPS = ["prepare", "search", "train"]


def rendered(template):
    """As Airflow 3 renders it for a run that an asset has started, which has no logical date, and so no `ts_nodash`."""
    jinja = Environment(undefined=StrictUndefined)
    jinja.filters["ts_nodash"] = lambda moment: moment.strftime("%Y%m%dT%H%M%S")
    return jinja.from_string(template).render(dag_run=SimpleNamespace(run_after=datetime(2026, 1, 1)))


class Operator:
    """As Airflow's: `a >> b` has b wait for a, and `execute` would run the notebook, which it returns."""

    def __init__(self, task_id, bash_command):
        self.task_id, self.after = task_id, []
        self.words = shlex.split(rendered(bash_command))

    def __rshift__(self, other):
        other.after.append(self.task_id)

    def execute(self, context):
        return nbformat.read(self.words[2], as_version=4)


@pytest.fixture
def tasks(monkeypatch, tmp_path):
    """The tasks of the DAG, in their order."""
    made = []

    class Noted(Operator):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            made.append(self)

    operators, sdk = SimpleNamespace(BashOperator=Noted), SimpleNamespace(DAG=lambda *_, **__: nullcontext())
    monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.bash", operators)
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    monkeypatch.setenv("PIPELINE_NOTEBOOK", str(ROOT / "notebooks" / "pipeline.ipynb"))
    monkeypatch.setenv("PIPELINE_FOLDER", str(tmp_path / "town"))
    monkeypatch.setenv("PIPELINE_TABLES", "abfss://tables")
    runpy.run_path(str(ROOT / "docs" / "airflow" / "pipeline_dag.py"))
    return made


def test_the_tasks_follow_one_another_and_write_nothing_before_they_run(tasks, tmp_path):
    assert [(task.task_id, task.after) for task in tasks] == [
        ("prepare", []),
        ("search", ["prepare"]),
        ("train", ["search"]),
    ]
    assert not (tmp_path / "town").exists()
    for task in tasks:
        done = tmp_path / "town" / f"{task.task_id}-20260101T000000.ipynb"
        assert task.words[:2] == ["ddl-magics", "run"]
        assert BY_VERB["run"].read(task.words[2:])["output"] == str(done)


def test_the_parameters_of_the_pipeline_are_the_dags(tasks, tmp_path):
    for task in tasks:
        cells = task.execute({}).cells
        tagged = [set(cell.metadata.get("tags", ())) for cell in cells]
        number = next(number for number, tags in enumerate(tagged) if "parameters" in tags)
        assert tagged[number + 1] == {"injected-parameters"}
        values = {}
        exec(cells[number].source, values)
        names = set(values)
        exec(cells[number + 1].source, values)
        assert set(values) == names, "no parameter that the notebook does not have"
        assert (values["tables"], values["folder"]) == ("abfss://tables", str(tmp_path / "town"))


def test_each_task_has_its_cells_and_those_of_all(tasks):
    """Each cell of the pipeline up to the registry is in one task; the start of Spark is in each."""
    whole = nbformat.read(ROOT / "notebooks" / "pipeline.ipynb", as_version=4)
    runs = [[cell.source for cell in task.execute({}).cells if cell.cell_type == "code"] for task in tasks]
    for cell in whole.cells:
        if cell.cell_type == "code":
            tags = cell.metadata.get("tags", ())
            mine = [step for step in STEPS if step in tags]
            left = {"use", "table", "picture"} & set(tags)
            expected = [] if left else mine or STEPS
            assert [step for step, sources in zip(STEPS, runs, strict=True) if cell.source in sources] == expected


def names(source, context):
    """The variables that the code of a cell assigns (ast.Store) or reads (ast.Load)."""
    tree = ast.parse(TransformerManager().transform_cell(re.sub(r"^%%distributed.*\n", "", source)))
    nodes = list(ast.walk(tree))
    found = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
    if context is ast.Store:
        found |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        imports = (one for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for one in node.names)
        found |= {(one.asname or one.name).split(".")[0] for one in imports}
    return found


def test_each_task_defines_what_it_uses(tasks):
    """Of the names that the pipeline assigns: no task finds a variable of the one before."""
    cells = {task.task_id: [cell for cell in task.execute({}).cells if cell.cell_type == "code"] for task in tasks}
    defined, used = (
        {step: {name for cell in of for name in names(cell.source, context)} for step, of in cells.items()}
        for context in (ast.Store, ast.Load)
    )
    of_all = set.union(*defined.values())
    for step in STEPS:
        assert used[step] & of_all <= defined[step], step


def test_the_command_of_the_page_needs_no_logical_date():
    page = (ROOT / "docs" / "orchestration.md").read_text()
    (command,) = re.findall(r'bash_command="(.*)"', page)
    assert "/nightly/train-20260101T000000.ipynb" in rendered(command)
