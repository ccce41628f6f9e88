"""What a person reads of a run's state. `run.state`, events and the store have its own name; queries know both."""

from ..runtime.events import PREFLIGHT, SUBMITTED, WAITING

#: State -> its word, where that is another one.
STATE_WORDS = dict.fromkeys((PREFLIGHT, SUBMITTED, WAITING), "STARTING")


def state_word(state: str) -> str:
    """STARTING for all that a run does before its workers run; else the state."""
    return STATE_WORDS.get(state, state)
