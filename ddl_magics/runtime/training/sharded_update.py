"""An optimizer of Keras whose update and state are divided among the ranks: each has a part of the elements.

The optimizer is built on this rank's parts of the variables, and updates these as Keras' own code says; then the ranks
hand the updated variables round. A variable of which a rank has all elements is its own segment. Of one that two ranks
share, each has a variable of its elements, which is set to them before each update: callbacks may have changed them.
"""

from __future__ import annotations

import contextlib
import inspect
import mmap
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Container, Iterator, NamedTuple, Sequence

import keras
import numpy as np
import tensorflow as tf

from ..collectives.announcement import CHECKPOINT
from ..gradients.batch import Share
from ..gradients.exchange import GradientExchange, is_sparse
from ..gradients.sharded_exchange import Clipping, ShardedExchange
from ..gradients.sharding import Segment, Shard, Spec, segments, shards
from ..keras_types import Gradient, Optimizer, Tensor, Variable, array_of, is_of_keras
from ..rank.rank import Rank

#: Keras' optimizers that update each element by its own gradient and state.
_BY_ELEMENT = {"SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion"}
#: Those that need whole variables.
_BY_VARIABLE = {"Lamb", "Muon"}

#: A state of the optimizer from this size on, gathered after a fit, is in a file.
LARGE_BYTES = 8 << 20

_SPARSE = (
    "--shard-optimizer: a layer other than Embedding looks rows up in its weights, whose gradients are sparse: leave "
    "the option out"
)
_UNKNOWN = "--shard-optimizer: %s was not among the variables of the first step"

#: Call an optimizer with gradients of these variables.
Apply = Callable[[Sequence[Gradient], Sequence[Variable]], Any]


def refusal(optimizer: Optimizer) -> str:
    """Why the update of an optimizer cannot be sharded, behind its name; "" if it can."""
    kind = type(optimizer)
    if not is_of_keras(kind) or ".legacy." in kind.__module__:
        return "is not one of Keras' optimizers"
    if hasattr(optimizer, "inner_optimizer") or getattr(optimizer, "loss_scale_factor", None) is not None:
        return "scales the loss"
    is_keras2 = keras.__version__.startswith("2")
    if kind.__name__ not in _BY_ELEMENT | _BY_VARIABLE or (is_keras2 and kind.__name__ == "Nadam"):
        return "has a state that cannot be divided"
    if getattr(optimizer, "use_ema", False) and is_keras2:
        return "begins its averages with the weights"
    if getattr(optimizer, "gradient_accumulation_steps", None) and _clipping(optimizer):
        return "bounds the norm of gradients that it accumulates"
    return ""


def states_of(optimizer: Optimizer, variables: Sequence[Variable]) -> list[tuple[Variable, str]]:
    """(variable, name of the state) of what an optimizer keeps for each variable, in its order.

    It is found by building another optimizer like this one: in a thread of its own, as a step in whose trace variables
    are made is traced once more.
    """

    def build() -> list[tuple[Variable, str]]:
        other = type(optimizer).from_config(optimizer.get_config())
        with _states_made(other, makes=False) as made:
            other.build(list(variables))
        return [(reference, name) for reference, name, _ in made]

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(build).result()


class _State(NamedTuple):
    """What an optimizer remembers of variable `number`, by the name that it has for it: "momentum", for example."""

    number: int
    name: str


class ShardedUpdate:
    """The update of one optimizer, on this rank. All ranks make it, and call its methods, together.

    Variables are numbered: first those that are sharded, then the whole ones.
    """

    def __init__(
        self, rank: Rank, optimizer: Optimizer, variables: Sequence[Variable], whole_ids: Container[int]
    ) -> None:
        """Build the optimizer, which is not built, on this rank's parts of the variables.

        whole_ids: ids of variables that every rank updates by itself, as their gradients may be sparse.
        """
        self._rank, self._optimizer = rank, optimizer
        collective = rank.peers.collective
        sharded = [variable for variable in variables if id(variable) not in whole_ids]
        self._variables = sharded + [variable for variable in variables if id(variable) in whole_ids]
        self._wholes = self._variables[len(sharded) :]
        self._numbers = {id(variable): number for number, variable in enumerate(self._variables)}
        by_element = type(optimizer).__name__ in _BY_ELEMENT
        self._specs = [_spec(variable, by_element) for variable in sharded]
        self._shards = shards(self._specs, collective.size, collective.position)
        self._exchanges: dict[bool, ShardedExchange] = {}
        self._targets: dict[Segment, Variable] = {}  # what the optimizer has for each segment
        for segment in segments(self._shards):
            whole = sharded[segment.number]
            self._targets[segment] = whole if segment.is_whole else _piece(whole, segment)
        self._first = len(optimizer._variables)  # iterations and learning rate
        self._order = self._order_of_states(variables)
        self._states: dict[tuple[_State, int], Variable] = {}  # by the first element of their segment
        self._build()
        self._kept: list[np.ndarray] | None = None
        self._kept_at = 0  # steps
        self._replace_methods()

    def _order_of_states(self, variables: Sequence[Variable]) -> list[_State]:
        """The states in the order in which one process has them."""
        numbers = {_key(variable): number for number, variable in enumerate(self._variables)}
        return [_State(numbers[_key(reference)], name) for reference, name in states_of(self._optimizer, variables)]

    def _build(self) -> None:
        owners = {_key(target): (segment.number, segment.begin) for segment, target in self._targets.items()}
        owners.update({_key(variable): (self._numbers[id(variable)], 0) for variable in self._wholes})
        with _states_made(self._optimizer) as made:
            self._optimizer.build([*self._targets.values(), *self._wholes])
        for reference, name, variable in made:
            number, begin = owners[_key(reference)]
            self._states[_State(number, name), begin] = variable

    # -- in place of the optimizer's own methods

    def _replace_methods(self) -> None:
        optimizer = self._optimizer
        clip, decays = optimizer._clip_gradients, optimizer._use_weight_decay
        self._finalize_own = optimizer.finalize_variable_values
        owners = {_key(target): self._variables[segment.number] for segment, target in self._targets.items()}

        def use_weight_decay(variable: Variable) -> bool:
            """As for the variable that a part is of."""
            owner = owners.get(_key(variable), variable)
            return bool(decays(getattr(owner, "_value", owner)))

        replaced = {
            # The exchange bounds norms, of which this rank has segments.
            "_clip_gradients": lambda gradients: gradients if _clipping(optimizer) else clip(gradients),
            "_use_weight_decay": use_weight_decay,
            "finalize_variable_values": self._finalize,
            "save_own_variables": self._save,
            "load_own_variables": self._load,
        }
        for name, method in replaced.items():
            object.__setattr__(optimizer, name, method)

    def _finalize(self, _: Sequence[Variable]) -> None:
        """At the end of a fit, an optimizer may put moving averages in place of the variables."""
        if self._optimizer.use_ema:
            self._finalize_own([*self._targets.values(), *self._wholes])
            self._hand_round(self._exchange(False), in_step=False)

    def _save(self, store: Any) -> None:
        for number, array in enumerate(self.kept or self.gather()):
            store[str(number)] = array

    def _load(self, store: Any) -> None:
        for number, variable in enumerate(self.whole_variables()):
            variable.assign(np.asarray(store[str(number)]))

    # -- a step

    def update(
        self,
        apply: Apply,
        gradients: Sequence[Gradient],
        variables: Sequence[Variable],
        share: Share | None,
        check_finite: bool,
    ) -> Any:
        """Update variables by the gradients of the whole job. Called while the step is traced.

        Args:
            gradients: This rank's own, in the order of `variables`.
            check_finite: As for `GradientExchange`.

        Returns:
            What `apply` returns.
        """
        own: list[Gradient] = [None] * len(self._variables)
        for gradient, variable in zip(gradients, variables):
            own[self._number(variable)] = gradient
        dense, of_wholes = own[: len(self._specs)], own[len(self._specs) :]
        if any(gradient is not None and is_sparse(gradient) for gradient in dense):
            raise ValueError(_SPARSE)
        for segment, target in self._targets.items():
            if not segment.is_whole:  # a callback may have changed the variable
                target.assign(_elements(self._variables[segment.number], segment))
        exchange = self._exchange(check_finite)
        sums = exchange.segments(dense, share)
        targets, summed = [self._targets[segment] for segment in sums], list(sums.values())
        if any(gradient is not None for gradient in of_wholes):
            peers, errors = self._rank.peers, self._rank.errors
            present = [number for number, gradient in enumerate(of_wholes) if gradient is not None]
            targets += [self._wholes[number] for number in present]
            summed += GradientExchange(peers, errors, check_finite)([of_wholes[number] for number in present], share)
        # An optimizer refuses to update nothing.
        result = apply(summed, targets) if targets else self._optimizer.iterations.assign_add(1)
        self._hand_round(exchange, in_step=True)
        return result

    def _number(self, variable: Variable) -> int:
        if id(variable) not in self._numbers:
            raise ValueError(_UNKNOWN % variable.name)
        return self._numbers[id(variable)]

    def _hand_round(self, exchange: ShardedExchange, in_step: bool) -> None:
        """Give the other ranks the variables that this one has updated, and take theirs."""
        values = {segment: tf.convert_to_tensor(target) for segment, target in self._targets.items()}
        # The exchange writes where the gradients were: the states must have been updated by them, too.
        with tf.control_dependencies([tf.convert_to_tensor(state) for state in self._states.values()]):
            gathered = exchange.gathered(values, in_step)
        for number, tensor in gathered.items():
            self._variables[number].assign(tensor)

    def _exchange(self, check_finite: bool) -> ShardedExchange:
        if check_finite not in self._exchanges:
            peers, errors, clipping = self._rank.peers, self._rank.errors, _clipping(self._optimizer)
            exchange = ShardedExchange(peers, errors, check_finite, self._specs, self._shards, clipping)
            self._exchanges[check_finite] = exchange
        return self._exchanges[check_finite]

    # -- the state as one process has it

    def gather(self) -> list[np.ndarray]:
        """The optimizer's variables as one process has them, in its order. A collective."""
        arrays: dict[_State, np.ndarray] = {}
        for shard in self._shards:
            of_shard = {number for number, _ in shard.layout.slices}
            for name in dict.fromkeys(state.name for state in self._order if state.number in of_shard):
                arrays.update(self._gather(shard, name))
        for state in self._order:
            if state.number >= len(self._specs):
                arrays[state] = np.asarray(self._states[state, 0])
        first = [np.asarray(variable) for variable in self._optimizer._variables[: self._first]]
        return first + [arrays[state] for state in self._order]

    def _gather(self, shard: Shard, name: str) -> dict[_State, np.ndarray]:
        flat = _zeros(shard.layout.size, shard.dtype)
        for segment in shard.segments:
            variable = self._states.get((_State(segment.number, name), segment.begin))
            if variable is not None:
                flat[segment.flat] = array_of(variable).reshape(-1)
        peers = self._rank.peers
        peers.collective.all_gather(flat, shard.bounds, peers.announcement(CHECKPOINT))
        return {_State(i, name): flat[where].reshape(self._specs[i].shape) for i, where in shard.layout.slices}

    def keep(self, arrays: list[np.ndarray] | None) -> None:
        """Keep what `gather` has returned, for those that ask for it before the next update; None: nothing."""
        self._kept, self._kept_at = arrays, self._steps

    @property
    def kept(self) -> list[np.ndarray] | None:
        """What is kept, unless the optimizer has made an update since."""
        return self._kept if self._kept_at == self._steps else None

    @property
    def _steps(self) -> int:
        return sum(exchange.steps for exchange in self._exchanges.values())

    def whole_variables(self) -> list[WholeState]:
        """In place of the optimizer's variables, for code that wants those of one process."""
        like = [*self._optimizer._variables[: self._first], *(self._variables[state.number] for state in self._order)]
        return [WholeState(self, number, variable) for number, variable in enumerate(like)]

    def put(self, number: int, array: np.ndarray) -> None:
        """Set this rank's parts of variable `number` of what `gather` returns."""
        self._kept = None
        if number < self._first:
            self._optimizer._variables[number].assign(array)
            return
        state = self._order[number - self._first]
        if state.number >= len(self._specs):
            self._states[state, 0].assign(array)
        for segment in self._targets:
            if segment.number == state.number:
                variable = self._states[state, segment.begin]
                elements = array.reshape(-1)[segment.begin : segment.stop]
                variable.assign(elements.reshape(tuple(variable.shape)))


class WholeState:
    """A variable of a sharded optimizer, as one process has it. Its value is there where the ranks have gathered it."""

    def __init__(self, update: ShardedUpdate, number: int, like: Variable) -> None:
        """number: among those of `ShardedUpdate.gather`. like: a variable of the same shape and dtype."""
        self._update, self._number, self.shape, self.dtype = update, number, like.shape, like.dtype

    def numpy(self) -> np.ndarray:
        kept = self._update.kept
        assert kept is not None, "the ranks have not gathered the optimizer's state"
        return kept[self._number]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def assign(self, value: Any) -> None:
        self._update.put(self._number, np.asarray(value))


def _zeros(size: int, dtype: np.dtype) -> np.ndarray:
    """An array of one dimension; a large one is in a file without a name, so that it needs no memory of the process."""
    count = size * dtype.itemsize
    if count >= LARGE_BYTES and hasattr(os, "posix_fallocate"):
        with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, count)  # a full disk is an error here, and would end the process later
            return np.frombuffer(mmap.mmap(file.fileno(), count), dtype)
    return np.zeros(size, dtype)


def _clipping(optimizer: Optimizer) -> Clipping | None:
    each, together = getattr(optimizer, "clipnorm", None), getattr(optimizer, "global_clipnorm", None)
    return Clipping(each, together) if each or together else None


def _spec(variable: Variable, by_element: bool) -> Spec:
    may_split = by_element and getattr(variable, "constraint", None) is None
    return Spec(tuple(variable.shape), np.dtype(tf.as_dtype(variable.dtype).as_numpy_dtype), may_split)


def _piece(variable: Variable, segment: Segment) -> Variable:
    """A variable for the elements of a segment: zeros, as the first trace of a step cannot read all variables."""
    with tf.init_scope():
        zeros = tf.zeros([segment.stop - segment.begin], tf.as_dtype(variable.dtype))
        return tf.Variable(zeros, trainable=False, name="part_of_variable")


def _elements(variable: Variable, segment: Segment) -> Tensor:
    return tf.reshape(tf.convert_to_tensor(variable), [-1])[segment.begin : segment.stop]


def _key(variable: Variable) -> Any:
    value: Any = getattr(variable, "_value", variable)
    return value._unique_id


@contextlib.contextmanager
def _states_made(optimizer: Optimizer, makes: bool = True) -> Iterator[list[tuple[Variable, str, Variable]]]:
    """(the model's variable, name of the state, the optimizer's variable), in the order in which these are made.

    makes: else the optimizer gets a scalar for each.
    """
    made: list[tuple[Variable, str, Variable]] = []
    original = optimizer.add_variable_from_reference
    signature = inspect.signature(original)

    def add(*args: Any, **kwargs: Any) -> Variable:
        reference, name = list(signature.bind(*args, **kwargs).arguments.values())[:2]
        variable = original(*args, **kwargs) if makes else tf.Variable(0.0, trainable=False)
        made.append((reference, name, variable))
        return variable

    object.__setattr__(optimizer, "add_variable_from_reference", add)
    try:
        yield made
    finally:
        object.__delattr__(optimizer, "add_variable_from_reference")
