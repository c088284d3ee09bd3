"""Time limits within a worker: an alarm that raises in the unit's code."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from types import FrameType
from typing import Iterator

_AGAIN = 0.05
"""Seconds after which the alarm is repeated for a unit that caught it."""


class TimeIsUp(BaseException):
    """A unit exceeded its time limit."""


_armed = False


def _ring(number: int, frame: FrameType | None) -> None:
    if _armed:
        raise TimeIsUp


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `TimeIsUp` in the enclosed code after this many seconds, and again until it ends. Code that
    hangs outside Python is not interrupted; the supervisor then kills the process."""
    global _armed
    signal.signal(signal.SIGALRM, _ring)
    try:
        _armed = True
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), _AGAIN)
        yield
    finally:
        _armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
