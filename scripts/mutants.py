"""Plants small defects in the rooms that must never break, one at a time: do the tests of the room notice?

    python scripts/mutants.py [--room ROOM ...] [--count N] [--seed N] [--quick] [--again] [--only TEXT]

A mutant is a change of one place (scripts/mutations.py). The seed chooses them, spread over rooms, files and kinds.
Each is written into a copy of the repository, whose tests run until one fails: first the quick ones, those of the file
before those of its room; then, without --quick, the room's others that are not slow. Tests that hang have noticed, too.
build/mutants/record.jsonl has a line for each, and the next call with the same seed goes on with those that are not in
it; --again tries anew those that no test has noticed. The last lines count them by room.

scripts/equivalent_mutants.jsonl lists mutants whose effect nobody can see, each with the reason. They are not tried.

A mutant may delete files and kill processes that are not its own. So all of this runs in namespaces of Linux, where
nothing but the copy can be written, and no process is seen that was there before; this needs root, or a kernel that
lets others have user namespaces.
"""

from __future__ import annotations

import argparse
import ast
import ctypes
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice, zip_longest
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mutations

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "build" / "mutants" / "record.jsonl"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.jsonl")

#: Of each room its files, and the folders of tests that are its own.
ROOMS = {
    **{
        room: (f"ddl_magics/runtime/{room}/*.py", [f"tests/runtime/{room}"])
        for room in (
            "transport",
            "collectives",
            "parameter_server",
            "checkpoints",
            "gradients",
            "data",
            "rank",
            "executor",
        )
    },
    **{room: (f"ddl_magics/{room}/*.py", [f"tests/{room}"]) for room in ("store", "server", "serving", "options")},
    "bundle": ("ddl_magics/history/bundle.py", ["tests/history/test_bundle.py"]),
}

#: What `make test-quick` leaves out.
_SLOW = "slow or browser or livy or keras2"
_QUICK = f"not ({_SLOW} or spark or ranks)"
_OTHERS = f"(spark or ranks) and not ({_SLOW})"
_NOT_QUICK = ("tests/serving/test_serving.py", "tests/runtime/training/test_checkpointing.py")

#: A seed has at most so many mutants of one kind.
_MOST_ALIKE = 60
#: Of the test files of other rooms that import a file, so many are asked.
_STRANGERS = 3

#: Imported once, for all mutants: each then starts in a moment.
_PRELOADED = (
    *("tensorflow", "keras", "pandas", "pyarrow", "pyspark.sql", "IPython", "jupyter_server.serverapp", "nbformat"),
    *("pytest", "hypothesis", "schemathesis.pytest.plugin", "jsonschema"),
)

#: A test that takes longer hangs, or, where it takes long by itself, one that takes so many times as long.
_TEST_SECONDS, _TEST_TIMES = 40, 10
#: Tests that take longer come after the others.
_LONG_SECONDS = 3.0
#: With --quick a mutant's tests take this long at most.
_QUICK_SECONDS = 40
#: Tests that together take so many times as long as without a mutant, and so much more, hang, too.
_PATIENCE, _MORE_SECONDS = 3, 120
_BASELINE_SECONDS = 1800

#: pytest's exit code where there are none.
_NO_TESTS = 5


@dataclass(frozen=True)
class Tests:
    """Tests that run together: those of some files with some marks."""

    files: tuple[str, ...]
    marks: str


@dataclass(frozen=True)
class Result:
    """How tests ended.

    Attributes:
        code: pytest's exit code, or None of tests that were killed.
        passed: the seconds of each test that passed.
        touched: the functions of the package that each test has called in its own process, where that was asked.
        failed: the tests that failed.
    """

    code: int | None
    passed: dict[str, float]
    touched: dict[str, list[str]]
    failed: list[str]
    seconds: float
    output: str

    @property
    def noticed(self) -> bool:
        return self.code not in (0, _NO_TESTS)


class Copy:
    """A copy of the repository, in which mutants are planted and tests run."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._told = folder / "tree", folder / "result.json"
        self._log = folder / "output.txt"
        files = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout.decode()
        names = [name for name in files.split("\0") if name and (ROOT / name).is_file()]
        for name in names:
            target = self._folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        built = ["node_modules", "ddl_magics/dashboard/static", "ddl_magics/labextension", "build/spark.jsa"]
        for name in [*built, *(path.name for path in ROOT.glob(".venv*"))]:
            if (ROOT / name).exists() and not (self._folder / name).exists():
                (self._folder / name).parent.mkdir(exist_ok=True)
                (self._folder / name).symlink_to((ROOT / name).resolve())

    def source(self, file: str) -> bytes:
        return (self._folder / file).read_bytes()

    def write(self, file: str, source: bytes) -> None:
        path = self._folder / file
        path.write_bytes(source)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()  # known by time and size, which may be equal

    def test(self, tests: Tests, bound: float, baseline: Mapping[str, float] | None = None) -> Result:
        """Runs tests in a process of its own, until the first fails.

        Args:
            bound: after so many seconds they are killed.
            baseline: of each test to ask the seconds that it takes without a mutant: long ones come last. Without it
                all tests run.
        """
        self._told.unlink(missing_ok=True)
        begin = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._run(tests, baseline)
        code: int | None = None
        while time.monotonic() < begin + bound:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.02)
        _kill_descendants()
        told = json.loads(self._told.read_text()) if self._told.exists() else ({}, {}, [])
        return Result(code, told[0], told[1], told[2], time.monotonic() - begin, self._log.read_text(errors="replace"))

    def _run(self, tests: Tests, baseline: Mapping[str, float] | None) -> None:
        os.setsid()
        output = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(output, number)
        os.chdir(self._folder)
        os.environ["PYTHONPATH"] = str(self._folder)
        sys.path[:] = [str(self._folder), *(path for path in sys.path if Path(path or ".").resolve() not in _OURS)]
        import pytest

        arguments = [*tests.files, "-m", tests.marks, "-q", "-p", "no:cacheprovider", "--rootdir", str(self._folder)]
        arguments += ["--tb=short"] if baseline is None else ["--tb=no", "-x"]
        watch = Watch(self._folder, baseline, pytest.mark.timeout)
        code = int(pytest.main(arguments, plugins=[watch]))
        self._told.write_text(json.dumps([watch.passed, watch.touched, watch.failed]))
        sys.stdout.flush()
        os._exit(code)


_OURS = (ROOT, ROOT / "scripts")


class Watch:
    """A plugin of pytest that chooses tests and keeps how they ended; of all tests also which functions they call."""

    def __init__(self, root: Path, baseline: Mapping[str, float] | None, timeout: Callable[[float], Any]) -> None:
        self._root, self._baseline, self._timeout = f"{root}/", baseline, timeout
        self._codes: set[CodeType] = set()
        self.passed: dict[str, float] = {}
        self.touched: dict[str, list[str]] = {}
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self._baseline is None:
            sys.settrace(self._trace)
            threading.settrace(self._trace)
        else:
            baseline = self._baseline
            items[:] = [item for item in items if item.nodeid in baseline]
            items.sort(key=lambda item: baseline[item.nodeid] > _LONG_SECONDS)
            for item in items:
                seconds = max(_TEST_SECONDS, _TEST_TIMES * baseline[item.nodeid])
                item.add_marker(self._timeout(seconds), append=False)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        self._codes.add(frame.f_code)

    def pytest_runtest_logstart(self) -> None:
        self._codes.clear()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        inside = f"{self._root}ddl_magics/"
        names = {_name(code, self._root) for code in list(self._codes) if code.co_filename.startswith(inside)}
        self.touched[nodeid] = sorted(names)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.passed.pop(report.nodeid, None)
            self.failed.append(report.nodeid)
        elif report.passed and report.nodeid not in self.failed:
            self.passed[report.nodeid] = self.passed.get(report.nodeid, 0.0) + report.duration


def _name(code: CodeType, root: str) -> str:
    """The file and function of a code, as a mutant has them: lambdas belong to the function around them."""
    function = re.sub(r"\.?<(?!locals)\w+>.*", "", getattr(code, "co_qualname", code.co_name)).replace(".<locals>", "")
    return f"{code.co_filename.removeprefix(root)} {function}"


def _kill_descendants() -> None:
    """Ends what tests have left: this process inherits orphans."""
    while children := _children():
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.01)


def _children() -> list[int]:
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


class Finder:
    """Which tests are asked about a file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._imports = {str(path.relative_to(root)): _imported(path) for path in (root / "tests").rglob("test_*.py")}

    def stages(self, room: str, file: str, quick: bool) -> Iterator[Tests]:
        """The tests to ask, one after the other."""
        own = sorted(path for path in self._imports for folder in ROOMS[room][1] if path.startswith(folder))
        near = self._near(file)
        strangers = [path for path in near if path not in own][:_STRANGERS]
        files = list(dict.fromkeys([*(path for path in near if path in own), *strangers, *own]))
        yield Tests(tuple(path for path in files if path not in _NOT_QUICK), _QUICK)
        if not quick:
            yield Tests(tuple(path for path in files if path in _NOT_QUICK), _QUICK)
            yield Tests(tuple(files), _OTHERS)

    def _near(self, file: str) -> list[str]:
        """The test file of its name, then others that import it, those of the fewest imports first."""
        module = file.removesuffix(".py").replace("/", ".")
        near = [path for path, names in self._imports.items() if module in names]
        named = [path for path in self._imports if Path(path).name == f"test_{Path(file).stem}.py"]
        return list(dict.fromkeys([*named, *sorted(near, key=lambda path: len(self._imports[path]))]))


def _imported(path: Path) -> set[str]:
    """The modules that a file imports, and the names that may be modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return names


def chosen(room: str, seed: int) -> Iterator[mutations.Mutant]:
    """All mutants of a room by chance, the same for the same code: each file and each kind has its share."""
    draw = random.Random(f"{seed} {room}")
    left: dict[Path, dict[str, list[mutations.Mutant]]] = {}
    for path in sorted(ROOT.glob(ROOMS[room][0])):
        kinds = defaultdict(list)
        for mutant in mutations.mutants(str(path.relative_to(ROOT)), path.read_bytes()):
            kinds[mutant.kind].append(mutant)
        if kinds:
            left[path] = kinds
    sizes = {path: sum(map(len, kinds.values())) ** 0.5 for path, kinds in left.items()}
    while left:
        (path,) = draw.choices(list(left), [sizes[path] for path in left])
        kind = draw.choice(sorted(left[path]))
        mutants = left[path][kind]
        yield mutants.pop(draw.randrange(len(mutants)))
        if not mutants:
            del left[path][kind]
        if not left[path]:
            del left[path]


class Record:
    """What was tried: the last line about a mutant is what is so."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        self.lines: dict[str, dict[str, Any]] = {}
        for text in file.read_text().splitlines() if file.exists() else []:
            self._take(json.loads(text))

    def _take(self, line: dict[str, Any]) -> None:
        earlier = self.lines.get(line["mutant"])
        late = earlier is not None and (earlier["outcome"] == "survived" or earlier.get("late", False))
        self.lines[line["mutant"]] = {**line, "late": late}

    def add(self, line: dict[str, Any]) -> None:
        with open(self._file, "a") as file:
            file.write(json.dumps(line) + "\n")
        self._take(line)

    def table(self) -> str:
        """Markdown: a row a room. What was caught late had survived when it was first tried."""
        reasons = equivalent()
        counts: dict[str, Counter[str]] = {room: Counter() for room in ROOMS}
        for key, line in self.lines.items():
            late = line["outcome"] == "caught" and line["late"]
            counts[line["room"]]["equivalent" if key in reasons else "late" if late else line["outcome"]] += 1
        rows = ["| room | tried | caught | caught by a new test | equivalent | survived |", "|---|---|---|---|---|---|"]
        for room, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
            if count:
                numbers = [sum(count.values()), *(count[name] for name in ("caught", "late", "equivalent", "survived"))]
                rows.append(f"| {' | '.join([room, *map(str, numbers)])} |")
        return "\n".join(rows)


@lru_cache(maxsize=1)
def equivalent() -> dict[str, str]:
    """{key of a mutant: why nobody can notice it}."""
    lines = map(json.loads, EQUIVALENT.read_text().splitlines())
    return {line["mutant"]: line["why"] for line in lines}


class Baselines:
    """What each test does without a mutant. Kept in a file until its own file changes."""

    def __init__(self, copy: Copy, file: Path) -> None:
        self._copy, self._file = copy, file
        #: By marks and test file: the file's hash, and of each test that passes its seconds and functions.
        self._files: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}

    def of(self, tests: Tests) -> dict[str, dict[str, Any]]:
        """Each test that passes -> `seconds`, and the `functions` that it calls in its own process."""
        keys = {path: f"{tests.marks} {path}" for path in tests.files}
        hashes = {path: hashlib.sha256(self._copy.source(path)).hexdigest() for path in tests.files}
        new = [path for path in tests.files if self._files.get(keys[path], {}).get("hash") != hashes[path]]
        if new:
            result = self._copy.test(Tests(tuple(new), tests.marks), _BASELINE_SECONDS)
            if result.code not in (0, 1, _NO_TESTS):
                sys.exit(f"tests without a mutant ended with {result.code}:\n{result.output[-3000:]}")
            print(f"without a mutant {len(result.passed)} tests take {result.seconds:.0f} s", flush=True)
            if result.failed:
                print(f"left out, as they fail without a mutant: {' '.join(result.failed)}", flush=True)
            for path in new:
                found = {
                    name: {"seconds": seconds, "functions": result.touched[name]}
                    for name, seconds in result.passed.items()
                    if name.partition("::")[0] == path
                }
                self._files[keys[path]] = {"hash": hashes[path], "tests": found}
            self._file.write_text(json.dumps(self._files))
        return {name: test for path in tests.files for name, test in self._files[keys[path]]["tests"].items()}


class Trial:
    """Tries mutants in a copy."""

    def __init__(self, copy: Copy, record: Record, baselines: Baselines, quick: bool) -> None:
        self._copy, self._record, self._baselines, self._quick = copy, record, baselines, quick
        self._finder = Finder(ROOT)

    def try_one(self, room: str, mutant: mutations.Mutant) -> None:
        begin, outcome, by = time.monotonic(), "survived", ""
        source = self._copy.source(mutant.file)
        for tests in self._finder.stages(room, mutant.file, self._quick):
            asked = self._asked(mutant, self._baselines.of(tests))
            if not asked:
                continue
            files = tuple(dict.fromkeys(name.partition("::")[0] for name in asked))
            self._copy.write(mutant.file, mutant.applied(source))
            try:
                bound = _PATIENCE * sum(asked.values()) + _MORE_SECONDS
                result = self._copy.test(Tests(files, tests.marks), bound, asked)
            finally:
                self._copy.write(mutant.file, source)
            if result.noticed:
                outcome, by = "caught", result.failed[0] if result.failed else f"exit {result.code}"
                break
        seconds = round(time.monotonic() - begin, 1)
        line = {"room": room, "mutant": mutant.key, "kind": mutant.kind, "outcome": outcome, "by": by}
        self._record.add({**line, "quick": self._quick, "seconds": seconds})
        place = f"{mutant.file}:{mutant.line(source)}"
        print(f"{outcome:9}{seconds:6.1f} s  {place}  {mutant.key.partition(' ')[2]}  {by}", flush=True)

    def _asked(self, mutant: mutations.Mutant, tests: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """The tests that call the mutant's function, and what they take.

        All, where none does: the function is called in other processes, or when the file is imported.
        """
        place = f"{mutant.file} {mutant.function}"
        seconds = {name: test["seconds"] for name, test in tests.items()}
        calling = {name: seconds[name] for name, test in tests.items() if place in test["functions"]}
        asked = calling or seconds
        if not self._quick:
            return asked
        fastest = sorted(asked, key=lambda name: asked[name])
        sums = accumulate(asked[name] for name in fastest)
        return {name: asked[name] for name, until in zip(fastest, sums, strict=True) if until < _QUICK_SECONDS}


def plan(options: argparse.Namespace, record: Record) -> list[tuple[str, mutations.Mutant]]:
    """The mutants to try, each with its room: rooms take turns."""
    rooms = options.room or list(ROOMS)
    turns = zip_longest(*([(room, mutant) for mutant in chosen(room, options.seed)] for room in rooms))
    pairs = (pair for turn in turns for pair in turn if pair and pair[1].key not in equivalent())
    if options.again:
        survived = {key for key, line in record.lines.items() if line["outcome"] == "survived"}
        return [pair for pair in pairs if pair[1].key in survived and options.only in pair[1].key]
    if options.only:
        return [pair for pair in pairs if options.only in pair[1].key][: options.count]
    return [pair for pair in islice(_few_alike(pairs), options.count) if pair[1].key not in record.lines]


def _few_alike(pairs: Iterable[tuple[str, mutations.Mutant]]) -> Iterator[tuple[str, mutations.Mutant]]:
    kinds: Counter[str] = Counter()
    for room, mutant in pairs:
        if kinds[mutant.kind] < _MOST_ALIKE:
            kinds[mutant.kind] += 1
            yield room, mutant


def _alone(arguments: list[str], record: Path) -> None:
    """Goes on in namespaces where nothing but the record's folder can be written, and no earlier process is seen."""
    if ROOT.is_relative_to("/tmp"):
        sys.exit("mutants have a /tmp of their own: put the repository elsewhere")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes end, too, and the folder goes
    with tempfile.TemporaryDirectory(prefix="ddl-mutants-") as folder:
        mounts = f"""
            set -e
            mount --make-rprivate /
            mkdir {folder}/record
            mount --bind {record.parent} {folder}/record
            mount --rbind {folder} /tmp
            mount -t tmpfs tmpfs /dev/shm
            mount -o remount,bind,ro /
            exec "$@"
        """
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *user, "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        inner = [sys.executable, __file__, *arguments, f"--record=/tmp/record/{record.name}", "--in-namespaces"]
        sys.exit(subprocess.run([*command, "sh", "-c", mounts, "sh", *inner], check=False).returncode)


def main(arguments: list[str]) -> None:
    options = _options(arguments)
    record = Record(options.record)
    if options.count or options.again:
        if not options.in_namespaces:
            _alone(arguments, options.record)
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans of tests become ours
        _preload()
        copy = Copy(Path(tempfile.mkdtemp()))
        trial = Trial(copy, record, Baselines(copy, options.record.with_name("baselines.json")), options.quick)
        for room, mutant in plan(options, record):
            trial.try_one(room, mutant)
    print(record.table())


def _preload() -> None:
    os.environ.update(HOME=tempfile.mkdtemp(), TF_CPP_MIN_LOG_LEVEL="3")
    for name in _PRELOADED:
        importlib.import_module(name)
    del os.environ["TF_CPP_MIN_LOG_LEVEL"]  # the tests' processes are as chatty as ever


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--room", action="append", choices=list(ROOMS), help="may be given several times; default: all")
    parser.add_argument("--count", type=int, default=50, help="of the seed's mutants; 0 shows the table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="without tests that use Spark or train on ranks")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    parser.add_argument("--only", default="", help="try those whose name has this text")
    parser.add_argument("--record", type=Path, default=RECORD, help=argparse.SUPPRESS)
    parser.add_argument("--in-namespaces", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
