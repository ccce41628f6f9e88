"""The run of a file with one cell, for a batch, and the mistakes that are one line before anything is asked for."""

import nbformat
import pytest
from IPython.core.error import UsageError

from ddl_magics.__main__ import main
from ddl_magics.unattended.batch import spec_of

OUT = "--out hdfs:///m"


def test_a_cell_and_a_script_and_a_notebook_are_one_run_each(tmp_path):
    (tmp_path / "my-cell.py").write_text(f"%load_ext ddl_magics\n# %%distributed {OUT} --workers 3\n\nx = 1")
    (tmp_path / "script.py").write_text("x = 1")
    cells = [nbformat.v4.new_markdown_cell("text"), nbformat.v4.new_code_cell(f"%%distributed {OUT}\nx = 1")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebook.ipynb")
    cell = spec_of(tmp_path / "my-cell.py", ())
    assert (cell.name, cell.workers, cell.out, cell.cell) == ("my_cell", 3, "hdfs:///m", "\n\nx = 1")
    assert cell.run and cell.seed is not None and cell.variables is False
    script = spec_of(tmp_path / "script.py", ("--out", "hdfs:///m", "--seed", "4", "--data", "hdfs:///rows"))
    assert (script.name, script.seed, script.data, script.cell) == ("script", 4, "hdfs:///rows", "\nx = 1")
    assert spec_of(tmp_path / "notebook.ipynb", ()).cell == "\nx = 1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"x = 1\n# %%\n%%distributed {OUT}\nx", r"--batch takes a file of one %%distributed cell, and .* has 2 cells"),
        ("%%distributed\nx = 1", "--batch needs --out in the cell's line, a folder that the cluster reaches"),
        (f"%%distributed {OUT} --data frame --batch-size 8\nx", "--data frame: a batch has no variables of a session"),
        (f"%%distributed {OUT} --send a\nx", "--send needs a kernel, which a batch does not have: leave --send or"),
        (f"%%distributed {OUT} --tensorboard logs\nx", "--tensorboard needs a kernel"),
        (f"%%distributed {OUT} --resume r\nx", "--resume needs a kernel"),
        (f"%%distributed {OUT}\nx = = 1", "the cell cannot be compiled: line 2: invalid syntax"),
        (f"%%distributed {OUT}\ninput()", r"line 2: input\(\) waits for a person"),
        (f"%%distributed {OUT}\n\n", "the cell is empty"),
        (f"%%distributed {OUT} --worker 2\nx", "no option --worker"),
    ],
)
def test_what_a_batch_does_not_have_is_one_line(tmp_path, text, says):
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(UsageError, match=says):
        spec_of(tmp_path / "a.py", ())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--batch"], "--batch needs --cluster: add it, or leave --batch out."),
        (["--batch", "--cluster", "embedded"], "--batch runs on a Livy: --cluster URL, or livy"),
        (["--batch", "--cluster", "livy", "--session", "1"], "--batch cannot be combined with --session"),
        (["--batch", "--cluster", "livy", "--output", "a.ipynb"], "--batch cannot be combined with --output"),
        (["--batch", "--cluster", "livy", "--token-from", "x"], "--token-from needs the URL"),
    ],
)
def test_a_mistake_of_the_command_is_one_line(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("x = 1")
    assert main(["run", "a.py", *words]) == 1
    assert capsys.readouterr().err.startswith(says)
