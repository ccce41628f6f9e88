"""The table of commands: a verb reads the words that its help names, and no others."""

import ast
import inspect

import pytest
from IPython.core.error import UsageError
from support.refusals import refusal

from ddl_magics.commands import help
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.table import BY_VERB, COMMANDS
from ddl_magics.options.words import read_value


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_a_verb_takes_the_words_of_its_rows_and_no_others(command):
    """As parameters of its function, which reads each of them."""
    kernel, *parameters = inspect.signature(command.run).parameters.values()
    assert (kernel.name, kernel.annotation) == ("kernel", Kernel.__name__)
    names = [parameter.name for parameter in parameters]
    assert sorted(names) == sorted(option.name for option in command.options)
    assert all(parameter.default is parameter.empty for parameter in parameters), "the rows have the defaults"
    nodes = ast.walk(ast.parse(inspect.getsource(command.run)))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert set(names) <= read, "the function does not read this word"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_help_and_usage_name_every_word(command):
    text = help.of_command(command)
    assert command.verb in help.overview() and command.help in text
    for option in command.rows:
        assert option.usage in command.usage and f"  {option.usage}\n      {option.help}" in text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_a_word_that_no_row_has_is_refused(command):
    words = [next(iter(option.choices)) if option.choices else "1" for option in command.options if option.positional]
    says = f"{command.name} has no option --no-such-word"
    assert says in refusal(command.read, [*words, "--no-such-word"])


def test_an_example_in_a_metavar_is_a_value_of_the_option():
    for command in COMMANDS:
        for option in command.options:
            if option.metavar[:1].isdigit():
                read_value(option, option.metavar)


def test_an_option_that_stands_alone():
    serve = BY_VERB["serve"]
    assert serve.usages[1] == "%ddl serve --stop NAME [--json]" and serve.read(["--stop", "digits"])["stop"] == "digits"
    for line in ("--stop digits --detached", "digits --stop digits"):
        with pytest.raises(UsageError, match="write: %ddl serve RUN"):
            serve.read(line.split())
    with pytest.raises(UsageError, match=r"--to needs 2 values: --to kserve\|azureml FOLDER"):
        serve.read(["digits", "--to", "kserve"])


def test_what_follows_two_dashes_is_no_option():
    assert BY_VERB["note"].read(["digits", "--", "--keep", "this"])["text"] == ("--keep", "this")
    assert BY_VERB["runs"].read(["--", "state:failed", "-tag:paper"])["query"] == ("state:failed", "-tag:paper")


def test_a_note_may_have_words_with_dashes():
    note = BY_VERB["note"]

    def text(line):
        return note.read(note.split(line))["text"]

    assert text('digits "--sparse helped" with --seed 3') == ("--sparse helped", "with", "--seed", "3")
    assert text("digits") == () and text('digits ""') == ("",)
    with pytest.raises(UsageError, match="%ddl note has no option --text"):
        text("--text digits")
