"""The command line of a benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Collection


def parser(name: str, doc: str | None, quick: str) -> argparse.ArgumentParser:
    """A parser with --quick.

    Args:
        name: of the benchmark's file, without its suffix.
        doc: the docstring of that file; its first line is the description.
        quick: the help of --quick.
    """
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(doc or "").partition("\n")[0])
    made.add_argument("--quick", action="store_true", help=f"{quick}, to see that it works")
    return made


def add_pause(to: argparse.ArgumentParser, seconds: float = 0.0) -> None:
    """Add --pause, by default of so many seconds."""
    to.add_argument("--pause", type=float, default=seconds, metavar="SECONDS", help=f"after each block; {seconds:g}")


def add_rounds(to: argparse.ArgumentParser, rounds: int) -> None:
    """Add --rounds, by default so many."""
    to.add_argument("--rounds", type=int, default=None, help=f"{rounds} by default")


def rounds(options: argparse.Namespace, usual: int, quick: int) -> int:
    """What --rounds says, or else so many, or so many with --quick."""
    given: int | None = options.rounds
    return given or (quick if options.quick else usual)


def add_tables(to: argparse.ArgumentParser, names: Collection[str]) -> None:
    """Add --tables, by default all of these."""
    described = f"all by default: {', '.join(map(repr, names))}"
    to.add_argument("--tables", nargs="+", choices=list(names), default=list(names), metavar="NAME", help=described)
