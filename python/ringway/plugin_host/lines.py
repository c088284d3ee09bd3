"""Lines of bounded length over descriptors, with deadlines."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

LONGEST = 8 << 20
"""Attack: an endless line. Largest length in bytes, with the newline."""


class TooLong(Exception):
    """A line exceeded the limit. It was skipped to its end."""


class LineReader:
    """Reads lines from a non-blocking descriptor."""

    def __init__(self, descriptor: int, longest: int = LONGEST) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._longest = longest
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False
        self.ended = False

    def take(self) -> bytes | None:
        """The next complete line, without its newline."""
        at = self._buffer.find(b"\n", self._searched)
        if at < 0:
            self._searched = len(self._buffer)
            if self._searched >= self._longest:
                self._buffer.clear()
                self._searched, self._skipping = 0, True
            return None
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        self._searched = 0
        if self._skipping or at >= self._longest:
            self._skipping = False
            raise TooLong(f"a line longer than {self._longest} bytes")
        return line

    def fill(self) -> None:
        """Reads available data without blocking."""
        try:
            # A limited amount, so that a peer that never stops sending doesn't delay the handling of lines.
            data = os.read(self.descriptor, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._buffer += data
        else:
            self.ended = True


def read_some(descriptor: int, most: int) -> bytes | None:
    """Available data, without blocking: empty at the end, `None` if there is none yet."""
    try:
        return os.read(descriptor, most)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def write_all(descriptor: int, data: bytes, deadline: float | None = None) -> bool:
    """Writes everything; returns whether it was done before the deadline (of the monotonic clock)."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll(None if left is None else left * 1000)
        except OSError:
            return False
    return True


def encode(value: Any) -> bytes:
    """One JSON object as a line."""
    return (
        json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(
            "utf-8", "replace"
        )
        + b"\n"
    )
