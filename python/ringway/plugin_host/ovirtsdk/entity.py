"""Hosts, VMs and clusters as oVirt's REST API shows them. Memory is in bytes."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Mapping

from ringway.placement.model import Host, Vm

from . import changes

_MIB = 1 << 20
_COMMON = frozenset(
    "id name description comment href status cluster memory cpu os version tags link statistics".split()
)


class Entity:
    """An object of the REST API: attributes, each with a `get_` method beside. What it doesn't have is
    None, as far as the API knows the name."""

    _known: frozenset[str] = frozenset()
    _refused: frozenset[str] = frozenset()
    """Calls of the SDK that change something and are not answered."""
    _answered = ""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("get_"):
            value = getattr(self, name[4:])
            return lambda: value
        if name in self._known:
            return None
        if name in self._refused:
            return changes.refusal(name, self._answered)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.__dict__.get("id"))


class Statistics:
    """An entity's figures by name."""

    def __init__(self, figures: Mapping[str, tuple[str, float]]) -> None:
        self._figures = figures

    def list(self, *_: object, **__: object) -> list[Entity]:
        return [_statistic(name, *figure) for name, figure in self._figures.items()]

    def get(self, name: str | None = None, id: str | None = None) -> Entity | None:
        wanted = name or id or ""
        figure = self._figures.get(wanted)
        return None if figure is None else _statistic(wanted, *figure)


def _statistic(name: str, unit: str, datum: float) -> Entity:
    values = Entity(type_="INTEGER", value=[Entity(datum=datum)])
    return Entity(id=name, name=name, unit=unit, type_="GAUGE", values=values)


def _accepted() -> Entity:
    """What the REST API answers to an action."""
    return Entity(status=Entity(state="complete"))


class _Summary(Entity):
    """What plugins ask most: made once a host, so nothing of it can be set."""

    _host: Host

    def __init__(self, host: Host) -> None:
        self.__dict__["_host"] = host

    @property
    def active(self) -> int:
        return self._host.vms_active

    @property
    def migrating(self) -> int:
        return self._host.vms_migrating

    @property
    def total(self) -> int:
        return self._host.vms_total


class HostEntity(Entity):
    """A host as `/api/hosts` shows it."""

    _known = _COMMON | frozenset(
        "address port type_ storage_manager power_management ksm transparent_hugepages iscsi hooks "
        "max_scheduling_memory "
        "summary libvirt_version hardware_information certificate numanodes".split()
    )

    _refused = frozenset("approve commitnetconfig delete forceselectspm install update".split())
    _answered = "activate(), deactivate() and fence() of a host"

    _host: Host

    def __init__(self, host: Host) -> None:
        # The rest is worked out when asked for: there are thousands of hosts, and plugins ask two figures.
        self.__dict__.update(id=host.id, name=host.name, _host=host)

    def deactivate(self, action: object = None) -> Entity:
        """Puts the host into maintenance."""
        changes.ask({"action": "deactivate", "host": self._host.slot})
        return _accepted()

    def activate(self, action: object = None) -> Entity:
        """Takes the host into use again."""
        changes.ask({"action": "activate", "host": self._host.slot})
        return _accepted()

    def fence(self, action: Any = None) -> Entity:
        """Switches the host on or off: `params.Action(fence_type="stop")` or `"start"`; `"status"` tells
        whether it is on."""
        kind = getattr(action, "fence_type", None)
        if kind == "status":
            state = "off" if self._host.state in ("down", "non_responsive") else "on"
            return Entity(
                status=Entity(state="complete"), power_management=Entity(status=Entity(state=state))
            )
        if kind not in ("start", "stop"):
            raise changes.RequestError(f"fence_type is {kind!r}; it may be 'start', 'stop' or 'status'")
        changes.ask({"action": "wake" if kind == "start" else "sleep", "host": self._host.slot})
        return _accepted()

    @property
    def address(self) -> str:
        return self._host.address

    @property
    def comment(self) -> str:
        return self._host.comment

    @property
    def status(self) -> Entity:
        return Entity(state=self._host.state)

    @property
    def cluster(self) -> Entity:
        return ClusterEntity(self._host.cluster)

    @property
    def cpu(self) -> Entity:
        host = self._host
        topology = Entity(
            sockets=host.cpu_sockets,
            cores=host.cpu_cores // max(host.cpu_sockets, 1),
            threads=host.cpu_threads // max(host.cpu_cores, 1),
        )
        return Entity(topology=topology, name=host.cpu_model, speed=host.cpu_mhz)

    @property
    def memory(self) -> int:
        return self._host.memory * _MIB

    @property
    def max_scheduling_memory(self) -> int:
        host = self._host
        left = host.memory - host.memory_committed - host.memory_pending
        return (host.max_scheduling_memory or max(left, 0)) * _MIB

    @cached_property
    def summary(self) -> Entity:
        return _Summary(self._host)

    @property
    def os(self) -> Entity:
        return _os(self._host.os_type, self._host.os_version)

    @property
    def ksm(self) -> Entity:
        return Entity(enabled=self._host.ksm)

    @property
    def storage_manager(self) -> Entity:
        return Entity(valueOf_=str(self._host.spm).lower(), priority=5)

    @property
    def statistics(self) -> Statistics:
        host = self._host
        return Statistics(
            {
                "memory.total": ("BYTES", host.memory * _MIB),
                "memory.used": ("BYTES", max(host.memory - host.memory_free, 0) * _MIB),
                "memory.free": ("BYTES", host.memory_free * _MIB),
                "swap.total": ("BYTES", host.swap * _MIB),
                "swap.free": ("BYTES", host.swap_free * _MIB),
                "swap.used": ("BYTES", max(host.swap - host.swap_free, 0) * _MIB),
                "cpu.current.user": ("PERCENT", host.cpu_load),
                "cpu.current.system": ("PERCENT", 0),
                "cpu.current.idle": ("PERCENT", max(100 - host.cpu_load, 0)),
                "cpu.load.avg.5m": ("PERCENT", host.cpu_load),
            }
        )


class VmEntity(Entity):
    """A VM as `/api/vms` shows it."""

    _known = _COMMON | frozenset(
        "host type_ high_availability display template creation_time origin stateless placement_policy "
        "memory_policy "
        "quota usb delete_protected start_time custom_properties guest_info".split()
    )

    _refused = frozenset(
        "cancelmigration clone delete detach export logon maintenance move "
        "reboot start suspend ticket update".split()
    )
    _answered = "stop(), shutdown() and migrate() of a VM"

    _vm: Vm
    _host: Host | None

    def __init__(self, vm: Vm, host: Host | None) -> None:
        self.__dict__.update(id=vm.id, name=vm.name, _vm=vm, _host=host)

    def stop(self, action: object = None) -> Entity:
        """Stops the VM."""
        changes.ask({"action": "stop", "vm": self._vm.id})
        return _accepted()

    shutdown = stop

    def migrate(self, action: Any = None) -> Entity:
        """Moves the VM: to `params.Action(host=params.Host(id=...))`, or to the best host."""
        host = getattr(action, "host", None)
        asked = {"action": "migrate", "vm": self._vm.id}
        changes.ask(asked if host is None else {**asked, "to": getattr(host, "id", None) or host.name})
        return _accepted()

    @property
    def status(self) -> Entity:
        return Entity(state=self._vm.state)

    @property
    def host(self) -> Entity | None:
        return Entity(id=self._host.id, name=self._host.name) if self._host else None

    @property
    def cluster(self) -> Entity | None:
        return ClusterEntity(self._host.cluster) if self._host else None

    @property
    def cpu(self) -> Entity:
        return Entity(topology=Entity(sockets=self._vm.cpus, cores=1, threads=1))

    @property
    def memory(self) -> int:
        return self._vm.memory * _MIB

    @property
    def memory_policy(self) -> Entity:
        return Entity(guaranteed=(self._vm.memory_guaranteed or self._vm.memory) * _MIB)

    @property
    def os(self) -> Entity:
        return _os(self._vm.os_type, self._vm.os_version)

    @property
    def high_availability(self) -> Entity:
        return Entity(enabled=self._vm.ha, priority=self._vm.priority)

    @property
    def placement_policy(self) -> Entity:
        return Entity(affinity="migratable" if self._vm.migratable else "pinned")

    @property
    def statistics(self) -> Statistics:
        vm = self._vm
        return Statistics(
            {
                "memory.installed": ("BYTES", vm.memory * _MIB),
                "cpu.current.total": ("PERCENT", vm.cpu_load),
                "cpu.current.guest": ("PERCENT", vm.cpu_load),
            }
        )


class ClusterEntity(Entity):
    """A cluster, of which the inventory knows the name."""

    _known = _COMMON | frozenset("scheduling_policy data_center memory_policy".split())

    def __init__(self, name: str) -> None:
        super().__init__(id=name, name=name)


def _os(kind: str, version: str) -> Entity:
    return Entity(type_=kind, type=kind, version=Entity(full_version=version) if version else None)
