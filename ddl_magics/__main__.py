"""The verbs of `%ddl` for stored runs as a command line: `ddl-magics runs`, or `python -m ddl_magics runs`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics._version import __version__
from ddl_magics.clusters.choice import Choice
from ddl_magics.commands import help
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.runs import StopAnswer
from ddl_magics.commands.table import BY_VERB
from ddl_magics.options.redaction import as_word
from ddl_magics.options.similar import verb as verb_hint
from ddl_magics.options.words import wants_help
from ddl_magics.runs import ending
from ddl_magics.runs.ending import Ending
from ddl_magics.serving import launch
from ddl_magics.session.session import Session
from ddl_magics.wording import visible, visible_print


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if the command could not be carried out; 2 if there is no such command."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    verbs = [verb for verb, command in BY_VERB.items() if command.in_terminal]
    verb = words[0] if words else ""
    if verb == "--version":
        print(f"ddl_magics {__version__}")
        return 0
    if verb in ("--help", "-h"):
        print(help.in_terminal())
        return 0
    if verb not in verbs:
        problem = f"no command {as_word(verb)}.{verb_hint(verb, verbs)}" if verb else "name a command."
        print(f"{problem} The commands are {', '.join(verbs)}: ddl-magics --help", file=sys.stderr)
        return 2
    if wants_help(words):
        print(_as_typed_here(help.of_command(BY_VERB[verb])))
        return 0
    try:
        return _run(verb, words[1:])
    except UsageError as error:
        print(visible(_as_typed_here(str(error))), file=sys.stderr)
        return 1


def _run(verb: str, words: Sequence[str]) -> int:
    choice = Choice(None)
    kernel = Kernel(Session(None, choice.cluster), choice=choice, end_run=_end_stored_run)
    result = BY_VERB[verb].execute(kernel, words)
    text = visible_print(str(result)) if verb == "logs" else visible(str(result))
    if text:
        print(text, flush=True)
    if verb == "serve":
        return int(launch.wait(partial(print, flush=True)) != 0)
    return int(isinstance(result, StopAnswer) and not result.success)


def _end_stored_run(session: Session, name_or_id: str) -> Ending:
    """End a stored run, even if its kernel is gone. Its events, which may be large, are not read for that."""
    record = store.find_run(name_or_id)
    return ending.ask(session.find(name_or_id)) if record is None else ending.end_run(record)


def _as_typed_here(text: str) -> str:
    return text.replace("%ddl ", "ddl-magics ")


if __name__ == "__main__":
    raise SystemExit(main())
