"""Attempts in which ranks come and go, with --workers MIN..MAX.

The others train on without a rank that has died, and another one is started, which joins them. With an all-reduce and
averaged weights, the ranks that train are a group, and each change is a new group (rank/regrouping.py). Beside a
parameter server they do not depend on each other, but all of them need the chief.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Iterable, Mapping

from .. import events
from ..checkpoints import checkpoint_files
from ..transport import messages, wire
from ..wording import counted
from .attempt import RANKS_WITH_DATA_SECONDS, Attempt, place_on_host, send
from .group import Group
from .run_result import RunResult

if TYPE_CHECKING:
    from ..rank.config import JobConfig

#: So often the executors of the session are looked at.
EXECUTORS_SECONDS = 2.0
#: So often in a row a rank is started that does not come to train with the others.
MOST_JOINS = 3
#: How long the checkpoint of a fit that is over may be on its way, for a rank that wants to join in it.
LATE_SECONDS = 60.0
#: The rank that a parameter server needs.
CHIEF = 0


def kind_of_attempt(config: JobConfig) -> type[Attempt]:
    """The kind of the attempts of a run whose ranks have this in common."""
    if not config.changes:
        return Attempt
    return GroupAttempt if config.regroups else ServedAttempt


class ElasticAttempt(Attempt):
    """What all strategies have in common."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._group = Group(self.number)
        self._failed_to_join = 0  # ranks, in a row
        self._leaving: set[int] = set()  # ranks that were told to end, as their executors are decommissioned

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._watch_executors, daemon=True).start()

    # -- their executors

    def _watch_executors(self) -> None:
        """Report how many executors the session holds, whenever that changes, and leave those that Spark gives up."""
        reported = None
        while not (self._over or self._cleared):
            count = self._jobs.executors_held()
            if count is not None and count != reported:
                self._journal.report(events.make("held", events.JOB, executors=count))
                reported = count
            self._leave_decommissioned()
            time.sleep(EXECUTORS_SECONDS)

    def _leave_decommissioned(self) -> None:
        """Have a rank end whose executor Spark has decommissioned, if the others can train on: one at a time."""
        with self._changed:
            executors = {rank: self._executors.get(rank) for rank in self._channels}
        for rank, executor in executors.items():
            if executor is None or not self._jobs.is_decommissioned(executor):
                continue
            with self._changed:
                if self._executors.get(rank) == executor and self._can_leave(rank):
                    self._leaving.add(rank)
                    send(self._channels[rank], messages.LEAVE, {"reason": "Spark has decommissioned its executor"})
                    return

    def _can_leave(self, rank: int) -> bool:
        """Whether a rank can end now: one that has not joined the others yet, or that they can lose."""
        record = self._record
        if not self._has_begun or self._over or self._cleared or record.stop_asked_at is not None:
            return False
        running = self._channels.keys() - record.ends.keys() - record.lost.keys() - self._leaving
        return rank in running and (rank not in self._group.members or self._can_lose(rank))

    def _can_lose(self, rank: int) -> bool:
        """Whether the others can train on without it, and another one will join them."""
        record, least = self._record, self._config.spec.min_workers or 1
        present = set(self._group.members) - record.ends.keys() - record.lost.keys() - self._leaving
        return rank in present and len(present) > least and record.stop_asked_at is None

    def _on_slow(self, rank: int) -> None:
        if self._can_lose(rank):
            threading.Thread(target=self._context.executors.replace_slow, args=(rank,), daemon=True).start()

    def _note_death(self, rank: int) -> None:
        if rank not in self._leaving:
            super()._note_death(rank)

    def _forget(self, rank: int) -> None:
        super()._forget(rank)
        self._leaving.discard(rank)

    # -- what people are told

    def _tell_loss(self, result: RunResult) -> None:
        count = len(self._group.members)
        text = "%s; %s %s on" % (result.death, counted(count, "worker"), "trains" if count == 1 else "train")
        self._journal.enter_from((events.RUNNING,), events.RUNNING, text)

    def _tell_join(self, rank: int) -> None:
        words = rank, self._hosts[rank], counted(len(self._group.members), "worker")
        self._journal.enter_from((events.RUNNING,), events.RUNNING, "rank %d on %s has joined; running on %s" % words)

    def _report_group(self, members: Iterable[int]) -> None:
        raw = events.make("group", events.JOB, members=list(members))
        self._journal.report(raw)
        self._context.limits.check_event(events.parse(raw))

    def _note_lost_newcomer(self, rank: int) -> None:
        """A rank has ended before it trained with the others."""
        if rank in self._leaving:
            return
        end = self._record.ends.get(rank)
        failure = None if end is None else end.end.failure
        self._failed_to_join += 1
        if failure is not None and failure.kind != "peer" and self._is_new(failure.message):
            self._notice(rank, "warning", "it could not join the others: " + failure.message)

    def _gives_up(self) -> bool:
        """Whether so many ranks in a row did not come to train that no other one is started, which is said once."""
        gives_up = self._failed_to_join >= MOST_JOINS
        text = "no other worker is started: %d in a row have ended before they trained with the others" % MOST_JOINS
        if gives_up and self._is_new(text):
            self._journal.notice("warning", text)
        return gives_up

    # -- ranks that come

    def _note_begin(self, ranks: Iterable[int]) -> None:
        self._group.begin(ranks)
        self._report_group(self._group.members)
        for _ in range(self._workers, self._config.max_workers):
            self._start_another()

    def on_ready(self, rank: int, address: wire.Address | None) -> None:
        if self._has_begun:
            self._take_in(rank)
        else:
            super().on_ready(rank, address)

    @property
    def _has_begun(self) -> bool:
        """The ranks have been introduced to each other."""
        return self._group.has_begun

    def _start_another(self, in_place_of: int | None = None) -> None:
        """Start a rank, to join the others, as soon as Spark has a slot for it. It has a number of its own.

        in_place_of: a rank that has ended.
        """
        record = self._record
        if record.stop_asked_at is not None or self._gives_up():
            return
        rank = max(self._numbers) + 1
        self._numbers[rank] = self.number
        record.workers += 1
        record.departed.add(rank)
        record.spark_ended_at = None
        self._submit(rank, in_place_of)

    def _take_in(self, rank: int) -> None:
        """A rank has started to join the others: it gets what they have trained so far."""
        with self._changed:
            channel = self._channels.get(rank)
            if channel is None:
                return
            self._started.add(rank)
            self._silence.forget(rank)
            checkpoints = self._context.checkpoints.files()
            hosts = {r: connection.address[0] for r, connection in sorted(self._channels.items())}
        checkpoint_files.send(channel, checkpoints)
        servers = self._context.servers
        peers = {
            "addresses": [],
            **place_on_host(rank, hosts),
            "servers": servers.addresses if servers else None,
            "joins": True,
            "resume": checkpoint_files.positions(checkpoints),
            "reported": self._journal.log.histories() if servers else None,
        }
        send(channel, messages.PEERS, peers)


class GroupAttempt(ElasticAttempt):
    """Of ranks that exchange gradients or weights with each other."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._epochs: dict[tuple[int, int], int] = {}  # (fit, epoch) -> the rank that has reported it
        self._just_joined: set[int] = set()  # which have not made a step with the others yet
        self._late_since: dict[int, float] = {}  # ranks that want to join in a fit that is over
        self._replaced: set[int] = set()  # ranks that were lost, in whose place others are being started
        self._regroups = False  # what trains now can go on without one of its ranks

    def _note_training(self, event: events.Event) -> bool:
        rank = event.rank
        if isinstance(event, events.Steps) and rank in self._just_joined:
            self._just_joined.discard(rank)
            self._failed_to_join = 0
        elif isinstance(event, events.Fit):
            self._regroups = event.regroups
        elif isinstance(event, events.FitEnd):
            self._regroups = False
        elif isinstance(event, events.Epoch):  # a chief that takes over reports the newest one again
            return self._epochs.setdefault((event.fit, event.epoch), rank) == rank
        return True

    def _can_lose(self, rank: int) -> bool:
        """Not where the others still get its state, and not between two fits."""
        have_state = set(self._group.members) - self._just_joined - {rank}
        return self._regroups and bool(have_state) and super()._can_lose(rank)

    # -- ranks that have gone

    def _replace_dead_ranks(self) -> None:
        """Have the others train on without a rank that has died, if they can."""
        if not self._has_begun:
            return
        self._turn_late_ranks_away()
        self._replace_lost_newcomers()
        record, group = self._record, self._group
        deaths = record.deaths()
        meet_often = not self._config.local_updates
        for rank in deaths.keys() - record.undecided:
            group.leave(rank)
            if meet_often or self._regroups:  # else all restart, and not only once they notice
                record.undecided.add(rank)
            if self._regroups and not meet_often:
                self._replace_lost(rank, deaths[rank])
        for rank in record.ends.keys() - record.undecided:
            group.leave(rank)
        failed = any(end.failure is not None for rank, (end, _) in record.ends.items() if rank not in record.undecided)
        nobody_has_state = not set(group.members) - self._just_joined
        if failed or nobody_has_state or len(group.members) < (self._config.spec.min_workers or 1):
            record.undecided.clear()
        self._form_group()

    def _replace_lost_newcomers(self) -> None:
        record = self._record
        deaths = record.deaths()
        for rank in record.departed & (record.ends.keys() | record.lost.keys()):
            self._group.leave(rank)
            self._note_lost_newcomer(rank)
            if rank in deaths:
                self._note_death(rank)
            self._forget(rank)
            self._start_another(rank)

    def _replace_lost(self, rank: int, result: RunResult) -> None:
        """Say that the others train on, and start a rank in place of one that they have lost."""
        self._replaced.add(rank)
        self._note_death(rank)
        self._tell_loss(result)
        self._start_another(rank)

    def _turn_late_ranks_away(self) -> None:
        """Ranks that want to join in a fit that is over get what is known of its end, to go on to the next."""
        joining, now = self._group.joining, time.monotonic()
        positions = checkpoint_files.positions(self._context.checkpoints.files()) if joining else []
        ended = {position.fit for position in positions if position.complete}
        for rank, fit in list(joining.items()):
            since = self._late_since.setdefault(rank, now) if fit < self._group.fit else now
            if fit in ended or now - since > LATE_SECONDS:
                del joining[rank]
                self._late_since.pop(rank, None)
                threading.Thread(target=self._take_in, args=(rank,), daemon=True).start()

    # -- the next group

    def on_regroup(self, rank: int, joins: int | None, welcomes: int | None) -> None:
        if joins is not None:
            self._record.departed.add(rank)
        self._group.wait(rank, joins, welcomes)
        self._turn_late_ranks_away()
        for member in self._group.members if rank in self._group.joining else ():
            self._send_to(member, messages.JOINS, {})
        self._form_group()

    def _form_group(self) -> None:
        """Tell the ranks that wait who trains from now on, once all do."""
        group, record = self._group, self._record
        before = set(group.members)
        members = group.formed()
        if members is None:
            return
        for rank, result in record.deaths().items():
            if rank in record.undecided:
                if rank not in self._replaced:
                    self._replace_lost(rank, result)
                record.departed.add(rank)
                self._forget(rank)
        for rank in set(members) - before:
            record.departed.discard(rank)
            self._just_joined.add(rank)
            self._tell_join(rank)
        self._report_group(members)
        for rank in members:
            self._send_to(rank, messages.GROUP, {"group": group.number, "ranks": members})

    def on_group_ready(self, rank: int, group: int, address: wire.Address) -> None:
        addresses = self._group.meet(rank, group, address)
        for member in self._group.members if addresses is not None else ():
            self._send_to(member, messages.PEERS, {"addresses": addresses, "group": group})

    def _send_to(self, rank: int, kind: int, value: Mapping[str, Any]) -> None:
        channel = self._channels.get(rank)
        if channel is not None:
            send(channel, kind, value)


class ServedAttempt(ElasticAttempt):
    """Of ranks beside a parameter server. One that is started in place of another has its number."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._deaths: Counter[int] = Counter()  # by rank, since the last epoch ended
        self._put_off: set[int] = set()  # ranks, until the chief is there again

    def _note_training(self, event: events.Event) -> bool:
        if isinstance(event, events.Epoch):
            self._deaths.clear()
        if isinstance(event, events.Steps) and self._has_begun and event.rank not in self._group.members:
            self._note_joined(event.rank)
        return True

    def _note_joined(self, rank: int) -> None:
        """A rank that has come later trains."""
        self._record.departed.discard(rank)
        self._failed_to_join = 0
        self._group.members = sorted([*self._group.members, rank])
        self._tell_join(rank)
        self._report_group(self._group.members)

    def _report_group(self, members: Iterable[int]) -> None:
        super()._report_group(sorted({CHIEF, *members}))  # it is the chief also while another process takes its number

    def _can_leave(self, rank: int) -> bool:
        return rank != CHIEF and super()._can_leave(rank)

    def _can_lose(self, rank: int) -> bool:
        return rank != CHIEF and super()._can_lose(rank)

    # -- ranks that have gone

    def _replace_dead_ranks(self) -> None:
        """Have another one take a dead rank's number."""
        record, group = self._record, self._group
        if not self._has_begun:
            return super()._replace_dead_ranks()
        if record.stop_asked_at is not None or record.server_death:
            return
        deaths = record.deaths()
        failed = {rank for rank in record.departed & record.ends.keys() if record.ends[rank].end.failure is not None}
        for rank in sorted(deaths.keys() | failed):
            if rank in group.members:
                group.leave(rank)
                self._tell_loss(deaths[rank])
                self._report_group(group.members)
                self._failed_to_join = 0
            else:
                self._note_lost_newcomer(rank)
            if rank in deaths:
                self._note_death(rank)
            self._deaths[rank] += rank not in self._leaving
            gives_up = self._gives_up() or self._dies_too_often(rank)
            if gives_up and rank == CHIEF:
                continue  # which all others need
            self._forget(rank)
            self._start_in_place(rank, starts=not gives_up)

    def _dies_too_often(self, rank: int) -> bool:
        """Whether a rank has died so often in one epoch that it is left out, which is said."""
        too_often = self._deaths[rank] >= max(self._max_starts, MOST_JOINS)
        if too_often and rank != CHIEF:
            text = "it is not started again: it has died %d times in one epoch"
            self._notice(rank, "warning", text % self._deaths[rank])
        return too_often

    def _start_in_place(self, rank: int, starts: bool = True) -> None:
        """Start a rank again, to join the others; the run does not end because of it. starts: False: it is left out."""
        if rank == CHIEF:
            self._expect(1, RANKS_WITH_DATA_SECONDS)
        else:
            self._record.departed.add(rank)
        if starts:
            self._submit(rank, in_place_of=rank)

    def _take_in(self, rank: int) -> None:
        with self._changed:
            if self._makes_room(rank):
                return
            if rank == CHIEF and CHIEF in self._channels:
                self._record.start_deadline = None
                while self._put_off:
                    self._start_in_place(self._put_off.pop())
        super()._take_in(rank)

    def _makes_room(self, rank: int) -> bool:
        """End a rank that has come while the chief waits for a slot, which has to come first; else False."""
        record = self._record
        if CHIEF in (rank, *self._channels, *record.ends) or record.stop_asked_at is not None:
            return False
        self._forget(rank)
        self._put_off.add(rank)
        return True
