"""`properties_validation`: the permitted values of a unit's custom properties, as `key=regex;key=regex`."""

from __future__ import annotations

import re
from typing import Mapping

_SPLIT = re.compile(r";(?=\s*[A-Za-z0-9_]+\s*=)")
_ENTRY = re.compile(r"\s*([A-Za-z0-9_]+)\s*=(.*)", re.DOTALL)


class WrongProperty(ValueError):
    """A property or an expression is invalid; the message names it."""


def parse(validation: str) -> dict[str, re.Pattern[str]]:
    """The expression of each property. A `;` is a separator only if `key=` follows, so an expression may
    contain one."""
    stripped = validation.strip().removesuffix(";")
    if stripped.startswith("{") and stripped.endswith("}"):
        stripped = stripped[1:-1]
    found: dict[str, re.Pattern[str]] = {}
    for entry in _SPLIT.split(stripped) if stripped.strip() else []:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise WrongProperty(f"{entry.strip()!r} is not key=regex with a key of letters, digits and _")
        try:
            found[match[1]] = re.compile(match[2].strip())
        except re.error as error:
            raise WrongProperty(f"{match[1]}: {match[2].strip()!r}: {error}") from None
    return found


def check(properties: Mapping[str, str], allowed: Mapping[str, re.Pattern[str]]) -> None:
    """Whether each known property matches its expression. Others belong to other units."""
    for name, value in properties.items():
        expression = allowed.get(name)
        if expression is not None and expression.fullmatch(value) is None:
            raise WrongProperty(f"{name}: {value!r} is not {expression.pattern}")
