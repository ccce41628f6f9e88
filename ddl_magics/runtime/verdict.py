"""Whether a run is over, and why: a pure function of what the driver has heard from its ranks and from Spark.

The first rank to fail is rarely alone: its peers lose their connections. The verdict therefore prefers a cause to its
consequences, and waits a moment for the cause when it has only heard of consequences.
"""

from .events import FAILED, FINISHED, STOPPED

#: How long a lost peer may stay unexplained before it is given as the reason itself.
PEER_GRACE_SECONDS = 4.0
#: How long Spark's word that the job failed waits for a better explanation by a rank.
SPARK_GRACE_SECONDS = 3.0


class Heard:
    """What has happened so far. Times are of one monotonic clock, in seconds; None means not yet.

    ends: rank -> {"outcome", "failure"}; lost: rank -> (host, time its connection closed without an end).
    """

    def __init__(self, workers):
        self.workers = workers
        self.ends = {}
        self.ended_at = {}
        self.lost = {}
        self.spark_error = None
        self.spark_done_at = None
        self.stop_asked_at = None
        self.stop_deadline = None
        self.stop_reason = ""  # words after "stopped"
        self.start_deadline = None
        self.start_message = ""
        self.server_died = None


#: How often the workers of a run are started in all, where its spec does not say.
ATTEMPTS = 3
#: Kinds of failures that are the death of a process, for which the cell cannot be blamed.
DEATHS = frozenset(("signal", "lost"))


class Verdict:
    """How the run, or an attempt of it, ended. `kill`: ranks may still run and must be cancelled."""

    def __init__(self, state, message, failure=None, kill=False):
        self.state, self.message, self.failure, self.kill = state, message, failure, kill

    @property
    def of_a_death(self):
        """Whether a rank's process died: another attempt may do better."""
        return self.failure is not None and self.failure["kind"] in DEATHS and self.failure["rank"] >= 0

    @property
    def death(self):
        """Who died of what, in a few words."""
        what = self.failure["message"].partition(";")[0]
        return "rank %d on %s died (%s)" % (self.failure["rank"], self.failure["host"], what)

    def after(self, words):
        """The same with some `words` at the end of its message."""
        failure = self.failure and dict(self.failure, message=self.failure["message"] + words)
        return Verdict(self.state, self.message + words, failure, self.kill)


def _failed(failure, kill=True):
    who = "rank %d on %s: " % (failure["rank"], failure["host"]) if failure["rank"] >= 0 else ""
    return Verdict(FAILED, who + failure["message"], failure, kill)


def of_the_job(kind, message):
    """The failure of a run that no rank is to blame for."""
    return {"rank": -1, "host": "", "kind": kind, "message": message, "traceback": ""}


def dead(heard):
    """{rank: `Verdict`} of those whose process has died."""
    found = {}
    for rank, end in heard.ends.items():
        if end["outcome"] == "failed" and end["failure"]["kind"] in DEATHS:
            found[rank] = _failed(end["failure"])
    for rank, (host, _) in heard.lost.items():
        found[rank] = _failed(_lost(rank, host))
    return found


def _lost(rank, host):
    message = "its supervisor process on the executor died (killed, or the executor was lost)"
    return {"rank": rank, "host": host, "kind": "lost", "message": message, "traceback": ""}


def judge(heard, now):
    """A Verdict, or None while the run goes on."""
    failures = [(heard.ended_at[r], r, e["failure"]) for r, e in heard.ends.items() if e["outcome"] == "failed"]
    causes = sorted(
        (f for f in failures if f[2]["kind"] != "peer"), key=lambda f: (f[2]["kind"] == "diverged", f[0], f[1])
    )
    if causes:
        return _failed(causes[0][2])
    if heard.server_died:
        return _failed(of_the_job("lost", heard.server_died))
    if heard.stop_asked_at is not None:
        return _judge_stop(heard, now)
    for rank, (host, _) in sorted(heard.lost.items()):
        return _failed(_lost(rank, host))
    if len(heard.ends) == heard.workers:
        if failures:
            return _failed(min(failures)[2], kill=False)
        stopped = any(end["outcome"] == "stopped" for end in heard.ends.values())
        return Verdict(STOPPED, "stopped by the cell") if stopped else Verdict(FINISHED, "all workers finished")
    if failures and now - min(failures)[0] > PEER_GRACE_SECONDS:
        return _failed(min(failures)[2])
    if heard.spark_done_at is not None and now - heard.spark_done_at > SPARK_GRACE_SECONDS:
        message = heard.spark_error or "the Spark job ended before its workers did: somebody cancelled it"
        return _failed(of_the_job("spark", message), kill=False)
    if heard.start_deadline is not None and now > heard.start_deadline:
        return _failed(of_the_job("spark", heard.start_message))
    return None


def _judge_stop(heard, now):
    if len(heard.ends) == heard.workers or heard.spark_done_at is not None:
        return Verdict(STOPPED, "stopped%s; the model and its history are kept" % heard.stop_reason)
    if now > heard.stop_deadline:
        grace = heard.stop_deadline - heard.stop_asked_at
        if not grace:
            return Verdict(STOPPED, "stopped before the workers started", kill=True)
        message = "stopped%s, by force: no step ended within %g s" % (heard.stop_reason, grace)
        return Verdict(STOPPED, message, kill=True)
    return None
