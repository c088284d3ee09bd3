"""The four calls and the form of their replies."""

from __future__ import annotations

import threading
import time
from typing import Any, Mapping, Sequence

from ringway.plugin_client import PluginError, PluginHost

BATCH = 30.0
"""Seconds for all units of a call together, as in oVirt's proxy."""
_KINDS = {"filters": "filter", "scores": "score", "balance": "balance"}
_INT = 2**31 - 1


class Reply:
    """A reply under construction."""

    def __init__(self) -> None:
        self._reply: dict[str, Any] = {"result_code": 0, "result": []}

    def add(self, result: Sequence[Any]) -> None:
        self._reply["result"] = list(result)

    def plugin_error(self, name: str, text: str) -> None:
        self._reply["result_code"] = 1
        self._reply.setdefault("plugin_errors", {}).setdefault(name, []).append(text)

    def error(self, text: str) -> None:
        self._reply["result_code"] = 1
        self._reply.setdefault("errors", []).append(text)

    def to_dict(self) -> dict[str, Any]:
        return self._reply


class SchedulerProxy:
    """The object registered with the XML-RPC server. A failing unit is skipped and reported, so that it never
    keeps an engine from placing a VM."""

    def __init__(self, host: PluginHost) -> None:
        self._host = host
        self._lock = threading.Lock()

    def discover(self) -> dict[str, Any]:
        """All units by kind, with their descriptions and properties' expressions."""
        units = self._host.call("discover")["units"]
        return {
            name: {
                unit["name"]: [unit["description"][kind], unit["properties"]]
                for unit in units
                if kind in unit["kinds"]
            }
            for name, kind in _KINDS.items()
        }

    def runFilters(self, filters: Any, hosts: Any, vm: Any, properties_map: Any) -> dict[str, Any]:
        """The hosts that every filter accepts; all of them if no filter answered."""
        reply, ids = Reply(), _texts(hosts)
        left: set[str] | None = None
        deadline = time.monotonic() + BATCH
        for name in self._known(_texts(filters), "filter", reply):
            answer = self._ask(reply, "filter", name, deadline, ids, properties_map, vm_id=str(vm))
            if answer is not None:
                left = set(answer["ids"]) if left is None else left & set(answer["ids"])
        if left is None:
            reply.error("all filters failed")
        reply.add(ids if left is None else [id for id in ids if id in left])
        return reply.to_dict()

    def runCostFunctions(
        self, cost_functions: Any, hosts: Any, vm: Any, properties_map: Any
    ) -> dict[str, Any]:
        """Pairs of a host and the sum of its scores, each multiplied by its factor, as integers, which the
        engine requires."""
        reply, ids = Reply(), _texts(hosts)
        factors = {str(name): _number(factor) for name, factor in cost_functions}
        totals: dict[str, float] = {}
        deadline = time.monotonic() + BATCH
        for name in self._known(list(factors), "score", reply):
            answer = self._ask(reply, "score", name, deadline, ids, properties_map, vm_id=str(vm))
            for id, score in zip(ids, answer["scores"]) if answer else ():
                if score is not None:
                    totals[id] = totals.get(id, 0) + factors[name] * score
        reply.add([[id, max(-_INT, min(_INT, round(total)))] for id, total in totals.items()])
        return reply.to_dict()

    def runLoadBalancing(self, balance: Any, hosts: Any, properties_map: Any) -> dict[str, Any]:
        """The VM to move and its possible destinations; `['', []]` for none."""
        reply, ids = Reply(), _texts(hosts)
        for name in self._known([str(balance)], "balance", reply):
            deadline = time.monotonic() + BATCH
            answer = self._ask(reply, "balance", name, deadline, ids, properties_map)
            if answer and answer["action"] == "migrate":
                reply.add([answer["vm"], answer["ids"]])
            else:
                if answer and (answer["action"] or answer.get("actions")):
                    reply.plugin_error(
                        name, "it stops VMs or switches hosts, which the engine's call can't express"
                    )
                reply.add(["", []])
        return reply.to_dict()

    def _known(self, names: list[str], kind: str, reply: Reply) -> list[str]:
        known = {unit["name"] for unit in self._host.call("discover")["units"] if kind in unit["kinds"]}
        for name in names:
            if name not in known:
                reply.plugin_error(name, f"plugin not found: '{name}'")
        return [name for name in names if name in known]

    def _ask(
        self,
        reply: Reply,
        op: str,
        name: str,
        deadline: float,
        ids: list[str],
        properties: Any,
        **more: Any,
    ) -> dict[str, Any] | None:
        left = int((deadline - time.monotonic()) * 1000)
        if left <= 0:
            reply.plugin_error(name, "not asked: the units before it took all the time")
            return None
        values = _properties(properties)
        try:
            return self._host.call(
                op, unit=name, ids=ids, properties=values, limit_ms=left, now=time.time(), **more
            )
        except PluginError as error:
            reply.plugin_error(name, f"{error.kind}: {error}")
            return None


def _texts(value: Any) -> list[str]:
    """Ids or names. Errors don't show other values, which may be megabytes long and deeply nested."""
    if not isinstance(value, list) or not all(isinstance(entry, (str, int)) for entry in value):
        raise ValueError("a list of ids or names is expected")
    return [str(entry) for entry in value]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is no factor")
    return value


def _properties(value: Any) -> dict[str, str]:
    """The properties; an engine without properties sends an empty text."""
    return {str(name): str(entry) for name, entry in value.items()} if isinstance(value, Mapping) else {}
