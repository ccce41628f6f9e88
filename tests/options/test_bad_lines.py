"""The lines of %%distributed and %ddl with anything in them: a run is asked for, or one line says what is wrong."""

import json

import pytest
from hypothesis import strategies as st
from IPython.core.error import UsageError
from support.bad_input import NASTY, SECRET, TEXTS, each, one_line, tried

from ddl_magics.commands.table import BY_VERB, COMMANDS
from ddl_magics.notebook.completion import candidates
from ddl_magics.options.parsing import parse, typed_values
from ddl_magics.options.table import OPTIONS
from ddl_magics.options.words import split
from ddl_magics.runtime.run_spec import RunSpec

VALUES = st.one_of(
    TEXTS,
    st.sampled_from(
        [
            "4",
            "ps",
            "adag",
            "0.5",
            "a,b",
            "10m",
            "9" * 400 + "h",
            "9" * 5000,
            "spark.x=1",
            f"=spark.password={SECRET}",
            f"s3a://key:{SECRET}@bucket/x",
            f"s3a://key:{SECRET}@[bucket/x",
            f"ftp://user:{SECRET}@host",
            f"http://user:{SECRET}@[host",
            f"abfs://x?sig={SECRET}",
            "http://host:port",
            "http://host:99999",
            "https://[::1",
            "topk:nan",
            "topk:1e999",
            "adag:x=1",
            "aeasgd:rho=inf",
            "30d",
            "1e5GB",
            "9" * 400 + "GB",
        ]
    ),
)
FLAGS = st.sampled_from([option.flag for option in OPTIONS]) | TEXTS.map("--".__add__)
QUOTES = st.sampled_from(["{}", "'{}'", '"{}"', "'{}", "{}\\"])


@st.composite
def lines(draw, flags=FLAGS):
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        word = draw(flags) if draw(st.integers(0, 4)) else draw(VALUES)
        if draw(st.integers(0, 3)):
            word += draw(st.sampled_from([" ", "=", "= "])) + draw(QUOTES).replace("{}", draw(VALUES))
        parts.append(word)
    # A magic's line is one: IPython splits a cell at its line feeds.
    return " ".join(parts).replace("\n", " ")


def refused(parse, *arguments):
    """What `parse` returns; None where it refuses in one line."""
    try:
        return parse(*arguments)
    except UsageError as error:
        assert one_line(str(error)), str(error)
        return None


@tried(300, 20_000)
def test_a_line_of_distributed(count):
    def check(line):
        spec = refused(parse, line)
        if spec is not None:
            record = json.loads(json.dumps(spec.to_record(), allow_nan=False))
            again = RunSpec.from_record({**record, "wait": spec.wait})
            assert again == RunSpec(**{**vars(spec), "send": None, "dry_run": None}), (
                "a stored run has the same options"
            )

    each(lines(), count, check)


@tried(100, 5000)
def test_a_line_of_ddl(count):
    def check(line):
        texts = refused(split, line) or []
        for command in COMMANDS:
            refused(command.read, texts)

    each(
        lines(st.sampled_from([option.flag for command in COMMANDS for option in command.options])),
        count,
        check,
    )


@tried(100, 5000)
def test_completion_of_any_line(count):
    def check(line):
        for start in ("%%distributed ", "%ddl ", *(f"%ddl {verb} " for verb in BY_VERB), ""):
            assert all(isinstance(text, str) for text in candidates(start + line, {}, lambda: ["run_1"]))

    each(lines(), count, check)


@pytest.mark.parametrize("text", NASTY)
def test_every_option_with_each_nasty_text(text):
    for option in OPTIONS:
        refused(typed_values, f"{option.flag}='{text}'".replace("\n", " "))
