"""The verbs of `%ddl` for stored runs as a command line: `ddl-magics runs`, or `python -m ddl_magics runs`."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from functools import partial

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics._version import __version__
from ddl_magics.clusters.choice import Choice
from ddl_magics.commands import help
from ddl_magics.commands.answer import Answer, as_json
from ddl_magics.commands.command import JSON
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.table import BY_VERB
from ddl_magics.options.redaction import as_word
from ddl_magics.options.similar import verb as verb_hint
from ddl_magics.options.words import wants_help
from ddl_magics.runs import ending
from ddl_magics.runs.ending import Ending
from ddl_magics.serving import launch
from ddl_magics.session.session import Session
from ddl_magics.wording import first_line, visible, visible_print

VERBS = [verb for verb, command in BY_VERB.items() if command.in_terminal]
#: In a text for a notebook: what a terminal has as well.
_IN_NOTEBOOK = re.compile(rf"%ddl (?=({'|'.join(VERBS)})\b)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if the command could not be carried out; 2 if there is no such command.

    With --json, standard output has one line of JSON in any case: the verb's answer, or {"error": "..."}.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    verb = words[0] if words else ""
    if verb == "--version":
        print(f"ddl_magics {__version__}")
        return 0
    if verb in ("--help", "-h") or words == ["help"]:
        print(help.in_terminal())
        return 0
    if verb == "help":
        verb, words = words[1], [words[1], "--help"]
    in_json = JSON.flag in (words[: words.index("--")] if "--" in words else words)
    if verb not in VERBS:
        problem = f"no command {as_word(verb)}.{verb_hint(verb, VERBS)}" if verb else "name a command."
        _print_problem(f"{problem} The commands are {', '.join(VERBS)}: ddl-magics --help", in_json)
        return 2
    if wants_help(words):
        print(_as_typed_here(help.of_command(BY_VERB[verb])))
        return 0
    try:
        return _run(verb, words[1:], in_json)
    except UsageError as error:
        _print_problem(str(error), in_json)
    except Exception as error:
        if not in_json:
            raise
        traceback.print_exc()
        _print_problem(f"{type(error).__name__}: {first_line(error)}", in_json)
    return 1


def _run(verb: str, words: Sequence[str], in_json: bool) -> int:
    choice = Choice(None)
    kernel = Kernel(Session(None, choice.cluster), choice=choice, end_run=_end_stored_run)
    answer: Answer = BY_VERB[verb].execute(kernel, words)
    text = answer.text
    if verb == "logs":
        text = visible_print(text)
    else:  # what is stored, and what programs read, stays as it is
        text = visible(text if in_json or verb == "show" else _as_typed_here(text))
    if text:
        print(text, flush=True)
    if verb == "serve" and "url" in answer.value:
        report = partial(print, flush=True, file=sys.stderr if in_json else sys.stdout)
        return int(launch.wait(report) != 0)
    return answer.status


def _end_stored_run(session: Session, name_or_id: str) -> Ending:
    """End a stored run, even if its kernel is gone. Its events, which may be large, are not read for that."""
    record = store.find_run(name_or_id)
    return ending.ask(session.find(name_or_id)) if record is None else ending.end_run(record)


def _print_problem(problem: str, in_json: bool) -> None:
    text = visible(_as_typed_here(problem))
    if in_json:
        print(as_json({"error": text}), flush=True)
    else:
        print(text, file=sys.stderr)


def _as_typed_here(text: str) -> str:
    return _IN_NOTEBOOK.sub("ddl-magics ", text)


if __name__ == "__main__":
    raise SystemExit(main())
