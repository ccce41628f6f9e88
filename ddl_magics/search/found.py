"""The stored runs and searches as text, all or those that a query finds."""

from __future__ import annotations

from ddl_magics import store
from ddl_magics.history.query import Query, of_search
from ddl_magics.runs import run_text
from ddl_magics.search.text import searches_table


def listed(query: Query) -> str:
    """The newest of them, a line each; or one line that there are none."""
    runs, searches = store.list_runs(), store.list_searches()
    found = [record for record in runs if query.matches(record)]
    among = [record for record in searches if query.matches(of_search(record))]
    if query.terms and not found and not among:
        return f"none of {len(runs)} runs matches"
    table = [run_text.runs_table(found)] if found or not query.terms else []
    return "\n".join([*table, *searches_table(among)])
