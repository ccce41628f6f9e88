"""Says what the tests of the last session of pytest have cost: `make test-times`, or with how many tests are shown.

Set-up is what the fixtures take that the test was the first to ask for: a cluster, a kernel, a JupyterLab.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "build" / "test-times.json"
SHOWN = 40


def main(shown: int = SHOWN) -> None:
    if not FILE.exists():
        sys.exit(f"there is no {FILE}: run tests first")
    tests: dict[str, dict[str, float]] = json.loads(FILE.read_text())
    whole = {test: sum(seconds.values()) for test, seconds in tests.items()}
    rooms: dict[str, float] = defaultdict(float)
    for test, seconds in whole.items():
        rooms[str(Path(test.partition("::")[0]).parent)] += seconds
    print("  total  set-up  test")
    for test, seconds in sorted(whole.items(), key=lambda pair: -pair[1])[:shown]:
        print(f"{seconds:7.1f} {tests[test].get('setup', 0.0):7.1f}  {test}")
    print("\n  total  room")
    for room, seconds in sorted(rooms.items(), key=lambda pair: -pair[1]):
        print(f"{seconds:7.1f}  {room}")
    print(f"{sum(whole.values()):7.1f}  all {len(tests)} tests, one after the other")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
