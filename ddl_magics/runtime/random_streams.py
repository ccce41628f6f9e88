"""Where the random numbers of a process are: a rank goes on from the session's, and the session from the chief's.

Python's `random`, NumPy's global functions, TensorFlow and Keras have a stream each, whose state is JSON.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import sys
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, NamedTuple, Tuple

from .mersenne_twister import SeedSearch

#: Those whose streams come back to the session; that of Keras 2 does not.
LIBRARIES = ("Python", "NumPy", "TensorFlow", "Keras")
#: NumPy's generator of its global functions.
_NUMPYS = "MT19937"
#: The modules that a process has imported where it has the stream.
_MODULES = {"TensorFlow": "tensorflow", "Keras": "keras.src.backend.common.global_state"}


class Streams(NamedTuple):
    """The states of a process' streams; None where the library is not loaded, or nobody has seeded its stream.

    Attributes:
        python: of `random.getstate`.
        numpy: of `numpy.random.get_state`.
        tensorflow: (seed, state of the generator of operations' seeds).
        keras: (seed, state of Keras' own generator or None), of Keras 3.
        keras2: (package, state of its generator of seeds or None), of Keras 2.
    """

    python: Any
    numpy: Any
    tensorflow: Any
    keras: Any
    keras2: Any = None

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits."""
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()[:8]


#: Of this process.
_python_search, _numpy_search = SeedSearch(), SeedSearch()


def seeded() -> Streams | None:
    """Those of this process that were seeded, if there are any."""
    streams = current()
    if not _python_search.is_seeded(_pythons_words(streams.python)):
        streams = streams._replace(python=None)
    if streams.numpy is not None and not _numpy_is_seeded(streams.numpy):
        streams = streams._replace(numpy=None)
    if streams.keras is not None and streams.keras[0] is None and streams.python is None:
        streams = streams._replace(keras=None)  # else Keras draws its seeds from Python's stream
    if streams.keras2 is not None and streams.keras2[1] is None and streams.python is None:
        streams = streams._replace(keras2=None)
    return None if all(state is None for state in streams) else streams


def current() -> Streams:
    """This process', seeded or not."""
    numpy = sys.modules.get("numpy")
    context = sys.modules.get("tensorflow.python.eager.context")
    state = sys.modules.get("keras.src.backend.common.global_state")
    tensorflow = None
    if context is not None and context.global_seed() is not None:
        tensorflow = (context.global_seed(), context.context()._rng.getstate())
    keras = state and (
        state.get_global_attribute("global_random_seed"),
        _seed_of(state.get_global_attribute("global_seed_generator")),
    )
    return Streams(random.getstate(), numpy and _of_numpy(numpy), tensorflow, keras, _of_keras2())


def _of_numpy(numpy: Any) -> Any:
    """None where a cell has replaced NumPy's generator by another kind."""
    state = numpy.random.get_state(legacy=False)
    if state["bit_generator"] != _NUMPYS:
        return None
    return [_NUMPYS, state["state"]["key"].tolist(), int(state["state"]["pos"]), state["has_gauss"], state["gauss"]]


def _of_keras2() -> Any:
    for package in ("tf_keras", "keras"):
        generators = getattr(sys.modules.get(package + ".src.backend"), "_SEED_GENERATOR", None)
        if generators is not None:
            generator = getattr(generators, "generator", None)
            return package, generator and generator.getstate()
    return None


def _numpy_is_seeded(state: Any) -> bool:
    """By `seed`, which leaves a sign, or by `set_state`."""
    generator = sys.modules["numpy"].random.mtrand._rand._bit_generator
    return getattr(generator, "_seed_seq", None) is None or _numpy_search.is_seeded(state[1])


def _pythons_words(state: Any) -> Any:
    return state[1][:-1]  # the last item is the position among them


def _seed_of(generator: Any) -> Any:
    """The state of Keras' own generator, or None."""
    return None if generator is None else generator.state.numpy().tolist()


def continue_from(streams: Streams) -> None:
    """Draw from these states on; a stream without one stays as it is."""
    for library, state in zip(LIBRARIES, streams):
        if state is not None:
            _SET[library](state)
    if streams.keras2 is not None:
        _set_keras2(streams.keras2)


def _set_python(state: Any) -> None:
    random.setstate(_of_python(state))
    _python_search.note_seeded(_pythons_words(state))


def _set_numpy(state: Any) -> None:
    import numpy

    numpy.random.seed(0)  # NumPy notes that it was seeded, which a state does not tell
    numpy.random.set_state(tuple(state))


def _set_tensorflow(state: Any) -> None:
    import tensorflow
    from tensorflow.python.eager import context

    seed, generator = state
    tensorflow.random.set_seed(seed)
    context.context()._rng.setstate(_of_python(generator))


def _set_keras(state: Any) -> None:
    from keras.src.backend.common import global_state

    seed, generator = state
    global_state.set_global_attribute("global_random_seed", seed)
    global_state.set_global_attribute("global_seed_generator", None)
    if generator is not None:
        from keras.src.random.seed_generator import global_seed_generator

        pythons = random.getstate()
        global_seed_generator().state.assign(generator)  # a new one, which draws its seed from Python's stream
        random.setstate(pythons)


def _set_keras2(state: Any) -> None:
    package, of_generator = state
    backend: Any = importlib.import_module(package + ".src.backend")
    generator = None
    if of_generator is not None:
        generator = random.Random()
        generator.setstate(_of_python(of_generator))
    if hasattr(backend, "_SEED_GENERATOR"):  # a worker may have another Keras
        backend._SEED_GENERATOR.generator = generator


def _of_python(state: Any) -> Any:
    version, words, gauss = state
    return version, tuple(words), gauss


_SET: Mapping[str, Callable[[Any], None]] = {
    "Python": _set_python,
    "NumPy": _set_numpy,
    "TensorFlow": _set_tensorflow,
    "Keras": _set_keras,
}


class CellStreams:
    """What a cell draws of this rank's streams: their ends, for the session to go on from."""

    def __init__(self, continued: Streams | None) -> None:
        """continued: the session's, from which this rank has gone on."""
        self._continued = continued or Streams(None, None, None, None)
        self._before = current()
        self._seeded = {"Python": False, "NumPy": False}
        self._note_seeds("Python", random)
        if "numpy" in sys.modules:
            self._note_seeds("NumPy", sys.modules["numpy"].random)

    def _note_seeds(self, library: str, owner: Any) -> None:
        original = owner.seed

        def seed(*args: Any, **kwargs: Any) -> Any:
            self._seeded[library] = True
            return original(*args, **kwargs)

        owner.seed = seed

    def final_states(self) -> dict[str, Any]:
        """{library: its state}, of the streams that the session had or the cell has seeded, if numbers were drawn."""
        states = {}
        for library, before, state, continued in zip(LIBRARIES, self._before, current(), self._continued):
            seed = state and state[0]
            is_seeded = self._seeded[library] if library in self._seeded else seed != (before and before[0])
            if state not in (None, before) and (is_seeded or continued is not None):
                states[library] = state
        return states


class Launched:
    """The streams of the session as a run begins, by digests; and what the run brings, once it is there."""

    def __init__(self) -> None:
        self._digests = dict(_digests())
        #: Library -> the state that the run has brought, until it is set. None before that.
        self.pending: dict[str, Any] | None = None

    def advanced(self) -> Collection[str]:
        """The libraries of which a later cell has drawn numbers, or which it has seeded."""
        return [library for library, digest in _digests() if digest != self._digests.get(library)]

    def set(self, library: str, state: Any, successors: Iterable[Launched]) -> None:
        """successors: of runs that began after this one; for them this is no cell's doing."""
        replaced = dict(_digests()).get(library)
        _SET[library](state)
        digest = dict(_digests()).get(library)
        for launched in successors:
            if launched._digests.get(library) == replaced and digest is not None:
                launched._digests[library] = digest


def _digests() -> Iterator[Tuple[str, str]]:
    for library, state in zip(LIBRARIES, current()):
        if state is not None:
            yield library, hashlib.sha256(json.dumps(state).encode()).hexdigest()


def is_loaded(library: str) -> bool:
    """Whether this process has imported what the stream is of."""
    return library not in _MODULES or _MODULES[library] in sys.modules


def can_load(library: str) -> bool:
    """Import what the stream is of; False where that is not installed, or is Keras 2."""
    try:
        __import__(_MODULES[library])
    except ImportError:
        return False
    return True


def are_sound(states: Any) -> bool:
    """Whether `states`, which may come from anybody, are those of `CellStreams.final_states` as JSON."""
    return type(states) is dict and all(library in _SOUND and _SOUND[library](states[library]) for library in states)


def _is_pythons(state: Any) -> bool:
    return _has_types(state, (int, list, (float, type(None)))) and state[0] == 3 and _are_words(state[1], 625)


def _is_numpys(state: Any) -> bool:
    return (
        _has_types(state, (str, list, int, int, float))
        and state[0] == _NUMPYS
        and _are_words(state[1], 624)
        and 0 <= state[2] <= 624
    )


def _is_kerases(state: Any) -> bool:
    has_types = _has_types(state, ((int, type(None)), (list, type(None))))
    return has_types and (state[1] is None or _are_words(state[1], 2))


def _has_types(state: Any, types: Tuple[Any, ...]) -> bool:
    return type(state) is list and len(state) == len(types) and all(map(isinstance, state, types))


def _are_words(words: Any, count: int) -> bool:
    return len(words) == count and all(type(word) is int and 0 <= word < 1 << 32 for word in words)


_SOUND: Mapping[str, Callable[[Any], bool]] = {
    "Python": _is_pythons,
    "NumPy": _is_numpys,
    "TensorFlow": lambda state: _has_types(state, (int, list)) and _is_pythons(state[1]),
    "Keras": _is_kerases,
}
