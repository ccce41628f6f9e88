"""Generators of random numbers of the notebook, from which a cell has drawn: NumPy's, and Python's."""

from __future__ import annotations

from typing import Any

_CLASSES = frozenset((("random", "Random"), ("numpy", "Generator"), ("numpy", "RandomState")))


class State:
    """What `set_state` takes."""

    def __init__(self, value: Any) -> None:
        self.value = value


def is_generator(value: Any) -> bool:
    cls = type(value)
    return (str(cls.__module__).partition(".")[0], cls.__name__) in _CLASSES


def state(generator: Any) -> Any:
    """Numbers, texts and arrays, in dicts and tuples."""
    if hasattr(generator, "getstate"):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    return generator.get_state(legacy=False)


def set_state(generator: Any, new_state: State) -> None:
    """Raises ValueError, TypeError or KeyError for what is no state of this kind of generator."""
    if hasattr(generator, "setstate"):
        generator.setstate(new_state.value)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = new_state.value
    else:
        generator.set_state(new_state.value)
