"""A run and the statements of its session do not get at each other's Spark jobs, where threads are not pinned."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_statement_that_is_cancelled_takes_no_job_of_the_run_with_it_and_keeps_its_own_group(tmp_path):
    script = Path(__file__).with_name("unpinned.py")
    answer = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=380, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout.splitlines()[-1])
    assert said["state"] == "FINISHED", said["message"]
    assert said["ours"] >= 3, "the shuffle before the rows, the pass over them, the ranks"
    assert said["statement's"] == 0
    # Of several connections, which two threads at once need, the statement's own is the one that has its group.
    assert "7" in said["groups now"] and set(said["groups now"]) <= {"7", None}
