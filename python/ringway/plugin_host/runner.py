"""Runs one unit for one request, in a worker."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Mapping, Sequence

from ringway.placement import properties
from ringway.placement.inventory import Inventory, vm_of
from ringway.placement.model import Host, Vm
from ringway.placement.unit import Unit
from ringway.placement.wire import Wrong, listed, mapped, text

from . import ovirtsdk, printed, verdict
from .capture import Capture
from .clock import TimeIsUp, limited
from .failure import LONGEST_OUTPUT, Failure, cut, of_exception, place
from .loader import KINDS, Loaded

_MOST_PRINTED = 4 << 20
DEFAULT_LIMIT, LONGEST_LIMIT = 1000, 30_000


@dataclass
class Call:
    """A parsed request."""

    kind: str
    hosts: Sequence[Host]
    unknown: list[str]
    """Ids of hosts that are not in the inventory."""
    ids: list[str]
    """The candidates' ids, if given by id."""
    by_id: bool
    vm: Vm | None
    vm_id: str
    args: dict[str, str]
    request: Mapping[str, Any]
    output: str = ""
    reasons: dict[int, str] = field(default_factory=dict)


class Runner:
    """The units of one worker."""

    def __init__(self, folder: str, inventory: Inventory, units: Mapping[str, Loaded]) -> None:
        self._folder = folder
        self._inventory = inventory
        self._units = units
        self._objects: dict[str, Any] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `filter`, `score` or `balance`."""
        id = request.get("id")
        try:
            unit = self._unit(request)
            call = self._understand(request)
        except Wrong as wrong:
            return Failure("request", str(wrong)).answer(id)
        except Failure as failure:
            return failure.answer(id)
        try:
            ok = self._run(unit, call)
        except Failure as failure:
            failure.output = failure.output or call.output
            return failure.answer(id)
        answer: dict[str, Any] = {"id": id, "ok": ok}
        if call.output.strip():
            answer["output"] = cut(call.output.strip(), LONGEST_OUTPUT)
        return answer

    def _unit(self, request: Mapping[str, Any]) -> Loaded:
        name, kind = text(request.get("unit")), text(request.get("op"))
        unit = self._units.get(name)
        if unit is None:
            raise Failure("unit", f"there is no unit {name}")
        if kind not in unit.kinds:
            raise Failure("unit", f"{name} has no {KINDS[kind]}")
        return unit

    def _understand(self, request: Mapping[str, Any]) -> Call:
        kind = str(request["op"])
        args = {key: text(value) for key, value in mapped(request.get("properties", {})).items()}
        by_id = "ids" in request
        ids, unknown = [], []
        if by_id:
            ids = [text(entry) for entry in listed(request["ids"])]
            known = [self._inventory.by_id.get(entry) for entry in ids]
            hosts = tuple(host for host in known if host is not None)
            unknown = [entry for entry, host in zip(ids, known) if host is None]
        else:
            mask = request.get("hosts")
            hosts = self._inventory.select(None if mask is None else text(mask))
        vm, vm_id = None, ""
        if kind != "balance" and "vm_id" in request:
            vm_id = text(request["vm_id"])
            vm = self._inventory.vm(vm_id)
        elif kind != "balance":
            vm = vm_of(request.get("vm"))
            vm_id = vm.id
        return Call(kind, hosts, unknown, ids, by_id, vm, vm_id, args, request)

    def _run(self, unit: Loaded, call: Call) -> dict[str, Any]:
        seconds = limit_of(call.request) / 1000
        capture = Capture(_MOST_PRINTED if unit.style != "typed" else LONGEST_OUTPUT)
        failed: Failure | None = None
        ok: dict[str, Any] = {}
        try:
            with capture, limited(seconds):
                properties.check(call.args, unit.allowed)
                if unit.style == "typed":
                    ok = self._typed(unit, call)
                    call.output = capture.out.text() + capture.err.text()
                else:
                    ok = self._printing(unit, call, capture)
        except TimeIsUp as up:
            failed = Failure("time", f"it took longer than {seconds:g} s", place(up, self._folder))
        except properties.WrongProperty as wrong:
            failed = Failure("property", str(wrong))
        except Failure as failure:
            failed = failure
        except (
            BaseException
        ) as error:  # Exceptions of a plugin never end the worker.
            failed = of_exception(error, self._folder)
        if failed is not None:
            call.output = (
                call.output or capture.out.text()[:LONGEST_OUTPUT] + capture.err.text()[:LONGEST_OUTPUT]
            )
            raise failed
        return ok

    def _typed(self, unit: Loaded, call: Call) -> dict[str, Any]:
        if call.kind != "balance" and call.vm is None:
            raise Failure("request", f"the inventory has no VM {call.vm_id}")
        made = self._objects.get(unit.name)
        if made is None:
            made = self._objects[unit.name] = unit.unit()
        self._prepare(made, call)
        hosts = call.hosts
        if call.kind == "filter":
            return self._accepted(
                verdict.accepted(made.do_filter(hosts, call.vm, call.args), hosts, self._inventory), call
            )
        if call.kind == "score":
            return _scored(
                verdict.scores(made.do_score(hosts, call.vm, call.args), hosts, self._inventory), call
            )
        actions = verdict.actions(made.do_balance(hosts, call.args), hosts, self._inventory)
        named = [self._named(action) for action in actions] if call.by_id else actions
        if len(named) <= 1:
            return named[0] if named else {"action": None}
        return {"action": None, "actions": named}

    def _prepare(self, made: Unit, call: Call) -> None:
        request = call.request
        now = request.get("now")
        is_time = isinstance(now, (int, float)) and not isinstance(now, bool)
        try:
            made.now = (
                datetime.fromtimestamp(now) if is_time and now is not None else datetime.now()
            ).astimezone()
        except (ValueError, OverflowError, OSError):
            raise Failure("request", "now: is not a time") from None
        made.random = random.Random(str(request.get("seed", 0)))
        made.inventory = self._inventory
        made.explaining = request.get("explain") is True
        made.reasons = call.reasons

    def _printing(self, unit: Loaded, call: Call, capture: Capture) -> dict[str, Any]:
        ids = call.ids if call.by_id else [host.id for host in call.hosts]
        changes: list[dict[str, Any]] = []
        with ovirtsdk.serving(self._inventory, call.vm):
            method = getattr(unit.unit(), KINDS[call.kind])
            if call.kind == "balance":
                with ovirtsdk.recorded() as changes:
                    returned = method(ids, dict(call.args))
            else:
                returned = method(ids, call.vm_id, dict(call.args))
        out = capture.out.text()
        if returned is not None:
            out = repr(returned)
        errors = capture.err.text().strip()
        # As in oVirt's proxy: output on stderr is the plugin's error.
        if errors and call.kind != "balance":
            call.output = out
            raise Failure("exception", errors)
        call.output = errors
        found = _PRINTED[call.kind](out)
        if found is None:
            if call.kind == "balance" and (changes or not out.strip()) and not errors:
                call.output = out[:LONGEST_OUTPUT]
                return self._with(changes, {"action": None}, call)
            if errors:
                raise Failure("exception", errors)
            raise printed.missing(call.kind, out, capture.out.overflowed)
        result, beside = found
        call.output = beside[:LONGEST_OUTPUT] + errors
        return self._with(changes, self._from_printed(result, call), call)

    def _with(
        self, changes: list[dict[str, Any]], answer: dict[str, Any], call: Call
    ) -> dict[str, Any]:
        """A balancer's answer with the changes that it asked for by the SDK."""
        if not changes:
            return answer
        actions = []
        for change in changes:
            if change["action"] == "migrate":
                change = self._moved(change, call)
            actions.append(self._named(dict(change)) if call.by_id else change)
        return {**answer, "actions": actions}

    def _moved(self, change: dict[str, Any], call: Call) -> dict[str, Any]:
        """A move that the SDK was asked for: to one host, or to any candidate."""
        to, vm = change.get("to"), self._inventory.vm(change["vm"])
        if to is None:
            hosts = [host for host in call.hosts if vm is None or host.id != vm.host]
        else:
            named = [host for host in self._inventory.hosts if host.name == to]
            hosts = [self._inventory.by_id.get(to) or (named[0] if named else _known(to, self._inventory))]
        return {"action": "migrate", "vm": change["vm"], "hosts": [host.slot for host in hosts]}

    def _from_printed(self, result: Any, call: Call) -> dict[str, Any]:
        if call.kind == "balance":
            vm, ids = result
            if not vm:
                return {"action": None}
            if call.by_id:
                strangers = set(ids) - set(call.ids)
                if strangers:
                    raise Failure(
                        "result", f"it names {min(strangers)[:80]!r}, which is not among the candidates"
                    )
                return {"action": "migrate", "vm": vm, "ids": ids}
            if self._inventory.vm(vm) is None:
                raise Failure("result", f"it moves {vm[:80]!r}, which is no VM")
            targets = [_known(id, self._inventory) for id in ids]
            return {"action": "migrate", "vm": vm, "hosts": [host.slot for host in targets]}
        if call.by_id:
            strangers = {entry[0] if call.kind == "score" else entry for entry in result} - set(call.ids)
            if strangers:
                raise Failure(
                    "result", f"it names {min(strangers)[:80]!r}, which is not among the candidates"
                )
            if call.kind == "filter":
                return {"ids": result}
            by_id = dict(result)
            return {"scores": [by_id.get(id) for id in call.ids]}
        if call.kind == "filter":
            return self._accepted(verdict.accepted(result, call.hosts, self._inventory), call)
        return _scored(
            verdict.scores(result, call.hosts, self._inventory) if result else [None] * len(call.hosts),
            call,
        )

    def _accepted(self, hosts: Sequence[Host], call: Call) -> dict[str, Any]:
        answer: dict[str, Any]
        if call.by_id:
            # Unknown hosts can't be judged, and are accepted.
            answer = {"ids": [host.id for host in hosts] + call.unknown}
        else:
            answer = {"hosts": self._mask(hosts, call)}
        return _explained(answer, call)

    def _mask(self, hosts: Sequence[Host], call: Call) -> str:
        """The hosts as a mask, built from the smaller of the accepted and the rejected candidates."""
        size = len(self._inventory.slots)
        asked = call.request.get("hosts")
        if asked is not None and hosts is call.hosts:
            return str(asked).ljust(size, "0")
        if asked is None or len(hosts) * 2 < len(call.hosts):
            mask = bytearray(b"0") * size
            for host in hosts:
                mask[host.slot] = 49
        else:
            mask = bytearray(asked.ljust(size, "0").encode())
            for host in set(call.hosts).difference(hosts):
                mask[host.slot] = 48
        return mask.decode()

    def _named(self, action: dict[str, Any]) -> dict[str, Any]:
        """Replaces slots by host ids."""
        slots = self._inventory.slots
        if "hosts" in action:
            action["ids"] = [host.id for host in map(slots.__getitem__, action.pop("hosts")) if host]
        if "host" in action:
            host = slots[action["host"]]
            action["host"] = host.id if host else ""
        return action


_PRINTED: Mapping[str, Any] = {
    "filter": printed.filter_result,
    "score": printed.score_result,
    "balance": printed.balance_result,
}


def _scored(numbers: list[float | None], call: Call) -> dict[str, Any]:
    if call.by_id:
        by_id = {host.id: number for host, number in zip(call.hosts, numbers)}
        numbers = [by_id.get(id) for id in call.ids]
    return _explained({"scores": numbers}, call)


def _explained(answer: dict[str, Any], call: Call) -> dict[str, Any]:
    if call.reasons:
        answer["reasons"] = {str(slot): str(reason)[:200] for slot, reason in call.reasons.items()}
    return answer


def _known(id: str, inventory: Inventory) -> Host:
    host = inventory.by_id.get(id)
    if host is None:
        raise Failure("result", f"it names {id[:80]!r}, which is no host")
    return host


def limit_of(request: Mapping[str, Any]) -> int:
    """A request's time limit in milliseconds."""
    limit = request.get("limit_ms", DEFAULT_LIMIT)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= LONGEST_LIMIT:
        return DEFAULT_LIMIT
    return limit
