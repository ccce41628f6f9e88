"""A run and the statements of its session do not get at each other's Spark jobs, where threads are not pinned."""

import json
import subprocess
import sys

import pytest
from support.paths import environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.mark.slow
def test_cancelling_a_statement_spares_the_runs_jobs_and_keeps_the_statements_group(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "support.unpinned"],
        capture_output=True,
        text=True,
        timeout=380,
        cwd=tmp_path,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["state"] == "FINISHED", answer["message"]
    assert answer["ours"] >= 3, "the shuffle before the rows, the pass over them, the ranks"
    assert answer["statement's"] == 0
    # Of several connections, which two threads at once need, the statement's own is the one that has its group.
    assert "7" in answer["groups now"] and set(answer["groups now"]) <= {"7", None}
