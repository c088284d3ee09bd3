"""Errors of units, and their representation."""

from __future__ import annotations

import traceback
from typing import Any

LONGEST_TEXT = 2000
LONGEST_OUTPUT = 4096


class Failure(Exception):
    """A request's error; `kind` is one of PROTOCOL.md's."""

    def __init__(self, kind: str, text: str, where: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.where = where
        self.output = ""

    def answer(self, id: Any) -> dict[str, Any]:
        """The line with the error."""
        error = {"kind": self.kind, "text": cut(self.text, LONGEST_TEXT)}
        if self.where:
            error["where"] = self.where
        answer = {"id": id, "error": error}
        if self.output:
            answer["output"] = cut(self.output, LONGEST_OUTPUT)
        return answer


def cut(text: str, most: int) -> str:
    """At most this many characters of a text that may come from a plugin."""
    text = text if len(text) <= most else text[: most - 4] + " ..."
    # Attack: half a surrogate pair, which UTF-8 can't encode.
    return text.encode("utf-8", "replace").decode("utf-8")


def of_exception(error: BaseException, folder: str) -> Failure:
    """A unit's exception, with the line of the plugin that raised it."""
    if isinstance(error, MemoryError):
        return Failure("memory", "it wanted more memory than it may have", place(error, folder))
    if isinstance(error, SystemExit):
        return Failure("exit", f"it called exit({error.code!r})", place(error, folder))
    if isinstance(error, RecursionError):
        return Failure("exception", "RecursionError: it calls itself without end", place(error, folder))
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # Attack: an exception whose `__str__` raises.
        text = type(error).__name__
    return Failure("exception", text, place(error, folder))


def place(error: BaseException, folder: str) -> str:
    """`file:line` of the innermost frame in the plugin's code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename, folder)}:{error.lineno or 0}"
    cause: BaseException | None = error
    while cause is not None:
        for frame in reversed(traceback.extract_tb(cause.__traceback__)):
            if frame.filename.startswith(folder):
                return f"{_short(frame.filename, folder)}:{frame.lineno}"
        # A second alarm may arrive while the first one's exception leaves the plugin.
        cause = cause.__context__
    return ""


def _short(filename: str, folder: str) -> str:
    return filename.removeprefix(folder).lstrip("/")
