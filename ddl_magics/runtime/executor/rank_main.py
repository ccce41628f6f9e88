"""Where a rank's process begins: while it has one thread, as NumPy starts more, it gets namespaces of its own.

Arguments: "1" if the notebook's folder may be on this machine, and those of `worker.main`.
"""

from __future__ import annotations

import sys

from ..files import namespaces

if __name__ == "__main__":
    if sys.argv.pop(1) == "1":
        namespaces.separate()
    from . import worker

    worker.main()
