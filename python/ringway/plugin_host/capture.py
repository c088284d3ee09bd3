"""Captures a unit's output on stdout and stderr, up to a limit."""

from __future__ import annotations

import io
import sys
from typing import Any


class Bounded(io.TextIOBase):
    """A text stream that keeps a limited number of characters from the start."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[str] = []
        self._length = 0
        self.overflowed = False

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        room = self._most - self._length
        # Attack: endless output.
        if len(text) > room:
            self.overflowed = True
        if room > 0:
            self._parts.append(text[:room])
            self._length += len(self._parts[-1])
        return len(text)

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def text(self) -> str:
        """The captured text."""
        return "".join(self._parts)


class Capture:
    """Redirects stdout and stderr while a unit runs."""

    def __init__(self, most_out: int, most_err: int = 1 << 16) -> None:
        self.out = Bounded(most_out)
        self.err = Bounded(most_err)

    def __enter__(self) -> Capture:
        self._before = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
        streams: Any = (self.out, self.err)
        sys.stdout, sys.stderr = streams
        sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = self._before  # type: ignore[misc]
