"""The verbs of `%ddl` as a command line, on the stored runs: `python -m ddl_magics runs`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from ddl_magics import ending, store, verbs
from ddl_magics.run import Run
from ddl_magics.wording import nearest


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 where there is no such run or nothing that could be stopped."""
    parser = argparse.ArgumentParser(prog="python -m ddl_magics", description="Runs of %%distributed cells.")
    subparsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    subparsers.add_parser("runs", help="the newest runs, of all notebooks")
    for verb, says in (
        ("show", "a run's figures"),
        ("logs", "what a run printed"),
        ("stop", "end it after its current step, also without its kernel where its session can be reached"),
    ):
        subparser = subparsers.add_parser(verb, help=says)
        subparser.add_argument("run", metavar="RUN", help="a run's name (the newest of that name is meant) or id")
        if verb == "logs":
            subparser.add_argument("rank", metavar="RANK", type=int, nargs="?", help="one rank's text only")
        if verb == "stop":
            subparser.add_argument("--json", action="store_true", help="say what was done as JSON, in a line")
    given = parser.parse_args(arguments)
    if given.verb == "runs":
        print(verbs.runs_table(store.list_runs()))
        return 0
    record = store.find_run(given.run)
    if record is None:
        hint = nearest(given.run, [known.name for known in store.list_runs()])
        print(f"there is no run {given.run}.{hint}", file=sys.stderr)
        return 1
    if given.verb == "show":
        print(verbs.describe(Run.stored(record)))
    elif given.verb == "logs":
        print(Run.stored(record).logs(given.rank), end="")
    else:
        ended = ending.end(record)
        print(json.dumps(ended.to_record()) if given.json else ended.text)
        return int(ended.outcome not in ("asked", "stopped"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
