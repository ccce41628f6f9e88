"""The table of commands: a verb reads the words that its help names, and no others."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil

import pytest
from IPython.core.error import UsageError

from ddl_magics import commands, scaling
from ddl_magics.commands import help
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.table import BY_VERB, COMMANDS
from ddl_magics.options.words import read_value

MODULES = [
    importlib.import_module(f"{package.__name__}.{module.name}")
    for package in (commands, scaling)
    for module in pkgutil.iter_modules(package.__path__)
]


def attributes_read(name):
    """The attributes that functions read of their parameter of the type of this name, and that its methods read."""
    read = set()
    for module in MODULES:
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ClassDef) and node.name == name:
                read |= _of(node, "self")
            elif isinstance(node, ast.FunctionDef):
                for parameter in node.args.args:
                    if parameter.annotation is not None and ast.unparse(parameter.annotation) == name:
                        read |= _of(node, parameter.arg)
    return read


def _of(node, variable):
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == variable
    }


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_a_verb_reads_the_words_of_its_rows_and_no_others(command):
    """Its function gets a frozen request, whose fields are the rows; the function reads each of them."""
    fields = {field.name for field in dataclasses.fields(command.request)}
    assert fields == {option.name for option in command.options}
    assert len(fields) == len(command.options), "two rows set one field"
    assert fields <= attributes_read(command.request.__name__), "no function reads this word"
    request, kernel = inspect.signature(command.run).parameters.values()
    assert (request.annotation, kernel.annotation) == (command.request.__name__, Kernel.__name__)
    assert command.request.__dataclass_params__.frozen


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_help_and_usage_name_every_word(command):
    text = help.of_command(command)
    assert command.verb in help.overview() and command.help in text
    for option in command.options:
        assert option.usage in command.usage and f"  {option.usage}\n      {option.help}" in text


def test_requests_have_names_of_their_own():
    requests = [command.request for command in COMMANDS if command.options]
    assert len({request.__name__ for request in requests}) == len(requests)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_a_word_that_no_row_has_is_refused(command):
    words = [option.choices[0] if option.choices else "1" for option in command.options if option.positional]
    with pytest.raises(UsageError) as caught:
        command.read([*words, "--no-such-word"])
    assert f"%ddl {command.verb} has no option --no-such-word" in str(caught.value)


def test_an_example_in_a_metavar_is_a_value_of_the_option():
    for command in COMMANDS:
        for option in command.options:
            if option.metavar[:1].isdigit():
                read_value(option, option.metavar)


def test_an_option_that_stands_alone():
    serve = BY_VERB["serve"]
    assert serve.usages[1] == "%ddl serve --stop NAME" and serve.read(["--stop", "digits"]).stop == "digits"
    for line in ("--stop digits --detached", "digits --stop digits"):
        with pytest.raises(UsageError, match="write: %ddl serve RUN"):
            serve.read(line.split())
    with pytest.raises(UsageError, match=r"--to needs 2 values: --to kserve\|azureml FOLDER"):
        serve.read(["digits", "--to", "kserve"])


def test_what_follows_two_dashes_is_no_option():
    assert BY_VERB["note"].read(["digits", "--", "--keep", "this"]).text == ("--keep", "this")
    assert BY_VERB["runs"].read(["--", "state:failed", "-tag:paper"]).query == ("state:failed", "-tag:paper")


def test_a_note_may_have_words_with_dashes():
    note = BY_VERB["note"]
    assert note.read(note.split('digits "--sparse helped" with --seed 3')).text == (
        "--sparse helped",
        "with",
        "--seed",
        "3",
    )
    assert note.read(note.split("digits")).text == () and note.read(note.split('digits ""')).text == ("",)
    with pytest.raises(UsageError, match="%ddl note has no option --text"):
        note.read(note.split("--text digits"))
