"""All benchmarks of --data, one after the other: how rows leave Spark, how soon a run begins, and how they are read.

    make bench-env
    python -m benchmarks.data [--quick] [--only NAME ...]

Each is a command of its own, with a table of ours and of what others do; the head of its file has the details. All
together take half an hour.
"""

from __future__ import annotations

import importlib

from .harness import command

PARTS = (
    "data_feeding",
    "peer_feeding",
    "out_of_spark",
    "data_passes",
    "file_feeding",
    "beyond_memory",
    "row_training",
)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("data", __doc__, "few rows, one round")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="NAME", help=", ".join(PARTS))
    options = parser.parse_args(arguments)
    for name in options.only:
        print(f"\n{name}\n")
        importlib.import_module(f".{name}", __package__).main(["--quick"] if options.quick else [])


if __name__ == "__main__":
    main()
