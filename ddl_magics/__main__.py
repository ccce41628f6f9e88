"""The verbs of `%ddl` for stored runs as a command line: `ddl-magics runs`, or `python -m ddl_magics runs`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics._version import __version__
from ddl_magics.commands import clean, serve
from ddl_magics.history.query import QueryError, parse_words
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run, ending, run_text
from ddl_magics.search import Search, ask_to_stop, exporting
from ddl_magics.search.found import listed
from ddl_magics.serving import launch
from ddl_magics.wording import nearest


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 if there is no such run or it could not be stopped."""
    parser = argparse.ArgumentParser(prog="ddl-magics", description="Runs of %%distributed cells.")
    parser.add_argument("--version", action="version", version=f"ddl_magics {__version__}")
    subparsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    lister = subparsers.add_parser("runs", help="the newest runs, of all notebooks, or those that match a query")
    lister.add_argument("query", metavar="TERM", nargs="*", help="such as state:failed 'val_accuracy>0.9' tag:paper")
    for verb, help in (
        ("show", "a run's figures"),
        ("logs", "what a run printed"),
        ("export", "write a run, or a search with its trials, to a zip file"),
        ("stop", "end a run after its current step; works without its kernel if its session can be reached"),
    ):
        subparser = subparsers.add_parser(verb, help=help)
        subparser.add_argument("run", metavar="RUN", help="a run's id, or its name (for the newest run of that name)")
        if verb == "logs":
            subparser.add_argument("rank", metavar="RANK", type=int, nargs="?", help="show only the text of this rank")
        if verb == "export":
            subparser.add_argument("file", metavar="FILE", help="the file, which must not exist")
        if verb == "stop":
            subparser.add_argument("--json", action="store_true", help="print what was done as one line of JSON")
    importer = subparsers.add_parser("import", help="take the runs of such a file into the store")
    importer.add_argument("file", metavar="FILE")
    cleaner = subparsers.add_parser("clean", help="remove stored runs that are not to be kept")
    for option, value in (("--keep", "30d"), ("--keep-last", "N"), ("--max-size", "10GB")):
        cleaner.add_argument(option, metavar=value)
    cleaner.add_argument(clean.DRY_RUN, action="store_true", help="only list them")
    subparsers.add_parser("serve", help=f"serve a run's model, until Ctrl-C: {serve.USAGE.replace('%', '%%')}")
    subparsers.add_parser("serving", help="the served models")
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["serve"] and "--help" not in words:  # its options are those of %ddl serve
        return _serve(words[1:])
    given = parser.parse_args(words)
    if given.verb == "serving":
        print(serve.listed())
        return 0
    if given.verb == "runs":
        return _listed(given.query)
    if given.verb == "import":
        return _import(Path(given.file))
    if given.verb == "clean":
        return _clean(given)
    search = store.find_search(given.run)
    if given.verb == "export":
        return _export(given.run, Path(given.file))
    if search is not None and given.verb in ("show", "stop"):
        return _of_search(search, given)
    record = store.find_run(given.run)
    if record is None:
        hint = nearest(given.run, [known.name for known in store.list_runs()])
        print(f"there is no run {as_word(given.run)}.{hint}", file=sys.stderr)
        return 1
    if given.verb == "show":
        print(run_text.describe(Run.stored(record)))
    elif given.verb == "logs":
        return _logs(Run.stored(record), given.rank)
    else:
        return _ended(ending.end(record), given.json)
    return 0


def _serve(words: Sequence[str]) -> int:
    def find(word: str) -> Run:
        record = store.find_run(word)
        if record is None:
            hint = nearest(word, [known.name for known in store.list_runs()])
            raise UsageError(f"there is no run {as_word(word)}.{hint}")
        return Run.stored(record)

    def tell(line: str) -> None:
        print(line, flush=True)

    try:
        request = serve.parse(words)
        tell(serve.run(request, find, tell))
        if not request.stop and request.to is None and not request.detached:
            return int(launch.wait(tell) != 0)
    except UsageError as error:
        print(str(error).replace("%ddl ", "python -m ddl_magics "), file=sys.stderr)
        return 1
    return 0


def _listed(words: Sequence[str]) -> int:
    try:
        print(listed(parse_words(words)))
    except QueryError as error:
        print(f"{error}.", file=sys.stderr)
        return 1
    return 0


def _export(word: str, path: Path) -> int:
    try:
        print(exporting.export(path, word))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _import(path: Path) -> int:
    try:
        print(exporting.import_(path))
    except UsageError as error:
        print(str(error), file=sys.stderr)
        return 1
    return 0


def _of_search(record: store.SearchRecord, given: argparse.Namespace) -> int:
    search = Search.stored(record)
    if given.verb == "stop":
        return _ended(ask_to_stop(search), given.json)
    try:
        print(search)
    except UsageError as error:  # Optuna is missing
        print(error, file=sys.stderr)
        return 1
    return 0


def _ended(ended: ending.Ending, as_json: bool) -> int:
    print(json.dumps(ended.to_record()) if as_json else ended.text)
    return int(not ended.success)


def _logs(run: Run, rank: int | None) -> int:
    try:
        print(run_text.logs(run, rank), end="")
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _clean(given: argparse.Namespace) -> int:
    texts = {option: getattr(given, option.strip("-").replace("-", "_")) for option in clean.OPTIONS}
    try:
        policy = clean.policy(texts)
    except UsageError as error:
        print(str(error).replace("%ddl clean", "python -m ddl_magics clean"), file=sys.stderr)
        return 1
    print(clean.clean(policy, given.dry_run))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
