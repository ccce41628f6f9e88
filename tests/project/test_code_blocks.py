"""The Python blocks of the README and of docs/ run as they stand there, one after the other, in one notebook."""

import ast

import pytest
from support.code_blocks import OTHER_LANGUAGES, PAGES, blocks, runnable, unfenced
from support.kernels import Kernel
from support.processes import wait_until_gone


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_says_why_not(page):
    assert not unfenced(page), "code that is only indented: put it between ``` lines, with its language"
    for block in blocks(page):
        assert block.language in {"python", *OTHER_LANGUAGES}, f"{block.page}:{block.line} has no known language"


def test_two_blocks_of_the_readme_are_run():
    readme = [block for block in runnable() if block.page == "README.md"]
    assert readme[0].code.startswith("%load_ext ddl_magics\n") and readme[1].code.startswith("%%distributed ")


#: What people read first: README and tutorial, and the pages that a search finds.
FOUND = ("keras-3-multi-worker", "horovod-tensorflow-2-16", "tensorflow-on-spark", "hdinsight-deep-learning")
#: Pages, and the names of runs in them.
FIRST = (
    [*PAGES[:2], *(page for page in PAGES if page.stem in FOUND)],
    "digits circle without_hvd compared forecast",
)
ALL = (PAGES, f"{FIRST[1]} diagnosis loop half summed averaged widths")


@pytest.fixture(scope="module", params=[FIRST, pytest.param(ALL, marks=pytest.mark.slow)], ids=["first", "all"])
def ran(request):
    """(block, answer) of each; the last is that of the runs' states."""
    pages, runs = request.param
    kernel = Kernel()
    try:
        answers = []
        for block in runnable(pages):
            answers.append((block, kernel.run(block.code)))
            if answers[-1][1].error:
                break
        answers.append((None, kernel.run(f"print([{runs}.state])".replace(" ", ".state, "))))
        yield answers
    finally:
        kernel.close()
    assert not wait_until_gone()


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_blocks_run_in_a_notebook(ran):
    for block, answer in ran:
        assert not answer.error, f"{block.page}:{block.line}: {answer.error}: {answer.message}\n{answer.traceback}"
    assert set(ast.literal_eval(ran[-1][1].text)) == {"FINISHED"}
