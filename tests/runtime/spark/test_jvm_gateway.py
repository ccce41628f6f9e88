"""A run and the statements of its session do not get at each other's Spark jobs, where threads are not pinned."""

import json

import pytest
from support.processes import output_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.mark.slow
def test_cancelling_a_statement_spares_the_runs_jobs_and_keeps_the_statements_group(tmp_path):
    answer = json.loads(output_of("support.unpinned", timeout=380, cwd=tmp_path).splitlines()[-1])
    assert answer["state"] == "FINISHED", answer["message"]
    assert answer["ours"] >= 3, "the shuffle before the rows, the pass over them, the ranks"
    assert answer["statement's"] == 0
    # Of several connections, which two threads at once need, the statement's own is the one that has its group.
    assert "7" in answer["groups now"] and set(answer["groups now"]) <= {"7", None}
