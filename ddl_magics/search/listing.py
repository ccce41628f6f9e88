"""The stored runs and searches that match a query, as text."""

from __future__ import annotations

from ddl_magics import store
from ddl_magics.history.query import Query, of_search
from ddl_magics.runs import run_text
from ddl_magics.search.text import searches_table


def listed(query: Query) -> str:
    """The newest matches, a line each; or one line if nothing matches."""
    runs, searches = store.list_runs(), store.list_searches()
    matching_runs = [record for record in runs if query.matches(record)]
    matching_searches = [record for record in searches if query.matches(of_search(record))]
    if query.terms and not matching_runs and not matching_searches:
        return f"none of {len(runs)} runs matches"
    table = [run_text.runs_table(matching_runs)] if matching_runs or not query.terms else []
    return "\n".join([*table, *searches_table(matching_searches)])
