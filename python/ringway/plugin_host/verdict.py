"""Validates units' results and converts them to the protocol's form."""

from __future__ import annotations

import math
import operator
from typing import Any, Iterable, Mapping, Sequence

from ringway.placement.inventory import Inventory
from ringway.placement.model import Host, Vm
from ringway.placement.unit import Activate, Deactivate, Migrate, Sleep, Stop, Wake

from .failure import Failure

MOST_HOSTS = 1 << 20
"""Attack: an endless generator. Largest number of elements."""


def accepted(result: Any, hosts: Sequence[Host], inventory: Inventory) -> Sequence[Host]:
    """The hosts that a filter accepted; `hosts` itself if it accepted all of them."""
    if result is None:
        raise Failure("result", "it returned None; a filter returns the hosts it accepts")
    if isinstance(result, (str, bytes)) or not isinstance(result, Iterable):
        raise Failure("result", f"it returned {_short(result)}; a filter returns the hosts it accepts")
    found = _bounded(result)
    # Usual, and several times as fast as sets of thousands of hosts.
    if len(found) == len(hosts) and all(map(operator.is_, found, hosts)):
        return hosts
    if set(map(type, found)) != {Host}:
        found = [_host(entry, inventory) for entry in found]
    strangers = set(found).difference(hosts)
    if strangers:
        raise Failure("result", f"it accepted {strangers.pop().id}, which is not among the candidates")
    return found


def scores(result: Any, hosts: Sequence[Host], inventory: Inventory) -> list[float | None]:
    """A number or `None` per host."""
    if result is None or isinstance(result, (str, bytes)) or not isinstance(result, Iterable):
        raise Failure("result", f"it returned {_short(result)}; a score returns a number for each host")
    if isinstance(result, Mapping):
        return _paired(list(result.items()), hosts, inventory)
    found = _bounded(result)
    if found and isinstance(found[0], tuple):
        return _paired(found, hosts, inventory)
    if len(found) != len(hosts):
        raise Failure("result", f"it returned {len(found)} numbers for {len(hosts)} hosts")
    _numbers(found)
    return found


def _paired(pairs: list[Any], hosts: Sequence[Host], inventory: Inventory) -> list[float | None]:
    by_slot: dict[int, float | None] = {}
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise Failure("result", f"{_short(pair)} is not a pair of a host and a number")
        by_slot[_host(pair[0], inventory).slot] = pair[1]
    _numbers(list(by_slot.values()))
    strangers = by_slot.keys() - {host.slot for host in hosts}
    if strangers:
        host = inventory.slots[min(strangers)]
        raise Failure("result", f"it scored {host.id if host else '?'}, which is not among the candidates")
    return [by_slot.get(host.slot) for host in hosts]


def _numbers(found: list[Any]) -> None:
    if found and set(map(type, found)) == {int}:
        wrong = next((value for value in (min(found), max(found)) if abs(value) > 1 << 53), None)
    else:
        wrong = next((value for value in found if not _is_number(value)), None)
    if wrong is not None:
        raise Failure("result", f"{_short(wrong)} is not a finite number")


def _is_number(value: Any) -> bool:
    if value is None:
        return True
    if type(value) is not float and (not isinstance(value, (int, float)) or isinstance(value, bool)):
        return False
    return abs(value) < 1 << 53 if isinstance(value, int) else math.isfinite(value)


MOST_ACTIONS = 10_000
"""Attack: an endless list of actions. Largest number."""

_ON_HOSTS = {Sleep: "sleep", Wake: "wake", Deactivate: "deactivate", Activate: "activate"}


def actions(result: Any, hosts: Sequence[Host], inventory: Inventory) -> list[dict[str, Any]]:
    """The actions of a balancer: one, several, or none."""
    if result is None:
        return []
    if not isinstance(result, (list, tuple)):
        return [_action(result, hosts, inventory)]
    if len(result) > MOST_ACTIONS:
        raise Failure("result", f"it returned more than {MOST_ACTIONS} actions")
    return [_action(entry, hosts, inventory) for entry in result]


def _action(result: Any, hosts: Sequence[Host], inventory: Inventory) -> dict[str, Any]:
    if isinstance(result, Stop):
        vm = result.vm.id if isinstance(result.vm, Vm) else result.vm
        if inventory.vm(vm) is None:
            raise Failure("result", f"it stops {_short(vm)}, which is no VM")
        return _with_reason({"action": "stop", "vm": vm}, result.reason)
    if isinstance(result, Migrate):
        vm = result.vm.id if isinstance(result.vm, Vm) else result.vm
        if inventory.vm(vm) is None:
            raise Failure("result", f"it moves {_short(vm)}, which is no VM")
        targets = accepted(result.hosts, hosts, inventory)
        return _with_reason(
            {"action": "migrate", "vm": vm, "hosts": [host.slot for host in targets]}, result.reason
        )
    if type(result) in _ON_HOSTS:
        host = _host(result.host, inventory)
        return _with_reason({"action": _ON_HOSTS[type(result)], "host": host.slot}, result.reason)
    raise Failure(
        "result",
        f"it returned {_short(result)}; a balancer returns Migrate, Stop, Deactivate, Activate, Sleep, Wake, "
        "several of them, or None",
    )


def _with_reason(answer: dict[str, Any], reason: Any) -> dict[str, Any]:
    if reason:
        answer["reason"] = str(reason)[:500]
    return answer


def _bounded(result: Iterable[Any]) -> list[Any]:
    if isinstance(result, list):
        return result
    found = []
    for entry in result:
        found.append(entry)
        if len(found) > MOST_HOSTS:
            raise Failure("result", f"it returned more than {MOST_HOSTS} entries")
    return found


def _host(entry: Any, inventory: Inventory) -> Host:
    id = entry.id if isinstance(entry, Host) else entry
    host = inventory.by_id.get(id) if isinstance(id, str) else None
    if host is None:
        raise Failure("result", f"it names {_short(entry)}, which is no host")
    return host


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # Attack: an object whose `__repr__` raises.
        text = type(value).__name__
    return text if len(text) <= 80 else text[:76] + " ..."
