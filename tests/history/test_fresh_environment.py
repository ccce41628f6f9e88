"""A run goes as a file to a fresh environment, where one package is another, and is run again there."""

import os
import sys
import venv
from pathlib import Path

import pytest
from support.paths import ROOT
from support.processes import completed

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(400)]

SCRIPT = """
import sys
from IPython.core.interactiveshell import InteractiveShell

CELL = '''%%distributed --workers 2 --name digits --seed 3 --wait --conf spark.master=local[2]
x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(rate), "mse")
model.fit(x, x.sum(1), epochs=3, batch_size=32, verbose=0)
'''

if __name__ == "__main__":
    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_line_magic("load_ext", "ddl_magics")
    shell.user_ns["rate"] = float(sys.argv[1])
    for line in sys.argv[2:]:
        shell.run_cell(CELL if line == "train" else line).raise_error()
    shell._ddl_magics[0].session.close()
"""


def run(python, home, *arguments):
    environment = {**os.environ, "JUPYTER_DATA_DIR": str(home / "data"), "IPYTHONDIR": str(home / "ipython")}
    script = home / "script.py"
    script.write_text(SCRIPT)
    return completed([python, script, *arguments], cwd=home, env=environment, timeout=200).stdout


def test_a_run_is_reproduced_in_a_fresh_environment(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for home in (here, there):
        home.mkdir()
    run(sys.executable, here, "0.1", "train", "%ddl export digits digits.zip")

    # The packages of this environment, but for one.
    venv.create(there / "env", symlinks=True)
    (packages,) = (there / "env" / "lib").glob("python3*/site-packages")
    mine = Path(pytest.__file__).parent.parent
    (packages / "shared.pth").write_text(f"{mine}\n{ROOT}\n")
    other = packages / "packaging-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: packaging\nVersion: 1.0\n")

    python = there / "env" / "bin" / "python"
    printed = run(python, there, "0.1", f"%ddl import {here}/digits.zip", "%ddl reproduce digits --run")
    assert "packaging 1.0, was " in printed, printed
    assert "digits_again, compared with digits: the histories are equal" in printed, printed
    changed = run(python, there, "0.2", "%ddl reproduce digits")
    assert "rate" in changed and "packaging 1.0, was " in changed, changed
