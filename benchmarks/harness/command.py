"""The command line of a benchmark."""

from __future__ import annotations

import argparse


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
