"""The parameters of a cell, as a search reads them from the source, and as a rank gives them their values."""

import pytest
from support.refusals import refusal

from ddl_magics.runtime.cell.suggestions import (
    BadSuggestion,
    Suggestions,
    suggest_categorical,
    suggest_float,
    suggest_int,
)
from ddl_magics.search import space

CELL = """
lr = ddl.suggest_float("lr", 1e-4, 10 ** -1, log=True, default=1e-2)
units = ddl.suggest_int("units", 2 * 8, 256, log=True)

def layer():
    return ddl.suggest_categorical("act", ("relu", None, True, 2))
"""


def test_the_parameters_of_a_cell():
    found = space.parameters(CELL)
    assert found == {
        "lr": suggest_float("lr", 1e-4, 0.1, log=True, default=1e-2),
        "units": suggest_int("units", 16, 256, log=True),
        "act": suggest_categorical("act", ["relu", None, True, 2]),
    }
    assert list(space.searched(CELL, {"act": "relu"})) == ["lr", "units"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("suggest_float('a', 1, 0)", "line 1: a: low must not be above high, and 1 is above 0."),
        ("suggest_float('a', 0, 1, log=True)", "line 1: a: log=True needs a low above 0, not 0."),
        ("suggest_int('a', 1, 9, step=2, log=True)", "line 1: a: log=True has no step: leave one of them out."),
        ("suggest_int('a', 1, 9.5)", "line 1: a: low, high and step of suggest_int must be whole numbers, not 9.5."),
        ("suggest_int('a', 1, 9, step=2, default=2)", "line 1: the default of a=2 is not on its grid: 1, 3 and so on."),
        ("suggest_float('a', 1)", "line 1: ddl.suggest_float() missing 1 required positional argument: 'high'."),
        ("suggest_categorical('a', 'relu')", "line 1: a: the choices must be a list such as"),
        ("suggest_categorical('a', [1, '1'])", "line 1: a: two of its choices read 1: write each once."),
        ("suggest_int('a=', 1, 2)", "line 1: the name of a parameter must be a word without an equals sign, not 'a='."),
        ("suggest_float('a', 1, 10 ** 60 * 10 ** 60 * 10 ** 60 * 10 ** 60 * 10 ** 60 * 10 ** 60)", "is too large."),
        ("suggest_unit('a', 1, 2)", "Did you mean suggest_int?"),
        ("suggest_int(f'a{i}', 1, 2)", "line 1: a search reads its parameters before the cell runs: write f'a{i}' as"),
        ("suggest_int('a', 1, LARGEST)", "write LARGEST as a number, text or list of these."),
        ("suggest_int", "call ddl.suggest_int directly."),
        ("suggest_int('a', **ranges)", "write its arguments out, without **."),
        ("suggest_int('a', 1, 2), ddl.suggest_int('a', 1, 3)", "a is suggested twice, with different ranges"),
        ("rank", "--trials needs something to search for"),
    ],
)
def test_what_a_search_cannot_read(call, message):
    assert message in refusal(space.parameters, "x = ddl." + call)


def test_what_set_may_say():
    wrong = "--set unit: the cell has no parameter unit. Did you mean units?"
    assert refusal(space.searched, CELL, {"unit": "1"}) == wrong
    assert refusal(space.searched, CELL, {"lr": "1"}) == "--set lr=1.0 is out of range: it is from 0.0001 to 0.1."
    assert "--set units must be a whole number, not '1.5'" in refusal(space.searched, CELL, {"units": "1.5"})
    assert "--set act=rely is none of its choices" in refusal(space.searched, CELL, {"act": "rely"})
    for name, text in (("lr", "9" * 5000), ("units", "9" * 5000), ("act", "\x1b[31m" * 999), ("x" * 999, "\r")):
        assert len(refusal(space.searched, CELL, {name: text})) < 300
        assert refusal(space.searched, CELL, {name: text}).isprintable()
    assert "--set lr=nan is out of range" in refusal(space.searched, CELL, {"lr": "nan"})
    everything = {"lr": "0.01", "units": "16", "act": "None"}
    assert "nothing to search for" in refusal(space.searched, CELL, everything)
    space.check_values(CELL, everything)
    space.check_values("x = ddl.suggest_int(name, 1, 2)", {"anything": "1"})  # only the rank can tell
    assert refusal(space.check_values, CELL, {"act": "relu"}).startswith("line 3: units has no value: write --set")
    unknown = refusal(space.check_values, "model.fit(x)", {"lr": "1"})
    assert unknown == "--set lr: the cell has no parameter lr. Write lr = ddl.suggest_float('lr', LOW, HIGH) in it."


def test_the_grid():
    cell = "a = ddl.suggest_float('a', 0, 0.3, step=0.1), ddl.suggest_int('b', 1, 6, step=2)"
    cell += ", ddl.suggest_categorical('c', [None, 'x'])"
    values = space.grid(space.parameters(cell))
    assert values == {"a": [0.0, 0.1, 0.2, 0.3], "b": [1, 3, 5], "c": [None, "x"]}
    assert space.grid_size(values) == 24
    assert "lr has no step" in refusal(space.grid, space.parameters(CELL))
    many = space.parameters("ddl.suggest_int('a', 1, 10**9)")
    assert "a has too many values" in refusal(space.grid, many)


def test_a_rank_has_the_value_of_the_run_or_the_default():
    lr, act = suggest_float("lr", 0, 1, default=0.5), suggest_categorical("act", [None, True, 3], default=None)
    given = Suggestions({"lr": repr(0.1 + 0.2), "act": "True", "other": "1"}, searched=False)
    assert given.value(lr) == 0.1 + 0.2 and given.value(act) is True
    assert given.unused() == ["other"]
    default = Suggestions({}, searched=False)
    assert default.value(lr) == 0.5 and default.value(act) is None
    with pytest.raises(BadSuggestion, match="units has no value: write --set units=VALUE, or give the call a default="):
        default.value(suggest_int("units", 1, 2))
    with pytest.raises(BadSuggestion, match="lr is suggested twice, with different ranges"):
        default.value(suggest_float("lr", 0, 2, default=0.5))


def test_a_trial_has_no_defaults():
    """Else a parameter that the search did not see would silently keep its default in all trials."""
    with pytest.raises(BadSuggestion, match="the search has no value for lr"):
        Suggestions({}, searched=True).value(suggest_float("lr", 0, 1, default=0.5))
