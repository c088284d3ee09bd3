"""Time limits within a worker: an alarm that raises in the unit's code."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from types import FrameType
from typing import Iterator

_AGAIN = 0.05
"""Seconds after which a unit that swallowed the alarm gets it once more."""


class TimeIsUp(BaseException):
    """A unit took longer than it may."""


_armed = False


def _ring(number: int, frame: FrameType | None) -> None:
    if _armed:
        raise TimeIsUp


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `TimeIsUp` in what runs inside after so many seconds, and again until it ends. Code that hangs
    outside Python isn't reached; the supervisor ends the process then."""
    global _armed
    signal.signal(signal.SIGALRM, _ring)
    try:
        _armed = True
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), _AGAIN)
        yield
    finally:
        _armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
