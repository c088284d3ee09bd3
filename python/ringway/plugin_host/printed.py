"""Finds the results that oVirt's plugins print, among their other output.

A filter prints `['id', ...]`, a score `[('id', 3), ...]`, a balancer `('vm', ['id', ...])` or, with two
arguments to `print`, `vm ['id', ...]`. The last such line is the result; all other
lines are only logged.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Callable

from .failure import Failure

# The common subset of JSON and Python after exchanging quotes and brackets: much faster to parse for long
# lists.
_PLAIN = re.compile(r"""(?:[\s,()\[\]\d.+\-e]++|'[\w\-.:+ ]*+')*+""")
_TO_JSON = str.maketrans({"'": '"', "(": "[", ")": "]"})
_LOOSE = re.compile(r"(\S+)\s+(\[.*\])\s*")
MOST_TRIES = 64
"""Attack: a megabyte of lines, each of which would be parsed. Largest number of lines."""


def filter_result(text: str) -> tuple[list[str], str] | None:
    """The hosts that a filter printed, and its other output; `None` if it printed no result."""
    return _last(text, _ids)


def score_result(text: str) -> tuple[list[tuple[str, float]], str] | None:
    """The pairs that a score printed, and its other output."""
    return _last(text, _pairs)


def balance_result(text: str) -> tuple[tuple[str, list[str]], str] | None:
    """The VM and hosts that a balancer printed, and its other output."""
    return _last(text, _move)


def _last(text: str, shape: Callable[[str], Any]) -> tuple[Any, str] | None:
    whole = text.strip()
    if not whole:
        return None
    lines = whole.split("\n")
    tries = 0
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index].strip()
        if not line or line[-1] not in "])":
            continue
        result = shape(line)
        if result is not None:
            return result, "\n".join(lines[:index] + lines[index + 1 :])
        tries += 1
        if tries == MOST_TRIES:
            break
    # A result on several lines, as printed by pprint.
    result = shape(whole) if len(lines) > 1 else None
    return None if result is None else (result, "")


def _literal(text: str) -> Any:
    if _PLAIN.fullmatch(text):
        try:
            return json.loads(text.translate(_TO_JSON))
        except (ValueError, RecursionError):
            pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _ids(text: str) -> list[str] | None:
    value = _literal(text)
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(id, str) for id in value):
        return None
    return list(value)


def _pairs(text: str) -> list[tuple[str, float]] | None:
    value = _literal(text)
    if not isinstance(value, (list, tuple)):
        return None
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value):
        return None
    if any(type(id) is not str or type(number) not in (int, float) for id, number in value):
        return None
    return [(id, number) for id, number in value]


def _move(text: str) -> tuple[str, list[str]] | None:
    value = _literal(text)
    if value is None:
        loose = _LOOSE.fullmatch(text)
        value = (loose[1], _literal(loose[2])) if loose else None
    if (
        not isinstance(value, (list, tuple))
        or len(value) != 2
        or not isinstance(value[0], (str, type(None)))
    ):
        return None
    hosts = value[1]
    if not isinstance(hosts, (list, tuple)) or not all(isinstance(id, str) for id in hosts):
        return None
    return value[0] or "", list(hosts)


def missing(kind: str, text: str, overflowed: bool) -> Failure:
    """The output contains no result."""
    expected = {
        "filter": "['id', ...]",
        "score": "[('id', number), ...]",
        "balance": "('vm', ['id', ...])",
    }[kind]
    if overflowed:
        return Failure("result", "it printed more than 4 MiB")
    if not text.strip():
        return Failure("result", f"it printed nothing; expected {expected}")
    return Failure("result", f"it printed no result like {expected}, but: {text.strip()[:200]}")
