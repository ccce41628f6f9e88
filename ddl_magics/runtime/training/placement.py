"""Which rows of a batch are a rank's where ranks come and go: variables that the graphs of steps read."""

from __future__ import annotations

import tensorflow as tf

from ..gradients.batch import Share, Whole
from ..keras_types import Variable
from ..rank.peers import Peers
from .share import Cutter


class Placement:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._variables: list[Variable] = []

    @property
    def position(self) -> Variable:
        """A scalar of int64."""
        return self._made()[0]

    @property
    def size(self) -> Variable:
        """A scalar of int64."""
        return self._made()[1]

    def update(self) -> None:
        """The ranks are others."""
        position, size = self._made()
        position.assign(self._peers.position)
        size.assign(self._peers.size)

    def cut(self, cutter: Cutter, whole: Whole) -> Share:
        """This rank's part of a batch. Called while a step is traced."""
        with tf.device("CPU:0"):  # the arrays that a batch is gathered from stay there
            return cutter(whole.elements, self.position.read_value(), self.size.read_value())

    def spec(self, cutter: Cutter, spec: Whole) -> Share:
        """The types and shapes of what `cut` makes of batches of these."""
        cut = tf.function(lambda elements: self.cut(cutter, Whole(elements)), autograph=False)
        made: Share = cut.get_concrete_function(spec.elements).structured_outputs
        return made

    def _made(self) -> list[Variable]:
        if not self._variables:
            with tf.init_scope(), tf.device("CPU:0"):
                values = self._peers.position, self._peers.size
                self._variables = [tf.Variable(value, trainable=False, dtype=tf.int64) for value in values]
        return self._variables
