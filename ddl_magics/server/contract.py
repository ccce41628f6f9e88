"""Schemas and constants that the front end takes from Python.

`npm run types` reads them as JSON from `python -m ddl_magics.server.contract` and writes the generated part of
`openapi.yaml` and `labextension/src/generated.ts`.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from ddl_magics.dashboard.history import DEVICES, SPREAD
from ddl_magics.dashboard.schema import (
    DEFINITIONS,
    ENDED_TRIAL_STATES,
    SEARCH_DEFINITIONS,
    nullable_reference,
    reference,
)
from ddl_magics.dashboard.state_words import STATE_WORDS
from ddl_magics.dashboard.static import RUN_TYPE, SEARCH_TYPE, STRATEGY_TITLES
from ddl_magics.dashboard.workers import COLUMNS, LEFT
from ddl_magics.runtime import events as ev
from ddl_magics.server.download import CONTENT_TYPES
from ddl_magics.server.listing import MAX_PAGE_SIZE
from ddl_magics.server.report import NOT_LISTED
from ddl_magics.server.stopping import Outcome
from ddl_magics.store import MASK
from ddl_magics.store.labels import MAX_NOTE_CHARACTERS


def definitions() -> dict[str, Any]:
    """Name -> JSON Schema; references are "#/definitions/NAME"."""
    kinds = {f"{_camel_case(kind.pop('title'))}Event": kind for kind in ev.json_schema()["oneOf"]}
    kinds["StateEvent"]["properties"].update(state=reference("State"), failure=nullable_reference("Failure"))
    return {
        **DEFINITIONS,
        **SEARCH_DEFINITIONS,
        "StopOutcome": {"enum": list(get_args(Outcome))},
        "ExportFormat": {"enum": list(CONTENT_TYPES)},
        **kinds,
        "RunEvent": {"oneOf": [reference(name) for name in kinds]},
    }


def constants() -> dict[str, Any]:
    """Name -> value."""
    return {
        "COLUMNS": COLUMNS,
        "DEVICES": DEVICES,
        "LEFT": LEFT,
        "SPREAD": tuple(SPREAD),
        "ENDED_TRIAL_STATES": list(ENDED_TRIAL_STATES),
        "TERMINAL_STATES": [state for state in ev.STATES if state in ev.TERMINAL],
        "LOADING_STATES": ev.LOADING_STATES,
        "STATE_WORDS": STATE_WORDS,
        "STRATEGY_TITLES": STRATEGY_TITLES,
        "RUN_TYPE": RUN_TYPE,
        "SEARCH_TYPE": SEARCH_TYPE,
        "EXPORT_FORMATS": list(CONTENT_TYPES),
        "MAX_NOTE_CHARACTERS": MAX_NOTE_CHARACTERS,
        "MAX_PAGE_SIZE": MAX_PAGE_SIZE,
        "NOT_LISTED": NOT_LISTED,
        "MASK": MASK,
    }


def _camel_case(name: str) -> str:
    return "".join(segment.capitalize() for segment in name.split("_"))


if __name__ == "__main__":
    print(json.dumps({"definitions": definitions(), "constants": constants()}))
