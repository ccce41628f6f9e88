"""Workers and a parameter server on a least-squares problem, event by event on a clock of their own.

The centre is the server's own `Fit`, the rules are the real ones; only time and network are made up: workers of
different speeds, messages that take a while, and others that come between. As in a real run a worker trains on while
its commit is under way, and takes the answer after the batch in which it comes.
"""

import heapq
import itertools
from dataclasses import dataclass

import numpy as np

from ddl_magics.runtime.parameter_server import update_rules
from ddl_magics.runtime.parameter_server.centre import Fit
from ddl_magics.runtime.parameter_server.exchange import overlap_staleness
from ddl_magics.runtime.training import stability

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
        self.trained = self.behind = self.passed = 0
        self.in_flight = self.waits = False
        self.answer = None
        self._batches = itertools.cycle(range(0, len(data[0]) - BATCH + 1, BATCH))

    def step(self, rate):
        """As keras.optimizers.SGD steps, with Nesterov momentum where there is any."""
        begin = next(self._batches)
        x, y = (part[begin : begin + BATCH] for part in self.data)
        gradient = x.T @ (x @ self.weights - y) / BATCH
        self.velocity = self.momentum * self.velocity - rate * gradient
        self.weights = self.weights + self.momentum * self.velocity - rate * gradient
        self.trained += 1

    def take_answer(self):
        shift, self.base, self.version, self.passed = self.answer
        self.weights = self.weights + shift
        self.behind, self.answer, self.in_flight = self.trained, None, False


class _Simulation:
    def __init__(self, rule, window, batches, rate, delay, random):
        self.rule, self.window, self.left, self.rate, self.delay = rule, window, batches, rate, delay
        self.random, self.staleness = random, []
        self._clock, self._tie = [], itertools.count()

    def run(self, fit, crew):
        self.fit = fit
        for worker in crew:
            self._after(0.0, worker.pace, self._batch_end, worker)
        while self._clock:
            now, _, step, worker, message = heapq.heappop(self._clock)
            step(now, worker, *message)

    def _after(self, now, seconds, step, worker, *message):
        heapq.heappush(self._clock, (now + seconds, next(self._tie), step, worker, message))

    def _message(self, now, step, worker, *message):
        self._after(now, self.delay * self.random.uniform(0.5, 1.5), step, worker, *message)

    def _batch_end(self, now, worker):
        worker.step(self.rate)
        self.left -= 1
        if worker.answer:
            worker.take_answer()
        self._go_on(now, worker)

    def _go_on(self, now, worker):
        if worker.trained >= self.window:
            if worker.in_flight:
                worker.waits = True
                return
            self._send(now, worker)
        if self.left > 0:
            self._after(now, worker.pace * self.random.uniform(0.8, 1.2), self._batch_end, worker)

    def _send(self, now, worker):
        local = worker.weights - worker.momentum * worker.velocity if self.rule.look_ahead else worker.weights
        staler = 0 if self.rule.fresh else overlap_staleness(worker.trained, worker.behind, worker.passed)
        worker.in_flight = True
        if self.rule.fresh:
            self._message(now, self._pulled, worker, local, worker.trained)
        else:
            self._commit(now, worker, local, worker.trained, worker.base, worker.version, staler)
        worker.trained = 0

    def _pulled(self, now, worker, local, batches):
        self._commit(now + self.delay, worker, local, batches, self.fit.centre, self.fit.version, 0)

    def _commit(self, now, worker, local, batches, base, version, staler):
        delta = self.rule.delta(local, base, max(batches, self.window))
        self._message(now, self._committed, worker, local, delta, version, staler)

    def _committed(self, now, worker, local, delta, version, staler):
        gave = delta.copy()  # the server takes the delta over
        staleness = self.fit.commit(worker.rank, 1, worker.seq, delta, version, staler)
        worker.seq += 1
        self.staleness.append(staleness)
        shift = self.rule.resume(local, gave, self.fit.centre) - local
        self._message(now, self._answered, worker, (shift, self.fit.centre, self.fit.version, staleness - staler))

    def _answered(self, now, worker, answer):
        worker.answer = answer
        if worker.waits:
            worker.waits = False
            worker.take_answer()
            self._go_on(now, worker)


def simulate(text, workers, window=None, batches=6000, rate=RATE, momentum=0.0, delay=DELAY, seed=0):
    """Train with the rule `text` until the workers together have seen `batches` batches."""
    random = np.random.default_rng(seed)
    window = window or workers
    rule = stability.steady(update_rules.get(text, workers, rate), rate, momentum, window)
    x = random.normal(size=(ROWS, FEATURES))
    y = x @ random.normal(size=FEATURES)
    start = np.zeros(FEATURES)
    order = random.permutation(ROWS)
    shares = [order[rank::workers] for rank in range(workers)]
    paces = random.uniform(0.7, 1.4, workers)
    crew = [_Worker(k, (x[rows], y[rows]), paces[k], start, momentum) for k, rows in enumerate(shares)]
    fit = Fit(rule, start.copy())
    simulation = _Simulation(rule, window, batches, rate * rule.rate, delay, random)
    with np.errstate(all="ignore"):
        simulation.run(fit, crew)
        loss = np.mean((x @ fit.centre - y) ** 2) / np.mean(y**2)
    return Simulated(float(loss), simulation.staleness)
