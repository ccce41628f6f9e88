"""Workers and a parameter server on a least-squares problem, event by event on a clock of their own.

The centre is the server's own `Fit`, the rules are the real ones; only time and network are made up: workers of
different speeds, messages that take a while, and others that come between.
"""

import heapq
import itertools
from dataclasses import dataclass

import numpy as np

from ddl_magics.runtime import rules
from ddl_magics.runtime.parameter_centre import Fit

FEATURES = 10
ROWS = 2000
BATCH = 20
RATE = 0.1
#: Of a message on its way, in units of a batch's time.
DELAY = 0.5


@dataclass
class Simulated:
    """How a simulated training ended: its loss over the loss at the beginning, and the staleness of its commits."""

    loss: float
    staleness: list


class _Worker:
    def __init__(self, rank, data, pace, weights, momentum):
        self.rank, self.data, self.pace, self.momentum = rank, data, pace, momentum
        self.weights, self.velocity = weights.copy(), np.zeros_like(weights)
        self.base, self.version, self.seq = weights, 0, 0
        self._batches = itertools.cycle(range(0, len(data[0]) - BATCH + 1, BATCH))

    def train(self, window, rate):
        """As keras.optimizers.SGD steps, with Nesterov momentum where there is any."""
        for _ in range(window):
            begin = next(self._batches)
            x, y = (part[begin : begin + BATCH] for part in self.data)
            gradient = x.T @ (x @ self.weights - y) / BATCH
            self.velocity = self.momentum * self.velocity - rate * gradient
            self.weights = self.weights + self.momentum * self.velocity - rate * gradient

    def local(self, rule):
        return self.weights - self.momentum * self.velocity if rule.look_ahead else self.weights


def simulate(text, workers, window=None, batches=4000, rate=RATE, momentum=0.0, delay=DELAY, seed=0):
    """Train with the rule `text` until the workers together have seen `batches` batches."""
    random = np.random.default_rng(seed)
    window = window or workers
    rule = rules.get(text, workers, rate)
    x = random.normal(size=(ROWS, FEATURES))
    y = x @ random.normal(size=FEATURES)
    start = np.zeros(FEATURES)
    fit = Fit(rule, start.copy())
    order = random.permutation(ROWS)
    crew = []
    for rank in range(workers):
        rows = order[rank::workers]
        crew.append(_Worker(rank, (x[rows], y[rows]), random.uniform(0.7, 1.4), start, momentum))
    clock, tie, staleness, left = [], itertools.count(), [], batches

    def after(now, seconds, step, worker, *message):
        heapq.heappush(clock, (now + seconds, next(tie), step, worker, message))

    def next_window(now, worker):
        nonlocal left
        if left > 0:
            left -= window
            worker.train(window, rate)
            busy = window * worker.pace * random.uniform(0.8, 1.2)
            if rule.fresh:
                after(now, busy + delay, pulled, worker)
            else:
                committing(now + busy, worker)

    def pulled(now, worker):
        worker.base, worker.version = fit.centre, fit.version
        committing(now + delay * random.uniform(0.5, 1.5), worker)

    def committing(now, worker):
        delta = rule.delta(worker.local(rule), worker.base, window)
        shift = delta.copy()  # the server takes the delta over
        after(now, delay * random.uniform(0.5, 1.5), committed, worker, delta, shift, worker.local(rule))

    def committed(now, worker, delta, shift, local):
        staleness.append(fit.commit(worker.rank, 1, worker.seq, delta, worker.version))
        worker.seq += 1
        worker.weights = worker.weights + (rule.resume(local, shift, fit.centre) - local)
        worker.base, worker.version = fit.centre, fit.version
        after(now, delay, next_window, worker)

    for worker in crew:
        after(0.0, 0.0, next_window, worker)
    with np.errstate(all="ignore"):
        while clock:
            now, _, step, worker, message = heapq.heappop(clock)
            step(now, worker, *message)
        loss = np.mean((x @ fit.centre - y) ** 2) / np.mean(y**2)
    return Simulated(float(loss), staleness)
