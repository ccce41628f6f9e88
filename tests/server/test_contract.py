"""The routes against `openapi.yaml`: schemathesis asks whatever the document allows, and much that it does not."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from support.fake_cluster import training
from support.invented_search import StoredSearch
from support.stored import finished, stored

from ddl_magics.runtime import events as ev
from ddl_magics.server.handlers import SPECIFICATION

#: Who is not logged in gets Jupyter Server's 403, where schemathesis wants 401: test_access.py has that. A 405 of
#: Tornado's says not what is allowed. That a `since` is of this server (410), and what a label may hold (400), is more
#: than a schema can say.
CONFIGURATION = """
[checks]
missing_required_header.enabled = false
unsupported_method.enabled = false
positive_data_acceptance.expected-statuses = ["2xx", 404, 409, 410]
negative_data_rejection.expected-statuses = ["4xx"]

[[operations]]
include-operation-id = "updateRun"
checks.positive_data_acceptance.enabled = false
"""


@pytest.fixture
def schemathesis(jp_serverapp, jp_auth_header, jp_base_url, http_server_client, tmp_path, monkeypatch):
    """`await schemathesis(run, search, *options)`: its status, and what it says; the ids are those in all paths."""
    monkeypatch.setattr("ddl_magics.server.base.MAX_WAITING", 0)  # it would wait for what does not come
    program = Path(sys.executable).with_name("schemathesis")
    url = http_server_client.get_url(jp_base_url).rstrip("/")
    header = f"Authorization: {jp_auth_header['Authorization']}"

    async def check(run, search, *options):
        known = f'[parameters]\n"path.run" = "{run}"\n"path.search" = "{search}"\n' if run else ""
        (tmp_path / "schemathesis.toml").write_text(known + CONFIGURATION)
        asked = await asyncio.create_subprocess_exec(
            *(program, "run", SPECIFICATION, "--url", url, "--header", header, "--generation-deterministic", *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1"},
        )
        said, _ = await asked.communicate()
        return asked.returncode, said.decode()

    return check


async def test_of_a_run_and_a_search_that_go_on(schemathesis):
    folder, search = stored(events=list(training())[:9]), StoredSearch(3, training=1)
    status, said = await schemathesis(folder.path.name, search.id, "--max-examples", "10")
    assert status == 0 and "Tested: 20" in said, said
    assert folder.record().state == ev.RUNNING and folder.requested("stop") and search.folder.requested("stop")


async def test_of_those_that_are_over(schemathesis):
    folder, search = finished(epochs=3), StoredSearch(3)
    search.show(3, state=ev.FINISHED)
    kept = (word for name in ("deleteRun", "deleteSearch") for word in ("--exclude-operation-id", name))
    status, said = await schemathesis(folder.path.name, search.id, "--phases", "fuzzing", "--max-examples", "10", *kept)
    assert status == 0 and "Tested: 18" in said, said
    assert folder.record().state == search.folder.record().state == ev.FINISHED


async def test_of_one_that_is_not_there(schemathesis, runs_folder):
    kept = finished()
    status, said = await schemathesis(None, None, "--phases", "fuzzing", "--max-examples", "5")
    assert status == 0 and "Tested: 20" in said, said
    assert [path.name for path in runs_folder.iterdir()] == [kept.path.name]
