"""What is told of an exception of TensorFlow: its last words."""

import sys
from types import SimpleNamespace

import pytest

from ddl_magics.runtime.cell.ending import _traceback, essence, observe
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.stopping import NotANumber

RANK = SimpleNamespace(
    config=SimpleNamespace(rank=1, spec=RunSpec(cell="")),
    stop=SimpleNamespace(asked=False),
    errors=SimpleNamespace(first=None),
    cluster=None,
)
MESSAGES = {
    "TensorFlow 2.21": (
        "Graph execution error:\n\nDetected at node loss/Assert defined at (most recent call last):\n"
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n\n  File "<cell>", line 4, in <module>\n\n'
        "Received a label value of 6 which is outside the valid range of [0, 2).  Label values: 6 5\n"
        "\t [[{{node loss/Assert}}]] [Op:__inference_multi_step_on_iterator_1070]"
    ),
    "TensorFlow 2.13": (
        "Graph execution error:\n\nDetected at node 'loss/Assert' defined at (most recent call last):\n"
        '    File "<frozen runpy>", line 198, in _run_module_as_main\n    File "<cell>", line 4, in <module>\n'
        "      model.fit(x, y)\nNode: 'loss/Assert'\n"
        "Received a label value of 6 which is outside the valid range of [0, 2).  Label values: 6 5\n"
        "\t [[{{node loss/Assert}}]] [Op:__inference_train_function_1070]"
    ),
    "while Keras 2 traces": (
        'in user code:\n\n    File "training.py", line 1338, in train_function  *\n        return step_function(self)\n'
        '    File "<cell>", line 4, in call  **\n        raise ValueError(text)\n\n'
        "    ValueError: Received a label value of 6 which is outside the valid range of [0, 2).  Label values: 6 5\n"
    ),
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_trace_is_left_out(message):
    said = "Received a label value of 6 which is outside the valid range of [0, 2).  Label values: 6 5"
    assert essence(message) == essence(said) == said

    def cell():
        raise ValueError(message)

    failure = observe(cell, RANK).failure
    assert (failure.rank, failure.kind, failure.message) == (1, "error", f"ValueError: {said}")


def _failed(source, **options):
    """The message of a cell that raises `source`, an expression or a statement."""
    config = SimpleNamespace(rank=0, spec=RunSpec(cell="", **options))
    return observe(lambda: exec(source), SimpleNamespace(**{**vars(RANK), "config": config})).failure.message


@pytest.mark.parametrize(
    ("source", "options", "advice"),
    [
        (
            "import nosuchlib.part",
            {},
            f"No module named 'nosuchlib'. The workers' Python is {sys.executable}, and has no nosuchlib: install it "
            "there, or bring a module of your own with --files nosuchlib.py.",
        ),
        ("import json.nosuchpart", {}, "No module named 'json.nosuchpart'"),
        (
            "raise ValueError('None values not supported.')",
            {"data": "tumours"},
            "ValueError: None values not supported. dataset has no labels, as --label COLUMN is missing: add it, or "
            "give the model a loss of its own.",
        ),
        ("raise ValueError('None values not supported.')", {"data": "t", "label": "y"}, "None values not supported."),
        (
            "raise ValueError('Invalid dtype: str672')",
            {},
            "ValueError: Invalid dtype: str672. Labels or features are text, and a model wants numbers: encode them "
            "with classes, y = np.unique(labels, return_inverse=True), or with keras.layers.StringLookup.",
        ),
        ("raise ValueError('Invalid dtype: object')", {}, "or with keras.layers.StringLookup."),
        ("raise RuntimeError('Cast string to float is not supported')", {}, "or with keras.layers.StringLookup."),
        ("float('a')", {}, "ValueError: could not convert string to float: 'a'"),
    ],
)
def test_words_that_name_no_way_out_get_one(source, options, advice):
    assert _failed(source, **options).endswith(advice)


def test_an_exit_of_the_cell_is_no_crash():
    failure = observe(lambda: sys.exit(3), RANK).failure
    assert (failure.rank, failure.kind) == (1, "exit") and failure.message.startswith(
        "the cell called sys.exit(3); let"
    )


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_the_traceback_has_the_cells_lines_of_the_graph_alone(message):
    try:
        raise ValueError(message)
    except ValueError as error:
        shown = _traceback(error)
    assert '  File "<cell>", line 4' in shown and "Received a label value of 6" in shown
    assert "runpy" not in shown and "training.py" not in shown


def test_our_exceptions_are_shown_without_the_name_of_their_module():
    assert _traceback(NotANumber(0, "the loss is NaN")) == "NotANumber: the loss is NaN\n"


def test_bold_words_of_a_message_are_plain():
    def fail():
        raise ValueError("\x1b[1mInput 0 with name 'x'\x1b[0m has rank 1")

    failure = observe(fail, RANK).failure
    assert failure.message == "ValueError: Input 0 with name 'x' has rank 1" and "\x1b" not in failure.traceback
