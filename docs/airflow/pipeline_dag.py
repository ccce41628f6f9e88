"""notebooks/pipeline.ipynb up to the registry as an Airflow DAG: three tasks, each a notebook for `ddl-magics run`.

A task's notebook has the cells of pipeline.ipynb that have its tag, and those without one: the parameters, and the
start of Spark. The tasks pass each other files in the folder.
"""

import os
import shlex
from datetime import datetime
from pathlib import Path

import nbformat
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

NOTEBOOK = Path(os.environ.get("PIPELINE_NOTEBOOK", "pipeline.ipynb")).resolve()
#: The registry and the executed notebooks: a folder that all machines with tasks share.
FOLDER = Path(os.environ.get("PIPELINE_FOLDER", "pipeline")).resolve()
#: The Parquet files: a folder as above, or a storage of the cluster such as abfss://...
TABLES = os.environ.get("PIPELINE_TABLES", str(FOLDER / "tables"))
#: A table to read, as the notebook's `data`; without one, the rows are generated.
DATA = os.environ.get("PIPELINE_DATA", "")
#: The command of the environment that has Spark and ddl_magics.
COMMAND = os.environ.get("PIPELINE_COMMAND", "ddl-magics")
STEPS = ("prepare", "search", "train")
#: In the names of executed notebooks: a run that no date belongs to, as one of an asset, has no `ts_nodash`.
MOMENT = "{{ dag_run.run_after | ts_nodash }}"
PARAMETERS = {"workers": 2, "epochs": 10, "trials": 8, "data": DATA, "tables": TABLES, "folder": str(FOLDER)}


def part(step):
    """The notebook of a task, which writes it when it runs."""
    return FOLDER / f"{step}.ipynb"


def write_part(step):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    others = {*STEPS, "use", "table", "picture"} - {step}
    cells = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", ())
        if step in tags or not others.intersection(tags):
            cells.append(cell)
        if "parameters" in tags:
            values = "\n".join(f"{name} = {value!r}" for name, value in PARAMETERS.items())
            cells.append(nbformat.v4.new_code_cell(values, metadata={"tags": ["injected-parameters"]}))
    notebook.cells = cells
    FOLDER.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, part(step))


class Part(BashOperator):
    """Runs the cells of the task's step. Ended in Airflow, it gets SIGTERM, and its runs stop."""

    def execute(self, context):
        write_part(self.task_id)
        return super().execute(context)


with DAG("town_demand", start_date=datetime(2026, 1, 1), schedule="@weekly", catchup=False):
    before = None
    for step in STEPS:
        executed = FOLDER / f"{step}-{MOMENT}.ipynb"
        words = [COMMAND, "run", str(part(step)), "--output", str(executed), "--json"]
        ran = Part(task_id=step, bash_command=shlex.join(words))
        if before is not None:
            before >> ran
        before = ran
