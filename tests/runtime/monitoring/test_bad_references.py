"""References and counts of a monitor, damaged or a stranger's, by the thousand: right, or refused in one line."""

import json
from types import SimpleNamespace

import numpy as np
from support import strangers
from support.monitoring_logs import reference_of, trained

from ddl_magics.runtime.driver.monitor_counts import StoredCounts
from ddl_magics.runtime.driver.monitor_folder import CountsFolder
from ddl_magics.runtime.monitoring import reference, reference_check, watched, windows
from ddl_magics.runtime.monitoring.counting import Counter

REFERENCE = trained(np.random.default_rng(6))
COUNTER = Counter(REFERENCE, 60.0)
ROWS = [
    *[(start, thing, 3, 500, 1.0, 1.0) for start in (600.0, 660.0) for thing in range(4)],
    *[(600.0, metric, 12, 500, 0.004, 0.0) for metric in (COUNTER.latency, COUNTER.error)],
]


def of_text():
    """A reference with texts, a window and several outputs."""
    inputs = [watched.of_input("t", "city", (), True, False), watched.of_input("s", "load", (3,), False, True)]
    outputs = [watched.of_output("", (4,))]
    random = np.random.default_rng(1)
    cities = np.array(["a'b", "c\\d", None, "`e`"], object)[random.integers(0, 4, 500)]
    names = [name for tensor in (*inputs, *outputs) for name in tensor["named"]]
    features = [reference.merged(names[0], [reference.sketch(cities, 101)], True)]
    features += [reference.merged(name, [reference.sketch(random.normal(size=500), 101)], False) for name in names[1:]]
    return {"v": 1, "run": "r", "rows": 500, "inputs": inputs, "outputs": outputs, "features": features}


def test_references_of_runs_are_of_the_form():
    few = reference_of(np.float32([[1, 2, 3], [1, 2, 3]] * 200), np.zeros((400, 1)))
    empty = reference_of(np.full((3, 3), np.nan), np.full((3, 1), np.nan))
    for each in (REFERENCE, of_text(), few, empty):
        assert reference_check.checked(json.loads(json.dumps(each))) == each


@strangers.tried(100, 10_000)
def test_a_reference(tmp_path, count):
    whole = [REFERENCE, of_text()]

    def read(data):
        try:
            found = reference_check.checked(json.loads(data))
        except (ValueError, RecursionError):
            return "refused"
        counter = Counter(found, 60.0)
        sides = [("i", found["inputs"]), ("o", found["outputs"])]
        words = [counter._schema(), counter._bin()]
        from ddl_magics.runtime.monitoring.counting import _expression

        for side, tensors in sides:
            for number, tensor in enumerate(tensors):
                words.append(_expression(tensor, f"e.{side}{number}", counter._of(side, number)))
        assert sum(map(len, words)) < 10_000_000
        watch = windows.Watch(found, counter)
        watch.add(0, ROWS)
        json.dumps([watch.feature_drifts(), watch.lines(60.0, 700.0), watch.to_json()])
        return "taken"

    watch = strangers.Watch("references", tmp_path)
    watch.each(count, lambda chance: strangers.json_file(chance.choice(whole), chance), read)


class Checkpoint(CountsFolder):
    """The checkpoint's folder in memory: number -> the bytes of a file of counts."""

    def __init__(self):
        self.files, self.warned = {}, []
        self._warn = self.warned.append
        self._fs = SimpleNamespace(delete=lambda name, _: self.files.pop(int(name.split("-")[1].partition(".")[0])))

    def inside(self, name):
        return f"folder/{name}"

    def _path_of(self, name):
        return name

    def _numbers(self):
        return sorted(self.files)

    def _content(self, name):
        return self.files[int(name.split("-")[1].partition(".")[0])].decode(errors="replace")

    def write(self, state):
        self.files[max(self.files, default=-1) + 1] = json.dumps(state).encode()


@strangers.tried(100, 10_000)
def test_a_table_of_counts(tmp_path, count):
    first, second = Checkpoint(), Checkpoint()
    for folder, batches in ((first, 1), (second, 2)):
        counts = StoredCounts(REFERENCE, COUNTER, folder)
        for batch in range(batches):
            counts.add(batch, lambda: ROWS)
        counts.add_errors(0, [(600.0, 10, 20.0, 40.0)])
    older, newer = (json.loads(max(folder.files.items())[1]) for folder in (first, second))

    def make(chance):
        made = {"0": json.dumps(older).encode(), "1": strangers.json_file(newer, chance)}
        if chance.randrange(4) == 0:
            made["0"] = strangers.json_file(older, chance)
        return made

    def read(made):
        folder = Checkpoint()
        folder.files = {int(number): data for number, data in made.items()}
        counts = StoredCounts(REFERENCE, COUNTER, folder)
        try:
            counts.load()
        except ValueError as error:
            strangers.in_one_line(str(error))
            assert "start with another --checkpoint" in str(error)
            return "refused"
        for text in folder.warned:
            strangers.in_one_line(text)
        watch = counts.watch
        counts.add(10**9, lambda: ROWS)
        json.dumps([watch.feature_drifts(), watch.lines(60.0, 700.0), watch.error(), watch.to_json()])
        return "the one before" if folder.warned else "taken"

    strangers.Watch("tables of counts", tmp_path).each(count, make, read)
