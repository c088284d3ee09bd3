"""oVirt's search language, as far as it compares: `id=a or id=b`, `name=web* and status=up`, `host=h0`."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, Callable

MOST_TERMS = 1 << 20
_TERM = re.compile(r"""\s*([\w.]+)\s*(!=|>=|<=|=|>|<)\s*("[^"]*"|'[^']*'|\S+)""", re.ASCII)
_JOINT = re.compile(r"\s+(and|or)\s+(?=\S)", re.IGNORECASE)
_ORDER = re.compile(r"\s+(sortby|page)\s+.*", re.IGNORECASE)


class RequestError(Exception):
    """What the SDK raises when the engine refuses."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.detail = 400, "Bad Request", reason


Test = Callable[[Any], bool]


def ids_of(query: str) -> list[str] | None:
    """The ids of a query that is nothing but `id=a or id=b ...`, which plugins ask all the time."""
    found = []
    for term in query.split(" or "):
        name, _, value = term.strip().partition("=")
        if name != "id" or not value or " " in value or "*" in value:
            return None
        found.append(value.strip("'\""))
    return found


def compile_query(query: str, fields: dict[str, Callable[[Any], Any]]) -> Test:
    """Whether an object is what the query asks; `fields` gives its values by name. `and` binds closer than
    `or`."""
    query = _ORDER.sub("", query).strip()
    alternatives: list[list[Test]] = [[]]
    at, terms = 0, 0
    while at < len(query):
        match = _TERM.match(query, at)
        if match is None:
            raise RequestError(f"query: expected FIELD=VALUE at {query[at : at + 40]!r}")
        alternatives[-1].append(_test(match[1].lower(), match[2], match[3].strip("'\""), fields))
        terms += 1
        if terms > MOST_TERMS:
            raise RequestError("query: too long")
        at = match.end()
        joint = _JOINT.match(query, at)
        if joint is None:
            break
        if joint[1].lower() == "or":
            alternatives.append([])
        at = joint.end()
    if query[at:].strip():
        raise RequestError(f"query: expected 'and' or 'or' at {query[at : at + 40]!r}")
    return lambda entry: any(all(test(entry) for test in every) for every in alternatives)


def _test(name: str, operator: str, value: str, fields: dict[str, Callable[[Any], Any]]) -> Test:
    field = fields.get(name)
    if field is None:
        raise RequestError(f"query: there is no field {name}; there are {', '.join(sorted(fields))}")
    if operator in ("=", "!="):
        wanted = value.lower()
        equal = operator == "="
        if "*" in wanted:
            return lambda entry: fnmatchcase(str(field(entry)).lower(), wanted.replace("[", "[[]")) == equal
        return lambda entry: (str(field(entry)).lower() == wanted) == equal
    try:
        number = float(value)
    except ValueError:
        raise RequestError(f"query: {name}{operator}{value}: {value} is no number") from None
    compare: Callable[[float], bool] = {
        ">": lambda it: it > number,
        "<": lambda it: it < number,
        ">=": lambda it: it >= number,
        "<=": lambda it: it <= number,
    }[operator]
    return lambda entry: compare(float(field(entry) or 0))
