"""Runs on disk, where they outlive their kernel; the panel and the command line read them there."""

from ddl_magics.options.redaction import MASK as MASK
from ddl_magics.store.files import write_atomically as write_atomically
from ddl_magics.store.owned_folder import RunInUse as RunInUse
from ddl_magics.store.run_folder import FORMAT as FORMAT
from ddl_magics.store.run_folder import RUN_ID as RUN_ID
from ddl_magics.store.run_folder import RunFolder as RunFolder
from ddl_magics.store.run_folder import RunRecord as RunRecord
from ddl_magics.store.run_folder import create_run as create_run
from ddl_magics.store.run_folder import find_run as find_run
from ddl_magics.store.run_folder import list_runs as list_runs
from ddl_magics.store.run_folder import new_run_id as new_run_id
from ddl_magics.store.run_folder import runs_folder as runs_folder
from ddl_magics.store.search_folder import SearchFolder as SearchFolder
from ddl_magics.store.search_folder import SearchRecord as SearchRecord
from ddl_magics.store.search_folder import find_search as find_search
from ddl_magics.store.search_folder import list_searches as list_searches
from ddl_magics.store.search_folder import searches_folder as searches_folder
