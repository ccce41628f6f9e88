"""Which cells a file has."""

import nbformat
import pytest
from IPython.core.error import UsageError

from ddl_magics.options import parsing
from ddl_magics.unattended.source import of_script, read

SCRIPT = "import keras\n\nif __name__ == '__main__':\n    print('trains')\n"
CELLS = """# %% [markdown]
# # A title
# and a text

# %% the data
# %ddl runs
# a comment, and 100 %
x = 1

# %%
# %%distributed --workers 2
x + 1

# %%time
pass
"""


def test_a_script_is_one_cell_with_the_options():
    assert of_script(SCRIPT, ()) == [("code", f"%%distributed\n{SCRIPT}")]
    ((_, cell),) = of_script(SCRIPT, ("--name", "digits", "--set", "a=b c"))
    line, _, rest = cell.partition("\n")
    assert rest == SCRIPT and parsing.parse(line.removeprefix("%%distributed")).set == {"a": "b c"}
    marked = f"# %%\n{SCRIPT}"
    assert of_script(marked, ()) == [("code", f"%%distributed\n{marked}")], "what does not train alone is one cell"


def test_the_percent_format():
    assert of_script(CELLS, ()) == [
        ("markdown", "# A title\nand a text"),
        ("code", "%ddl runs\n# a comment, and 100 %\nx = 1"),
        ("code", "%%distributed --workers 2\nx + 1\n\n# %%time\npass"),
    ]
    assert of_script(CELLS, ("--workers", "3")) is None, "its cells have their own"


@pytest.mark.parametrize("magic", ["%%distributed --workers 2", "# %%distributed --workers 2", "#%%ddl_distributed"])
def test_a_training_cell_needs_no_mark(magic):
    code = magic.lstrip("# ")
    assert of_script(f"{magic}\nx", ()) == [("code", f"{code}\nx")]
    assert of_script(f"\nx = 1\n{magic}\nx", ()) == [("code", "x = 1"), ("code", f"{code}\nx")]


def test_a_notebook_is_read_as_it_is(tmp_path):
    file = tmp_path / "a.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x")]), file)
    assert [cell.source for cell in read(file).cells] == ["x"]
    with pytest.raises(UsageError, match=r"the cells of \S+a.ipynb name their own options"):
        read(file, ("--workers", "2"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"", r"a.txt is neither a notebook \(.ipynb\) nor a file of cells \(.py\)\.$"),
        ("a.py", None, r"a.py cannot be read: No such file or directory\.$"),
        ("a.py", b"\xff", r"a.py is no text in UTF-8\.$"),
        ("a.ipynb", b"{", r"a.ipynb is no notebook: "),
        ("a.ipynb", b'{"cells": 1}', r"a.ipynb is no notebook: "),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=says) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)
