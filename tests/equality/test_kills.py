"""Workers that are killed and replaced at random moments learn what one process learns."""

import pytest
from support import comparison

pytestmark = pytest.mark.timeout(900)

#: Cases whose steps are Keras' own: with callbacks, partial batches, several fits, sparse gradients, statistics.
REPEATED = (
    "callbacks",
    "pipeline",
    "two_fits",
    "synchronized",
    "accumulation",
    "rich_metrics",
    "embedding",
    "compiled",
)
REPEATED += ("sgd_momentum", "adamw_clipnorm", "schedule", "weighted", "regularised", "one_pipeline_twice")

#: Each rank but one may kill itself at each step, in its middle or between two steps. All ranks make the same plan.
KILLS = """
import os as _os, random as _random, signal as _signal, threading as _threading, time as _time
import keras as _keras
_spared = _random.Random({seed}).randrange({workers})
_fits = [0]
class _Kills(_keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        _fits[0] += 1
    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
    def on_train_batch_begin(self, batch, logs=None):
        _time.sleep({pause})
        draws = _random.Random(repr(({seed}, _fits[0], self._epoch, batch)))
        victim, dies, delay = draws.randrange(8), draws.random() < {share}, draws.choice([0, draws.random() * 0.02])
        if dies and victim == ddl.rank != _spared:
            kill = lambda: _os.kill(_os.getpid(), _signal.SIGKILL)
            _threading.Timer(delay, kill).start() if delay else kill()
_fit = _keras.Model.fit
def _fit_with_kills(model, *args, callbacks=None, **kwargs):
    return _fit(model, *args, callbacks=[*(callbacks or []), _Kills()], **kwargs)
_keras.Model.fit = _fit_with_kills
"""


#: Of a hundred schedules, those that run each time; the rest with `make test-slow`. In 62 the first step is repeated.
ALWAYS = (0, 1, 2, 62)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed not in ALWAYS)) for seed in range(100)]
)
def test_random_kills(rank_pool, reference, seed):
    names = [REPEATED[seed % len(REPEATED)]]
    prologue = KILLS.format(seed=seed, workers=3, pause=0.15, share=0.4)
    learned = comparison.learn(rank_pool(4), names, "float64", 3, prologue, min_workers=1, provenance=False)
    assert {event["attempt"] for event in learned.ended.of_kind("epoch")} == {1}, "none began again"
    found = learned.differences(reference)
    assert not found, (found, [event["members"] for event in learned.ended.of_kind("group")])


#: Rank 1 kills itself in the second fit, of which there is enough left for another one to join.
KILL_IN_SECOND_FIT = """
import os as _os, signal as _signal, time as _time
import keras as _keras
_fits = [0]
class _Kill(_keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        _fits[0] += 1
    def on_train_batch_begin(self, batch, logs=None):
        if _fits[0] == 2:
            _time.sleep(0.3)
            if ddl.rank == 1:
                _os.kill(_os.getpid(), _signal.SIGKILL)
_fit = _keras.Model.fit
_keras.Model.fit = lambda model, *args, **kwargs: _fit(model, *args, callbacks=[_Kill()], **kwargs)
"""


def test_who_joins_in_the_second_fit_has_the_rows_of_the_others(rank_pool, reference):
    """Of a dataset that the first fit has read, too."""
    learned = comparison.learn(
        rank_pool(3), ["one_pipeline_twice"], "float64", 2, KILL_IN_SECOND_FIT, min_workers=1, provenance=False
    )
    assert [event["members"] for event in learned.ended.of_kind("group")][-1] == [0, 2]
    found = learned.differences(reference)
    assert not found, found
