"""What a campaign has tried: a line of JSON for each fault, and the table of all."""

import json
import statistics

#: Seeds of a record count from here.
FIRST_SEED = 1


class Record:
    """The faults in `folder`, where they are added to those of other campaigns: of earlier ones, or beside this one."""

    def __init__(self, folder):
        self._folder = folder
        self._file = folder / "record.jsonl"
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def lines(self):
        if not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text().splitlines()]

    def next_seed(self):
        return max((line["seed"] + 1 for line in self.lines), default=FIRST_SEED)

    def add(self, line):
        with open(self._file, "a") as file:
            file.write(json.dumps(line) + "\n")
        (self._folder / "table.md").write_text(self.table() + "\n")

    def table(self):
        """Markdown: a row a fault."""
        rows = [
            "| fault | tried | ended right | told right | wrong | seconds to notice: median, worst |",
            "|---|---|---|---|---|---|",
        ]
        tried = [line for line in self.lines if line["outcome"] != "late"]
        for name in sorted({line["fault"] for line in tried}):
            rows.append(_row(name, [line for line in tried if line["fault"] == name]))
        return "\n".join([*rows, _row("all", tried)])


def _row(name, lines):
    counts = [sum(line["outcome"] == outcome for line in lines) for outcome in ("right", "told", "wrong")]
    noticed = [line["noticed"] for line in lines if line["noticed"] is not None]
    when = f"{statistics.median(noticed):.1f}, {max(noticed):.1f}" if noticed and name != "all" else ""
    return f"| {name} | {len(lines)} | {' | '.join(map(str, counts))} | {when} |"


def text(line):
    """A line of the record, for people."""
    early = ", during the launch" if line["early"] else ""
    head = f"seed {line['seed']}: {line['fault']}, {line['strategy']} of {line['workers']}{early}: {line['outcome']}"
    noticed = "" if line["noticed"] is None else f", noticed after {line['noticed']} s"
    problems = "".join(f"\n    {problem}" for problem in line["problems"])
    return f"{head} in {line['seconds']} s{noticed} ({line['about']}) {line['message'][:200]}{problems}"
