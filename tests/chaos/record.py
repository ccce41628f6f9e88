"""What campaigns have tried: a line of JSON for each fault, and the table of all.

    python -m chaos.record

adds the lines of build/chaos to record.jsonl beside this file, without what only the search for a cause needs, and
writes the table of docs/faults.md anew.
"""

import json
import re
import statistics
from collections import Counter
from pathlib import Path

from support.paths import ROOT

FOLDER = ROOT / "build" / "chaos"
#: The faults of earlier campaigns, with the repository.
KEPT = Path(__file__).with_name("record.jsonl")
PAGE = ROOT / "docs" / "faults.md"
#: Seeds of a record count from here.
FIRST_SEED = 1

_KEPT_FIELDS = ("date", "commit", "seed", "fault", "strategy", "workers", "outcome", "noticed", "seconds")
_HEAD = "| fault | tried | ended right | told right | wrong | seconds to notice: median, worst |"


class Record:
    """The faults in `folder`, where they are added to those of other campaigns: of earlier ones, or beside this one.

    kept: a file of faults that come before those.
    """

    def __init__(self, folder, kept=None):
        self._folder, self._kept = folder, kept
        self._file = folder / "record.jsonl"
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def lines(self):
        return [*([] if self._kept is None else _read(self._kept)), *_read(self._file)]

    def next_seed(self):
        return max((line["seed"] + 1 for line in self.lines), default=FIRST_SEED)

    def add(self, line):
        with open(self._file, "a") as file:
            file.write(json.dumps(line) + "\n")
        (self._folder / "table.md").write_text(self.table() + "\n")

    def keep(self):
        """Move the folder's faults to the file of those that are kept."""
        with open(self._kept, "a") as file:
            for line in _read(self._file):
                why = {"problems": line["problems"]} if line.get("problems") else {}
                file.write(json.dumps({**{name: line.get(name) for name in _KEPT_FIELDS}, **why}) + "\n")
        self._file.unlink(missing_ok=True)

    def table(self):
        """Markdown: a row a fault. Those that came too late, when the run had ended, are left out."""
        rows = [_HEAD, "|---|---|---|---|---|---|"]
        tried = [line for line in self.lines if line["outcome"] != "late"]
        for name in sorted({line["fault"] for line in tried}):
            rows.append(_row(name, [line for line in tried if line["fault"] == name]))
        return "\n".join([*rows, _row("all", tried)])


def _read(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _row(name, lines):
    counts = Counter(line["outcome"] for line in lines)
    noticed = [line["noticed"] for line in lines if line["noticed"] is not None]
    when = f"{statistics.median(noticed):.1f}, {max(noticed):.1f}" if noticed and name != "all" else ""
    return f"| {name} | {len(lines)} | {counts['right']} | {counts['told']} | {counts['wrong']} | {when} |"


def text(line):
    """A line of the record, for people."""
    early = ", during the launch" if line["early"] else ""
    of = f", {line['strategy']} of {line['workers']}" if line["workers"] else ""
    head = f"seed {line['seed']}: {line['fault']}{of}{early}: {line['outcome']}"
    noticed = "" if line["noticed"] is None else f", noticed after {line['noticed']} s"
    problems = "".join(f"\n    {problem}" for problem in line["problems"])
    return f"{head} in {line['seconds']} s{noticed} ({line['about']}) {line['message'][:200]}{problems}"


def table_of(page):
    """The table in a text."""
    return re.search(re.escape(_HEAD) + r"\n(\|.*\n)+", page).group()


def main():
    book = Record(FOLDER, KEPT)
    book.keep()
    page = PAGE.read_text()
    PAGE.write_text(page.replace(table_of(page), book.table() + "\n"))


if __name__ == "__main__":
    main()
