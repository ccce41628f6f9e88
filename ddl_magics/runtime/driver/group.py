"""Which ranks of an attempt train together, where they come and go: the driver's part of rank/regrouping.py.

Ranks that have lost a peer wait for the next group. It is formed when all that live wait, and complete when each has
said where the others reach it.
"""

from __future__ import annotations

from typing import Iterable

from ..transport import wire

#: Groups of different attempts have different numbers.
_GROUPS_OF_ATTEMPT = 10_000


class Group:
    """members: the ranks, by position; none before they are introduced to each other. number: of the group. joining:
    ranks that wait to join, and in which fit. fit: in which the members have welcomed others last.
    """

    def __init__(self, attempt: int) -> None:
        self.number = attempt * _GROUPS_OF_ATTEMPT
        self.members: list[int] = []
        self.joining: dict[int, int] = {}
        self.fit = -1
        self._waiting: dict[int, int | None] = {}  # of the members: the fit in which it welcomes ranks that join
        self._addresses: dict[int, wire.Address] = {}
        self._forming = False
        self.has_begun = False  # the ranks of the first group have been introduced to each other

    def begin(self, ranks: Iterable[int]) -> None:
        """These ranks are the first group."""
        self.members, self.has_begun = sorted(ranks), True

    def wait(self, rank: int, joins: int | None, welcomes: int | None) -> None:
        """A rank waits for the next group, as messages.REGROUP says."""
        if joins is not None:
            self.joining[rank] = joins
            self.members = [member for member in self.members if member != rank]
        else:
            self._waiting[rank] = welcomes

    def leave(self, rank: int) -> None:
        """A rank has died, or its cell has ended. Those who were to meet it wait again."""
        self.members = [member for member in self.members if member != rank]
        self._waiting.pop(rank, None)
        self.joining.pop(rank, None)
        if self._forming:
            self._forming = False
            self._waiting = dict.fromkeys(self.members)

    def formed(self) -> list[int] | None:
        """The members of the next group if all wait for it, by position; it is formed then."""
        if not self.members or any(member not in self._waiting for member in self.members):
            return None
        (fit, *other_fits) = set(self._waiting.values())
        if fit is not None and not other_fits:
            self.fit = fit
            newcomers = sorted(rank for rank, joins in self.joining.items() if joins == fit)
            self.members += newcomers
            for rank in newcomers:
                del self.joining[rank]
        self._waiting.clear()
        self._addresses.clear()
        self.number, self._forming = self.number + 1, True
        return list(self.members)

    def meet(self, rank: int, number: int, address: wire.Address) -> list[wire.Address] | None:
        """A member of group `number` is reached at `address`. The addresses of all, by position, once all are known."""
        if number != self.number or rank not in self.members:
            return None
        self._addresses[rank] = address
        if any(member not in self._addresses for member in self.members):
            return None
        self._forming = False
        return [self._addresses[member] for member in self.members]
