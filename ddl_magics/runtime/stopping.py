"""How training ends early: a stop was requested, or a loss or gradient is NaN or infinite."""

#: `Announcement.flags`: what a rank tells all others with its next collective.
STOP_FIT, STOP_RUN, NOT_FINITE, UNCHECKED, JOINS = 1, 2, 4, 8, 16

NAN_ADVICE = "look for NaN in the data, lower the learning rate or clip gradients"


class StopRun(BaseException):
    """Leaves the cell: a stop of the run was requested, and this rank has finished its step."""


class NotANumber(Exception):
    """A loss or a gradient is NaN or infinite. rank: the first rank that has one."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank
