"""The SDK's calls that change hosts and VMs: a balancer's are recorded, and the client carries them out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator

from .search import RequestError

__all__ = ["RequestError", "ask", "recorded", "refusal"]

MOST_CHANGES = 10_000
"""Attack: endless calls. Largest number of changes in a call of a balancer."""

_recording: list[list[dict[str, Any]]] = []


@contextmanager
def recorded() -> Iterator[list[dict[str, Any]]]:
    """Records the changes that are asked for meanwhile."""
    changes: list[dict[str, Any]] = []
    _recording.append(changes)
    try:
        yield changes
    finally:
        _recording.pop()


def refusal(call: str, answered: str) -> Callable[..., None]:
    """A call of the SDK that is not answered: it raises, so that no balancer relies on its effect."""

    def refuse(*_: object, **__: object) -> None:
        _check()
        raise RequestError(f"{call}() is not answered here; {answered} are")

    return refuse


def _check() -> None:
    if not _recording:
        raise RequestError("only a balancer can change hosts and VMs: filters and scores just look")


def ask(change: dict[str, Any]) -> None:
    """Asks for a change; the same one again is the same."""
    _check()
    changes = _recording[-1]
    if change in changes[-1:] or (len(changes) < 1000 and change in changes):
        return
    if len(changes) >= MOST_CHANGES:
        raise RequestError(f"more than {MOST_CHANGES} changes")
    changes.append(change)
