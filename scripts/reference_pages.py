"""Writes the reference pages that are made from the code: `make docs`. A test compares the pages with the code.

docs/commands.md is the table of commands. docs/run.md and docs/ddl.md come from docstrings, docs/events.md from the
schema of events, docs/rest.md from the server's OpenAPI document.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ddl_magics.commands import help
from ddl_magics.runs.run import Run
from ddl_magics.runtime import events
from ddl_magics.runtime.cell.execution import Helper

ROOT = Path(__file__).resolve().parent.parent
OPENAPI = ROOT / "ddl_magics" / "server" / "openapi.yaml"

Schema = Mapping[str, Any]

_SECTION = re.compile(r"^(Args|Raises|Attributes):\n", re.MULTILINE)
_TITLES = {"Args": "Parameters", "Raises": "Raises"}
_METHODS_OF_HTTP = ("get", "post", "put", "patch", "delete")


def pages() -> dict[str, str]:
    """File name in docs/ -> its text."""
    return {
        "commands.md": _commands_page(),
        "run.md": _run_page(),
        "ddl.md": _ddl_page(),
        "events.md": _events_page(),
        "rest.md": _rest_page(),
    }


def _made_from(source: str) -> str:
    return f"<!-- Made by `make docs` from {source}: change it there. -->"


def _commands_page() -> str:
    return f"""# Commands: `%ddl`

{_made_from("ddl_magics/commands/table.py")}

`%ddl` without a verb prints what may be useful next for the newest run, and lists the verbs. `%ddl VERB --help`
explains a verb's options. In a terminal, `ddl-magics --help` lists the commands that need no kernel. The object `ddl`
of a training cell is something else: [`ddl`](ddl.md).

## `--json`

Each verb of `ddl-magics` prints one line of JSON with `--json`, and nothing else on standard output: messages go to
standard error. The exit status is that without `--json`. A mistake is an object with the key `error`, one line of text.
The keys of answers stand below, with each verb; one with several answers leaves out the keys of the others. Times are
ISO 8601 in UTC, sizes are bytes, and a number that is not finite is null. Neither cells nor `--conf` are in an answer.

```bash
ddl-magics runs --json state:finished | jq -r '.runs[] | [.name, .metrics.val_accuracy] | @tsv'
```

`ddl-magics serve RUN --json` prints its line when the model is served, and goes on.

{help.markdown()}
"""


def _run_page() -> str:
    offered = dir(Run.__new__(Run))  # what completion offers
    documented = [(name, vars(Run)[name]) for name in offered if inspect.getdoc(vars(Run).get(name))]
    attributes = "\n".join(_attribute(name, member) for name, member in documented if isinstance(member, property))
    methods = "\n".join(_method(f"run.{name}", member) for name, member in documented if inspect.isfunction(member))
    return (
        f"""# `Run`

{_made_from("ddl_magics/runs/run.py")}

`%%distributed --name digits` defines the variable `digits`, a `Run`. As the last value of a cell it is
drawn: as a card while it goes on, and with all its charts once it has ended.
`run.events` has all that the run has reported: [events](events.md).

{_markdown(inspect.getdoc(Run) or "")}

## Attributes

{attributes}
## Methods

{methods}""".rstrip("\n")
        + "\n"
    )


def _attribute(name: str, member: Any) -> str:
    return f"### `run.{name}`\n\n{_markdown(inspect.getdoc(member) or '')}\n"


def _method(name: str, member: Any) -> str:
    return f"### `{name}{_signature(member)}`\n\n{_markdown(inspect.getdoc(member) or '')}\n"


def _signature(function: Any) -> str:
    """`(timeout=None)`: the parameters without `self` and types."""
    plain = inspect.Parameter.empty
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return str(inspect.Signature([parameter.replace(annotation=plain) for parameter in parameters]))


def _markdown(docstring: str) -> str:
    """A docstring with sections of Google's style as Markdown."""
    text, *sections = _SECTION.split(docstring)
    parts = [text.strip()]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries = re.split(r"\n(?=\S)", textwrap.dedent(body).strip())
        named = [" ".join(entry.split()).partition(": ") for entry in entries]
        lines = [f"- `{name}`: {meaning}" for name, _, meaning in named]
        parts.append("\n".join(lines if title == "Attributes" else [f"**{_TITLES[title]}**", "", *lines]))
    return "\n\n".join(filter(None, parts))


def _ddl_page() -> str:
    functions = [member for name, member in vars(Helper).items() if inspect.isfunction(member) and name[0] != "_"]
    methods = "\n".join(_method(f"ddl.{member.__name__}", member) for member in functions)
    return (
        f"""# What a cell can use

{_made_from("ddl_magics/runtime/cell/execution.py and scripts/reference_pages.py")}

Beside the variables of the notebook, a `%%distributed` cell has these names.

| | |
|---|---|
| `dataset`, `validation` | with `--data` and `--validation`: [what they give](data.md#what-dataset-gives) |
| `strategy` | with `--strategy tf-allreduce` and `tf-ps`: the strategy of `tf.distribute` |
| `keras`, `tf`, `np` | imported where the cell uses the name without an import |
| `ddl` | the rank, and what ranks do together, as below |

Every rank must call `allreduce`, `barrier`, `all_gather`, `all_rows` and `result` alike.
[Training loops of your own](loops.md) has an example of `ddl.distribute`, `ddl.log` and `ddl.result`.

## `ddl`

{_markdown(inspect.getdoc(Helper) or "")}

{methods}""".rstrip("\n")
        + "\n"
    )


def _events_page() -> str:
    common = events.json_schema()["oneOf"][0]["properties"]
    envelope = {name: common[name] for name in ("v", "run", "attempt", "rank", "seq", "time")}
    kinds = "\n".join(_event_kind(name, kind) for name, kind in events.SCHEMA.items())
    return (
        f"""# Events

{_made_from("ddl_magics/runtime/events.py")}

All that a run reports is a list of events: `run.events` in the notebook, `events.jsonl` in the run's folder, and
`GET /ddl_magics/runs/RUN/events` over [REST](rest.md). An event is a JSON object. Sizes are in bytes, times in seconds.
A reader ignores kinds and fields that it does not know.

## Fields of every event

{_fields(envelope)}

`rank` is {events.JOB} for events of the whole run. Old events of a long run are
[merged](stored-runs.md#long-runs); then `first` is the `seq` of the first event that this one stands for.

{kinds}""".rstrip("\n")
        + "\n"
    )


def _event_kind(name: str, kind: events.EventKind) -> str:
    table = _fields({**kind.required, **kind.optional}, kind.required)
    return f"## `{name}`\n\n{_sentence(kind.description)}\n\n{table}\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _fields(fields: Mapping[str, Schema], required: Iterable[str] | None = None) -> str:
    """A table; optional fields are marked."""
    rows = []
    for name, schema in fields.items():
        optional = "" if required is None or name in required else "optional"
        meaning = str(schema.get("description", ""))
        rows.append(f"| `{name}` | {_type(schema)} | {_cell('; '.join(filter(None, [optional, meaning])))} |")
    return "\n".join(["| field | type | |", "|---|---|---|", *rows])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _type(schema: Schema) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(one) for one in schema[several])
    named = schema.get("type", "any value")
    words = " or ".join(named) if isinstance(named, Sequence) and not isinstance(named, str) else str(named)
    if "items" in schema:
        return f"{words} of {_type(schema['items'])}"
    return words


def _rest_page() -> str:
    document = yaml.safe_load(OPENAPI.read_text(encoding="utf-8"))
    routes = list(_routes(document))
    overview = "\n".join(f"| `{verb} {path}` | {route['summary']} |" for verb, path, route in routes)
    details = "\n".join(_route(verb, path, route, document) for verb, path, route in routes)
    answers = str([document["paths"], document["components"]["responses"]])
    named = sorted(set(re.findall(r"#/components/schemas/(\w+)", answers)))
    objects = "\n".join(_object(name, document["components"]["schemas"][name]) for name in named)
    return (
        f"""# REST

{_made_from("ddl_magics/server/openapi.yaml")}

{document["info"]["description"].strip()}

The server has the whole document, with every schema, under `GET /ddl_magics/openapi.yaml`.

| route | |
|---|---|
{overview}

## Routes

{details}
## Objects

{objects}""".rstrip("\n")
        + "\n"
    )


def _routes(document: Schema) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for verb in _METHODS_OF_HTTP:
            if verb in item:
                shared = item.get("parameters", [])
                yield verb.upper(), path, {**item[verb], "parameters": [*shared, *item[verb].get("parameters", [])]}


def _route(verb: str, path: str, route: Schema, document: Schema) -> str:
    parts = [f"### `{verb} {path}`", f"{route['summary']}.", str(route.get("description", "")).strip()]
    parameters = [_resolved(parameter, document) for parameter in route["parameters"]]
    if parameters:
        rows = [_parameter(parameter) for parameter in parameters]
        parts.append("\n".join(["| parameter | in | type | |", "|---|---|---|---|", *rows]))
    if "requestBody" in route:
        parts.append(f"The body is {_content(route['requestBody'])}.")
    answers = {code: _resolved(answer, document) for code, answer in route["responses"].items()}
    rows = [f"| {code} | {_cell(answer['description'])} | {_content(answer)} |" for code, answer in answers.items()]
    parts.append("\n".join(["| answer | | |", "|---|---|---|", *rows]))
    return "\n\n".join(filter(None, parts)) + "\n"


def _resolved(value: Schema, document: Schema) -> Schema:
    if "$ref" not in value:
        return value
    found: Any = document
    for key in value["$ref"].removeprefix("#/").split("/"):
        found = found[key]
    return dict(found)


def _parameter(parameter: Schema) -> str:
    schema = parameter["schema"]
    default = f"default {schema['default']}" if "default" in schema else ""
    meaning = "; ".join(filter(None, [default, str(parameter.get("description", ""))]))
    return f"| `{parameter['name']}` | {parameter['in']} | {_type(schema)} | {_cell(meaning)} |"


def _content(answer: Schema) -> str:
    """What a body is: its schema for JSON, else its media types."""
    content = answer.get("content", {})
    if "application/json" in content:
        return _type(content["application/json"]["schema"])
    return ", ".join(content)


def _object(name: str, schema: Schema) -> str:
    about = [_sentence(schema["description"])] if "description" in schema else []
    if "properties" in schema:
        about.append(_fields(schema["properties"], schema.get("required", [])))
    else:
        about.append(_sentence(_type(schema)))
    return "\n\n".join([f"### `{name}`", *about]) + "\n"


if __name__ == "__main__":
    for file, text in pages().items():
        (ROOT / "docs" / file).write_text(text, encoding="utf-8")
        print(f"wrote {file}")
