"""`ovirtsdk.api.API`: collections of hosts, VMs and clusters."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from ringway.placement.inventory import Inventory
from ringway.placement.model import Host, Vm

from .entity import ClusterEntity, Entity, HostEntity, VmEntity
from .search import compile_query, ids_of

serving_now: list[tuple[Inventory, Vm | None]] = []
"""What the running call is about: the inventory, and the VM that is being placed."""

_HOST_FIELDS: dict[str, Callable[[Host], Any]] = {
    "id": lambda host: host.id,
    "name": lambda host: host.name,
    "address": lambda host: host.address,
    "comment": lambda host: host.comment,
    "status": lambda host: host.state,
    "cluster": lambda host: host.cluster,
    "cpus": lambda host: host.cpu_threads,
    "cpu_usage": lambda host: host.cpu_load,
    "memory": lambda host: host.memory,
    "mem_usage": lambda host: 100 * (host.memory - host.memory_free) / max(host.memory, 1),
    "active_vms": lambda host: host.vms_active,
    "spm": lambda host: str(host.spm).lower(),
}
_VM_FIELDS: dict[str, Callable[[tuple[Vm, Host | None]], Any]] = {
    "id": lambda pair: pair[0].id,
    "name": lambda pair: pair[0].name,
    "status": lambda pair: pair[0].state,
    "host": lambda pair: pair[1].name if pair[1] else "",
    "hosts.name": lambda pair: pair[1].name if pair[1] else "",
    "cluster": lambda pair: pair[1].cluster if pair[1] else "",
    "memory": lambda pair: pair[0].memory,
    "cpu_usage": lambda pair: pair[0].cpu_load,
    "os": lambda pair: pair[0].os_type,
    "type": lambda pair: pair[0].kind,
}


class _Cache:
    """Entities already made, and hosts by name; both as of one revision."""

    def __init__(self) -> None:
        self._entities: dict[int, tuple[Host, HostEntity]] = {}
        self._names: dict[str, Host] = {}
        self._of: tuple[int, int] = (0, -1)

    def entity(self, host: Host) -> HostEntity:
        known = self._entities.get(host.slot)
        if known is None or known[0] is not host:
            known = self._entities[host.slot] = (host, HostEntity(host))
        return known[1]

    def named(self, inventory: Inventory, name: str) -> Host | None:
        of = (id(inventory), inventory.revision)
        if self._of != of:
            self._names = {host.name: host for host in inventory.hosts}
            self._of = of
        return self._names.get(name)


_cache = _Cache()


_Pair = tuple[Vm, Host | None]
_Pairs = list[_Pair]
_HostList = Sequence[Host]


class _Hosts:
    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def list(self, query: str | None = None, max: int | None = None, **filters: object) -> list[HostEntity]:
        found = self._found(query or "")
        found = [host for host in found if _fits(host, filters, _HOST_FIELDS)] if filters else found
        return [_cache.entity(host) for host in found[: max if max and max > 0 else None]]

    def get(self, name: str | None = None, id: str | None = None) -> HostEntity | None:
        host = (
            self._inventory.by_id.get(id) if id is not None else _cache.named(self._inventory, name or "")
        )
        return None if host is None else _cache.entity(host)

    def _found(self, query: str) -> _HostList:
        if not query.strip():
            return self._inventory.hosts
        wanted = ids_of(query)
        if wanted is not None:
            by_id = self._inventory.by_id
            return [by_id[id] for id in wanted if id in by_id]
        test = compile_query(query, _HOST_FIELDS)
        return [host for host in self._inventory.hosts if test(host)]


class _Vms:
    def __init__(self, inventory: Inventory, placed: Vm | None) -> None:
        self._inventory = inventory
        self._placed = placed

    def list(self, query: str | None = None, max: int | None = None, **filters: object) -> list[VmEntity]:
        found = self._found(query or "")
        found = [pair for pair in found if _fits(pair, filters, _VM_FIELDS)] if filters else found
        return [VmEntity(vm, host) for vm, host in found[: max if max and max > 0 else None]]

    def get(self, name: str | None = None, id: str | None = None) -> VmEntity | None:
        for vm, host in self._candidates(id):
            if (id is not None and vm.id == id) or (id is None and vm.name == name):
                return VmEntity(vm, host)
        return None

    def _candidates(self, id: str | None) -> _Pairs:
        if id is None:
            return self._all()
        if self._placed is not None and self._placed.id == id:
            return [self._pair(self._placed)]
        known = self._inventory.vms.get(id)
        return [] if known is None else [self._pair(known)]

    def _found(self, query: str) -> _Pairs:
        name, separator, value = query.strip().partition("=")
        if name == "host" and separator and value and not set(value) & set(" *'\""):
            host = _cache.named(self._inventory, value)
            return [(vm, host) for vm in host.vms] if host else []
        if not query.strip():
            return self._all()
        test = compile_query(query, _VM_FIELDS)
        return [pair for pair in self._all() if test(pair)]

    def _all(self) -> _Pairs:
        found = [self._pair(vm) for vm in self._inventory.vms.values()]
        if self._placed is not None and self._placed.id not in self._inventory.vms:
            found.append((self._placed, None))
        return found

    def _pair(self, vm: Vm) -> _Pair:
        return vm, self._inventory.by_id.get(vm.host) if vm.host is not None else None


class _Clusters:
    def __init__(self, inventory: Inventory) -> None:
        self._names = sorted({host.cluster for host in inventory.hosts if host.cluster})

    def list(self, query: str | None = None, **_: object) -> list[ClusterEntity]:
        fields: dict[str, Callable[[str], Any]] = {"name": str, "id": str}
        test = compile_query(query, fields) if query else lambda name: True
        return [ClusterEntity(name) for name in self._names if test(name)]

    def get(self, name: str | None = None, id: str | None = None) -> ClusterEntity | None:
        wanted = name if id is None else id
        return ClusterEntity(wanted) if wanted in self._names else None


def _fits(entry: Any, filters: dict[str, object], fields: dict[str, Callable[[Any], Any]]) -> bool:
    return all(name not in fields or fields[name](entry) == value for name, value in filters.items())


class API:
    """The connection a plugin opens. There is nothing to connect to."""

    def __init__(self, *_: object, **__: object) -> None:
        inventory, placed = serving_now[-1] if serving_now else (Inventory(), None)
        self.hosts = _Hosts(inventory)
        self.vms = _Vms(inventory, placed)
        self.clusters = _Clusters(inventory)

    def __enter__(self) -> API:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Ends nothing."""

    def test(self, *_: object, **__: object) -> bool:
        """Whether the connection stands."""
        return True

    def get_product_info(self) -> Entity:
        """What answers."""
        return Entity(
            name="Ringway", vendor="Ringway", version=Entity(major=3, minor=6, full_version="3.6")
        )
