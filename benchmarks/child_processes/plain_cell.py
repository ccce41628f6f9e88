"""A process of plain Keras: it executes cells. A message is a cell's source; the answer is the value of `answer`."""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    output, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        names: dict[str, Any] = {}
        exec(json.loads(line), names)
        print(json.dumps(names.get("answer")), file=output, flush=True)


if __name__ == "__main__":
    main()
