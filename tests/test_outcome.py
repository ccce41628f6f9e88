"""What is told of an exception of TensorFlow: its last words."""

import pytest

from ddl_magics.runtime.outcome import essence

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
