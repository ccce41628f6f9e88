"""Files of strangers: valid ones with mutations, and a watch over what reading them does.

A mutation keeps most of a file, so that what reads it gets far. The watch is an audit hook: Python tells it of each
process that is started, each connection, each pickle that looks a class up, and each file that is written or removed.
Threads of earlier tests are not watched: one may still look for its server.

    SEED=2 COUNT=5000 python -m pytest -m slow -s tests/history/test_bad_archives.py

tries 5,000 files of a kind. A failure names the number of its file: FIRST=NUMBER COUNT=1 tries that one alone.
"""

import contextlib
import io
import json
import os
import random
import re
import signal
import sys
import threading
import traceback
import zipfile
from pathlib import Path

import pytest

from support.bad_input import NASTY

SEED = int(os.environ.get("SEED", "1"))
#: The longest time and the most memory that a file may cost on a busy machine, in seconds and MB.
MAX_SECONDS, MAX_MEGABYTES = 10.0, 400
#: What would leave a file of this name, if somebody executed, imported or unpacked it.
CANARY = "canary-of-strangers"

_PICKLE = "gASVKgAAAAAAAACMBXBvc2l4lIwFc3lzdGVtlJOUjA90b3VjaCBjYW5hcnlgbJSFlFKULg=="
TEXTS = (
    *NASTY,
    f"$(touch {CANARY})",
    f"`touch {CANARY}`; touch {CANARY} && touch {CANARY} | touch {CANARY}",
    f"9/../{CANARY}.zip",
    f"3.4.1 --index-url=http://127.0.0.1:9/{CANARY}",
    f"-r {CANARY}.txt",
    f"@file:///tmp/{CANARY}",
    f"../../../../{CANARY}",
    f"/tmp/{CANARY}",
    f"files/../../{CANARY}",
    "..",
    ".",
    "",
    "a/b",
    "a\\b",
    "C:\\Windows\\x",
    'a"\n  labels: {evil: "yes"}\nx: &a [*a]\n---\n!!python/object/apply:os.system ["touch canary"]',
    f"__import__('os').system('touch {CANARY}')",
    "{0.__class__.__init__.__globals__}",
    "%(x)s %s %d {x}",
    _PICKLE,
    "https://user:password@stranger.example/x?y=z",
    "FINISHED",
    "RUNNING",
    "model-0.keras",
    "__lambda__",
    "NaN",
)
_RAW = (
    "[" * 10_000 + "]" * 10_000,
    '{"a":' * 10_000 + "1" + "}" * 10_000,
    "9" * 5000,
    "-1e400",
    "1e400",
    "NaN",
    "Infinity",
    "-Infinity",
    '"\\ud800"',
    '"\\udcff\\u0000"',
    '{"a": 1, "a": 2}',
    '"' + "x" * 1_000_000 + '"',
    "[" + "0," * 100_000 + "0]",
    "1E+2",
    "-0",
    "01",
    "'a'",
    "",
)
_NUMBERS = (0, -1, 1, 2, 7, 255, 2**31, 2**53, 2**63, 2**64, 10**18, 10**400, -(2**63), 0.5, 1e-320, 1e300, -1e300)
_MARK = "@@raw{}@@"


def tried(few, many):
    """The numbers of files of a test: a few, and in the slow one many, or COUNT."""
    slow = [pytest.mark.slow, pytest.mark.timeout(3600)]
    return pytest.mark.parametrize("count", [few, pytest.param(int(os.environ.get("COUNT", many)), marks=slow)])


def value(chance):
    """A value of JSON that a reader may not expect; some have text in their place that is no JSON at all."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice((None, True, False))
    if kind == 1:
        return chance.choice(_NUMBERS)
    if kind in (2, 3, 4):
        return chance.choice(TEXTS)
    if kind == 5:
        return _MARK.format(chance.randrange(len(_RAW)))
    if kind == 6:
        return [value(chance) for _ in range(chance.randrange(3))]
    return {chance.choice(TEXTS): value(chance) for _ in range(chance.randrange(3))}


def text_of(document):
    """The JSON of a document with such values."""
    text = json.dumps(document)
    return re.sub(r'"@@raw(\d+)@@"', lambda mark: _RAW[int(mark[1])], text).encode(errors="surrogatepass")


def changed(document, chance):
    """A copy of a JSON document with one to three changes: values of other types, names, what is missing or twice."""
    document = json.loads(json.dumps(document))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = [*_places(document)]
        if not places:
            return value(chance)
        container, key = chance.choice(places)
        kind = chance.randrange(8)
        if kind < 5:
            container[key] = value(chance)
        elif kind == 5:
            del container[key]
        elif kind == 6:
            other, name = chance.choice(places)
            with contextlib.suppress(KeyError, IndexError):
                container[key] = json.loads(json.dumps(other[name]))
        elif isinstance(container, dict):
            container[chance.choice(TEXTS)] = container.pop(key)
        else:
            container.extend(container[: chance.choice((1, 3, 1000))])
    return document


def _places(document):
    children = document.items() if isinstance(document, dict) else enumerate(document)
    for key, child in children:
        yield document, key
        if isinstance(child, dict | list):
            yield from _places(child)


def bytes_of(data, chance):
    """The bytes with a few of them changed, cut out, twice, or with others between them."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at, length = chance.randrange(len(data) + 1), chance.choice((1, 1, 2, 8, 100))
        kind = chance.randrange(6)
        if kind == 0:
            data[at : at + length] = chance.randbytes(length)
        elif kind == 1:
            data[at : at + 1] = bytes([chance.choice(b'\0\n\r"{}[],:-9eE.\x1b\x7f\xff')])
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + length]
        elif kind == 4:
            data[at:at] = data[at : at + length] * chance.choice((1, 1, 50))
        else:
            data[at:at] = chance.choice(TEXTS).encode(errors="surrogatepass")[:5000]
    return bytes(data)


def json_file(document, chance, of=0):
    """The bytes of a file of JSON: mostly a changed document, sometimes changed bytes. of: one in so many is whole."""
    if of and chance.randrange(of) == 0:
        return json.dumps(document).encode()
    if chance.randrange(5) == 0:
        return bytes_of(json.dumps(document).encode(), chance)
    return text_of(changed(document, chance))


def lines_file(lines, chance):
    """The bytes of a file of JSON lines, of which some are changed, cut, twice, or in another order."""
    lines = [json.dumps(line).encode() for line in lines]
    for _ in range(chance.choice((1, 2, 3))):
        at, kind = chance.randrange(len(lines)), chance.randrange(5)
        if kind < 2:
            with contextlib.suppress(ValueError, RecursionError):
                lines[at] = text_of(changed(json.loads(lines[at]), chance)).replace(b"\n", b" ")
        elif kind == 2:
            lines[at] = bytes_of(lines[at], chance)
        elif kind == 3:
            lines[at:at] = [lines[at]] * chance.choice((1, 100))
        else:
            lines[at], lines[0] = lines[0], lines[at]
    data = b"\n".join(lines) + b"\n"
    return data if chance.randrange(4) else data[: chance.randrange(len(data))]


def zip_file(entries, chance):
    """The bytes of a zip of {name: content} with entries that are renamed, twice, links, bombs, or lie."""
    buffer = io.BytesIO()
    listed = [(name, data) for name, data in entries.items()]
    victim, kind = chance.randrange(len(listed)), chance.randrange(14)
    if kind == 0:
        listed[victim] = (chance.choice(TEXTS).replace("\0", "\1")[:60_000] or "x", listed[victim][1])
    elif kind == 1:
        listed.insert(chance.randrange(len(listed)), listed[victim])
    elif kind == 2:
        listed.append((chance.choice(TEXTS)[:60_000] or "x", b"import os; os.system('touch canary')"))
    elif kind == 3:
        del listed[victim]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, _quiet():
        for number, (name, data) in enumerate(listed):
            info = zipfile.ZipInfo(name.encode(errors="replace").decode())
            info.compress_type = zipfile.ZIP_DEFLATED
            if number == victim and kind == 4:
                info.external_attr, data = chance.choice((0o120777, 0o010777, 0o020777)) << 16, b"/etc/passwd"
            elif number == victim and kind == 5:
                data = bytes(20_000_000)
            elif number == victim and kind == 6:
                info.compress_type = chance.choice((zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_STORED))
            elif number == victim and kind == 7:
                data = bytes_of(data, chance) if data else b"x"
            elif number == victim and kind == 8:
                info.filename += "/"
            archive.writestr(info, data)
        if kind == 9:
            archive.comment = bytes_of(b"PK\5\6" + bytes(18), chance)[:60_000]
    data = buffer.getvalue()
    if kind == 10:
        data = _lying(data, chance)
    elif kind == 11:
        data = chance.choice((b"#!/bin/sh\ntouch canary\n", data, bytes(1000))) + data
    elif kind == 12:
        data = bytes_of(data, chance)
    return data


def _lying(data, chance):
    """A central directory whose flags, sizes, checksums or offsets are not those of the entries."""
    data = bytearray(data)
    headers = [match.start() for match in re.finditer(b"PK\1\2", bytes(data))]
    at = chance.choice(headers)
    field, size = chance.choice(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)))
    data[at + field : at + field + size] = chance.choice((b"\xff" * size, bytes(size), chance.randbytes(size)))
    return bytes(data)


@contextlib.contextmanager
def _quiet():
    """zipfile warns of names that are there twice."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Broken(AssertionError):
    """What a file of a stranger has done, that it must not."""


_watches = []
_WRITES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_NEVER = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.kill", "os.killpg"),
    *("pickle.find_class", "socket.connect", "ctypes.dlopen"),
}


def _hook(event, arguments):
    if _watches and (event in _NEVER or event in _WRITES) and threading.current_thread() not in _watches[-1].others:
        _watches[-1].saw(event, arguments)


class Watch:
    """Tries files of strangers: `each` calls a function with each, in which only `allowed` folders are written to.

    Prints how many files and bytes there were, when it is left.
    """

    def __init__(self, kind, *allowed):
        self.kind, self.allowed = kind, [os.path.realpath(folder) for folder in allowed]
        self.files = self.bytes = 0
        self.harm = []
        self.outcomes = {}
        self.others = {*threading.enumerate()} - {threading.current_thread()}

    def each(self, count, make, read):
        """make(chance): a file's bytes, or {name: bytes} of a folder, where a link is a text.

        read(it): what came of it, in a word. Raises `Broken`, or an error that nobody has foreseen.
        """
        if "hooked" not in vars(Watch):
            Watch.hooked = True
            sys.addaudithook(_hook)  # which cannot be taken away: it looks at nothing without a watch
        _reset_peak()
        began_with, problems = _megabytes("VmRSS"), {}
        first = int(os.environ.get("FIRST", "0"))
        for number in range(first, first + count):
            data = make(random.Random(f"{SEED} {self.kind} {number}"))
            self.files += 1
            self.bytes += _size(data)
            try:
                _watches.append(self)
                signal.signal(signal.SIGALRM, _too_long)
                signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
                try:
                    outcome = read(data)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    _watches.pop()
                if self.harm:
                    raise Broken(f"it has done {self.harm[:5]}")
                self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            except Exception as error:
                problems.setdefault(_place(error), (number, error))
                self.harm.clear()
        grown = _megabytes("VmHWM") - began_with
        outcomes = ", ".join(f"{times} {outcome}" for outcome, times in sorted(self.outcomes.items()))
        print(f"\n{self.kind}: {self.files} files, {self.bytes / 1e6:.1f} MB, {grown:.0f} MB of memory; {outcomes}")
        assert grown < MAX_MEGABYTES, f"{self.kind} took {grown:.0f} MB of memory"
        if problems:
            lines = [
                f"file {number}: {type(error).__name__} {ascii(str(error))[:300]} at {place}"
                for place, (number, error) in problems.items()
            ]
            raise AssertionError("\n".join([f"SEED={SEED} {self.kind}:", *lines])) from next(iter(problems.values()))[1]

    def saw(self, event, arguments):
        if event in _NEVER:
            self.harm.append((event, ascii(arguments)[:200]))
            return
        for path in _written(event, arguments):
            is_cache = path.endswith(".pyc") or "/__pycache__" in path or path == "/dev/null"
            if not is_cache and not any(path == folder or path.startswith(f"{folder}/") for folder in self.allowed):
                self.harm.append((event, path[:200]))


def _written(event, arguments):
    """The paths that an event of Python's audit writes, or removes."""
    if event == "open":
        path, mode, flags = arguments
        writes = set(mode) & set("wax+") if isinstance(mode, str) else (flags or 0) & (os.O_WRONLY | os.O_RDWR)
        if not writes or isinstance(path, int):
            return []
        follows = not (flags or 0) & os.O_NOFOLLOW
        return [os.path.realpath(os.fsdecode(path)) if follows else _absolute(path, -1)]
    if event in ("os.rename", "os.link"):
        return [_absolute(*pair) for pair in zip(arguments[:2], arguments[2:], strict=True)]
    if event == "os.symlink":
        return [_absolute(arguments[1], arguments[2])]
    return [_absolute(arguments[0], arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1)]


def _absolute(path, folder):
    """folder: the descriptor of the folder that a path is relative to, or -1."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    start = os.getcwd() if folder < 0 else os.readlink(f"/proc/self/fd/{folder}")
    parent, name = os.path.split(os.path.join(start, os.fsdecode(path)))
    return os.path.join(os.path.realpath(parent), name)


def _too_long(*_):
    raise Broken(f"it takes longer than {MAX_SECONDS:.0f} s")


def _size(data):
    return len(data) if isinstance(data, bytes | str) else sum(map(_size, data.values()))


def unpack(files, folder):
    """Make the files of a folder, and its links; what cannot have such a name is left out."""
    for name, data in files.items():
        path = Path(folder, name.replace("\0", "_"))
        with contextlib.suppress(OSError, ValueError):
            if path.is_symlink() or path == folder or not path.resolve().is_relative_to(folder):
                continue  # nothing is written through a link, or elsewhere
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(data, bytes):
                path.write_bytes(data)
            elif data == "fifo":
                os.mkfifo(path)
            else:
                path.symlink_to(data)


def _place(error):
    """Where an error was raised: the last lines of this repository, and the very last one."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/ddl_magics/" in frame.filename] or frames
    return " <- ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in [frames[-1], *ours[:-4:-1]])


def _megabytes(name):
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) / 1024


def _reset_peak():
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def tree(folder):
    """Path -> size, mode and time of change of all below a folder: what nobody may change."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        status = path.lstat()
        found[str(path)] = status.st_size, status.st_mode, status.st_mtime_ns
    return found


def in_one_line(message, most=700):
    """Raises `Broken` unless a message is one line of bounded length that a terminal shows as it is."""
    if not (message and len(message) <= most and all(c.isprintable() for c in message)):
        raise Broken(f"no line for a terminal: {ascii(message)[:800]}")


_HARMLESS = re.compile("[\t\n]")


def for_a_terminal(text):
    """Raises `Broken` if a text of many lines has characters that steer a terminal."""
    steering = [c for c in _HARMLESS.sub("", text) if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066"]
    if steering:
        raise Broken(f"it steers the terminal with {steering[:5]!a}")
    text.encode()
