"""What the parameter server knows of one fit: the centre, its version, who has committed, who has passed which epoch.

No sockets and no locks: the server calls it under its one lock, tests call it by value.
"""

import collections

import numpy as np


class Refusal(Exception):
    """A request that is not carried out: `kind` ("nonfinite", "lost" or "usage"), the rank it is about, one line."""

    def __init__(self, kind, rank, message):
        super().__init__(message)
        self.kind = kind
        self.rank = rank


class EpochEnd:
    """What every rank learns when an epoch is over: sums and means over the ranks that passed it, and the centre."""

    def __init__(self, sums, means, stop, centre, version):
        self.sums, self.means, self.stop = sums, means, stop
        #: As it stood when the last rank arrived; None in epochs before the last.
        self.centre = centre
        self.version = version


class Fit:
    """The state of one fit. `rule` is a `rule.Rule`; `centre`, a flat float array, is taken over.

    A centre never changes: a commit makes the next one, so that whoever has got one may read it without a lock.
    """

    def __init__(self, rule, centre):
        self.rule = rule
        self.centre = centre
        self.centre.setflags(write=False)
        self.version = 0
        self.epoch = 0
        self.shared = {}
        self._applied = {}
        self._arrived = collections.defaultdict(dict)
        self._ended = {}
        self._past = collections.deque(maxlen=rule.history)
        self._remember()

    def _remember(self):
        if self.rule.history:
            self._past.append((self.version, self.centre))

    def _then(self, version):
        """The centre of `version`, or the oldest that is still there."""
        for known, centre in reversed(self._past):
            if known <= version:
                return centre
        return self._past[0][1] if self._past else None

    def check(self, rank, dtype, size):
        """Refuse vectors that do not fit the centre."""
        if size != self.centre.size or np.dtype(dtype) != self.centre.dtype:
            raise Refusal(
                "usage",
                rank,
                "rank %d's model has %d weights of %s, the job's has %d of %s: build the same model on every rank"
                % (rank, size, np.dtype(dtype).name, self.centre.size, self.centre.dtype.name),
            )

    def commit(self, rank, attempt, seq, delta, version, late=0):
        """Merge a delta made against `version`; returns its staleness. A repeated commit is not merged again.

        `delta` is taken over: its memory may become the centre's. `late` is what it is staler than `version` says.
        """
        self.check(rank, delta.dtype, delta.size)
        last = self._applied.get(rank)
        if last is not None and (attempt, seq) <= last[:2]:
            return last[2]
        if not 0 <= version <= self.version:
            raise Refusal("usage", rank, "rank %d commits against version %d of %d" % (rank, version, self.version))
        staleness = self.version - version + max(0, late)
        self.centre = self.rule.merge(self.centre, delta, staleness, self._then(version))
        self.centre.setflags(write=False)
        self.version += 1
        self._remember()
        self._applied[rank] = (attempt, seq, staleness)
        return staleness

    def arrive(self, epoch, rank, sums, means, stop):
        """A rank has passed `epoch` and brings its `sums` and `means` (float64, of the same sizes on every rank)."""
        if epoch in self._ended:
            return
        arrived = self._arrived[epoch]
        for other, (their_sums, their_means, _) in arrived.items():
            if sums.size != their_sums.size or means.size != their_means.size:
                raise Refusal(
                    "usage",
                    rank,
                    "rank %d ends epoch %d with %d sums and %d means, rank %d with %d and %d: their models differ"
                    % (rank, epoch, sums.size, means.size, other, their_sums.size, their_means.size),
                )
        arrived[rank] = (sums, means, stop)

    def ended(self, epoch, awaited):
        """The `EpochEnd` once all ranks in `awaited` have arrived, else None."""
        if epoch not in self._ended:
            arrived = self._arrived[epoch]
            if not arrived or not awaited <= set(arrived):
                return None
            parts = [arrived[rank] for rank in sorted(arrived)]
            for older in self._ended.values():
                older.centre = None
            self._ended[epoch] = EpochEnd(
                sums=np.sum([sums for sums, _, _ in parts], axis=0),
                means=np.mean([means for _, means, _ in parts], axis=0),
                stop=any(stop for _, _, stop in parts),
                centre=self.centre,
                version=self.version,
            )
            if epoch >= self.epoch:
                self.epoch = epoch + 1
            del self._arrived[epoch]
        return self._ended[epoch]
