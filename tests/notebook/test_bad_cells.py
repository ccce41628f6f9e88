"""Cells and %ddl lines with anything in them: a run is asked for, or one clear error says what is wrong."""

import pytest
from hypothesis import strategies as st
from IPython.core.error import UsageError
from support import shells
from support.bad_input import NASTY, TEXTS, each, one_line, tried
from support.fake_cluster import FakeCluster

from ddl_magics.commands.table import BY_VERB
from ddl_magics.errors import CellSyntaxError
from ddl_magics.notebook.cell_source import source_of

LINES = st.sampled_from(
    [
        "x = 1",
        "def f():",
        "    return 1",
        "return 2",
        "(",
        "'''",
        "'",
        "\\",
        "%time x",
        "!ls",
        "?x",
        "input()",
        "get_ipython()",
        "\tx",
        "x = 'é' # 名前",
        "f'{x!r:>{10}}'",
        "await x",
        "yield",
        "nonlocal x",
        "import *",
        "\x0c",
        "# -*- coding: latin-9 -*-",
        "# -*- coding: none -*-",
        "0777",
        "1_000__0",
        "lambda: (yield)",
        "async def g(): yield from x",
        "{**x, *y}",
        "match x:",
        "    case _: pass",
        "\ufeffx",
        "\x00",
        "\ud800",
        "'\ud800'",
        "x = " + "9" * 5000,
        "(" * 150 + ")" * 150,
        "-" * 5000 + "1",
        "(" * 5000,
        "x" + ".x" * 5000,
        "[" * 90 + "]" * 90,
        "1" + "+1" * 20_000,
        "x = '" + "y" * 200_000 + "'",
    ]
)
CELLS = st.one_of(st.lists(LINES | TEXTS, max_size=6).map("\n".join), st.lists(LINES, max_size=3).map("\n".join))


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(tmp_path_factory.mktemp("jupyter")))
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        with shells.loaded(FakeCluster()) as shell:
            yield shell


def check_cell(shell, cell):
    try:
        source = source_of(shell, "", cell)
    except UsageError as error:
        assert one_line(str(error)), str(error)
    except CellSyntaxError as error:
        assert error._render_traceback_()
    else:
        compile(source, "cell", "exec", dont_inherit=True)
        source.encode()


@tried(60, 1500)
def test_any_cell(shell, count):
    each(CELLS, count, lambda cell: check_cell(shell, cell))


@pytest.mark.parametrize(
    "cell",
    [
        "x = '\ud800'",
        "x = 1\0",
        "x" + ".x" * 20_000,
        "-" * 20_000 + "1",
        "(" * 5000,
        "1" + "+1" * 100_000,
        "if 1:\n" * 500,
    ]
    + ["def f():\n" + "".join(" " * i + "if x:\n" for i in range(1, 300))],
    ids=lambda cell: ascii(cell[:12]),
)
def test_a_cell_that_python_gives_up_on(shell, cell):
    check_cell(shell, cell)


WORDS = st.sampled_from(
    [*BY_VERB, "--session", "--detached", "livy", "http://[", "²", "١", "9" * 5000, "-1", "compare"]
)


@tried(60, 1000)
def test_any_line_of_ddl(shell, capsys, count):
    magics = shell._ddl_magics[0]

    def check(words):
        line = " ".join(words).replace("\n", " ")
        if any(word in line for word in ("livy", "use", "check", "auto", "embedded")):
            return  # which look for a Livy, or for a Spark
        try:
            magics.ddl(line)
        except UsageError as error:
            assert one_line(str(error)), str(error)
        finally:
            capsys.readouterr()

    each(st.lists(WORDS | TEXTS, max_size=4), count, check)


@pytest.mark.parametrize("word", NASTY)
def test_each_verb_with_each_nasty_word(shell, capsys, word):
    for verb in ("show", "logs", "stop", "attach", "clean", "logs run_1", "x"):
        with pytest.raises(UsageError) as caught:
            shell._ddl_magics[0].ddl(f"{verb} '{word}'".replace("\n", " "))
        assert one_line(str(caught.value)), str(caught.value)
