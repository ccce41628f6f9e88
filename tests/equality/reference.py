"""Plain Keras: runs the text of a cell in a process that never imports ddl_magics.

python reference.py CELL_FILE DTYPE OUT NAME... writes the results as JSON.
"""

import gc
import json
import sys

gc.disable()  # an import makes next to no garbage: see runtime/executor/loading.py
import keras  # noqa: E402, F401

gc.freeze()
gc.enable()

source, dtype, out, *names = sys.argv[1:]
namespace = {"__name__": "__main__"}
with open(source) as file:
    exec(compile(file.read(), source, "exec"), namespace)
results = namespace["run_cases"](names, dtype)
assert not any(module.startswith("ddl_") for module in sys.modules)
with open(out, "w") as file:
    json.dump(results, file)
