"""Hosts and VMs in the protocol: each field's validation and conversion."""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Mapping

from .model import HugePages, NumaNode, Port

MOST_SLOTS = 1 << 20
"""Attack: a slot so large that the list of hosts uses up memory."""


class Wrong(ValueError):
    """A message violates the protocol; the text names the place."""


_LARGEST = 1 << 63
"""Attack: a number with so many digits that it is not a float, or takes long to print."""


def decode(line: bytes) -> dict[str, Any]:
    """The JSON object in a line from a plugin's process, or from the client."""
    try:
        return mapped(json.loads(line, parse_int=_bounded, parse_constant=_bounded))
    except (ValueError, RecursionError):
        raise Wrong("is no JSON object") from None


def _bounded(digits: str) -> int:
    if len(digits) > 20:
        raise Wrong("a number is too long")
    return int(digits)


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Wrong("must be text")
    return value


def whole(value: object) -> int:
    return int(number(value))


def number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Wrong("must be a finite number")
    if not -_LARGEST < value < _LARGEST if isinstance(value, int) else not math.isfinite(value):
        raise Wrong("must be a finite number")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong("must be true or false")
    return value


def slot(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_SLOTS:
        raise Wrong(f"must be a whole number from 0 to {MOST_SLOTS - 1}")
    return value


def listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise Wrong("must be a list")
    return value


def mapped(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Wrong("must be an object")
    return value


def scalars(value: object) -> dict[str, Any]:
    table = mapped(value)
    for name, entry in table.items():
        if not isinstance(entry, (str, int, float, bool, type(None))):
            raise Wrong(f"{name}: must be text, a number, true, false or null")
    return table


def several(value: object) -> tuple[str, ...]:
    return tuple(text(entry) for entry in listed(value))


def texts(value: object) -> dict[str, str]:
    return {name: text(entry) for name, entry in mapped(value).items()}


def of(fields: Mapping[str, Callable[[object], Any]], make: Callable[..., Any]) -> Callable[[object], Any]:
    """A validator for an object with a few fields, which is converted to one of our classes."""

    def convert(value: object) -> Any:
        return make(
            **{name: fields[name](entry) for name, entry in mapped(value).items() if name in fields}
        )

    return convert


_page = of({"total": whole, "free": whole}, HugePages)
_node = of({"cpus": whole, "memory": whole, "memory_free": whole}, NumaNode)
_port = of({"name": text, "numa": whole, "bandwidth": number, "used": number, "pps": number}, Port)


def _pages(value: object) -> dict[int, HugePages]:
    table = mapped(value)
    if not all(size.isdecimal() for size in table):
        raise Wrong("the names must be page sizes in KiB")
    return {int(size): _page(entry) for size, entry in table.items()}


HOST: Mapping[str, Callable[[object], Any]] = {
    "slot": slot,
    **dict.fromkeys(("id", "name", "cluster", "address", "comment", "state", "cpu_model"), text),
    **dict.fromkeys(("os_type", "os_version", "fault_domain"), text),
    **dict.fromkeys(("cpu_sockets", "cpu_cores", "cpu_threads"), whole),
    **dict.fromkeys(("cpu_mhz", "cpu_load", "cpu_committed", "cpu_pending", "ha_score"), number),
    **dict.fromkeys(("memory", "memory_free", "memory_committed", "memory_pending"), whole),
    **dict.fromkeys(("max_scheduling_memory", "swap", "swap_free"), whole),
    **dict.fromkeys(("vms_active", "vms_migrating", "vms_total"), whole),
    **dict.fromkeys(("spm", "ksm", "power_managed"), flag),
    "facts": scalars,
    "huge_pages": _pages,
    "numa": lambda value: tuple(_node(entry) for entry in listed(value)),
    "ports": lambda value: tuple(_port(entry) for entry in listed(value)),
    **dict.fromkeys(("labels", "aggregates"), several),
}
"""A host's fields."""

VM: Mapping[str, Callable[[object], Any]] = {
    **dict.fromkeys(("id", "name", "state", "kind", "os_type", "os_version", "group", "chain"), text),
    **dict.fromkeys(("cpus", "memory", "memory_guaranteed", "huge_page", "priority", "chain_index"), whole),
    "cpu_load": number,
    **dict.fromkeys(("ha", "migratable"), flag),
    "labels": several,
    "facts": scalars,
    "properties": texts,
    "host": slot,
}
"""A VM's fields; `host` is a slot."""


def fields(entry: object, table: Mapping[str, Callable[[object], Any]], what: str) -> dict[str, Any]:
    """The given fields of a host or VM, converted. `None` resets a field to its default. Unknown fields are
    ignored."""
    found = {}
    for name, value in mapped(entry).items():
        check = table.get(name)
        if check is None:
            continue
        try:
            found[name] = None if value is None and name not in ("slot", "id") else check(value)
        except Wrong as wrong:
            raise Wrong(f"{what}: {name}: {wrong}") from None
    return found
