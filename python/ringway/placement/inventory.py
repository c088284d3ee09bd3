"""The hosts and VMs that a plugin host keeps, updated by snapshots and deltas."""

from __future__ import annotations

from itertools import compress
from typing import Any, Iterable, Mapping

from .model import Host, Vm
from .wire import HOST, VM, Wrong, fields, listed, slot as slot_of, text

MOST_VMS = 1 << 20
"""Attack: endless VMs. Largest number of VMs."""
_BITS = bytes(byte == ord("1") for byte in range(256))


class WrongRevision(Exception):
    """The inventory's revision differs from the client's."""


class Inventory:
    """All hosts and VMs at one revision."""

    def __init__(self) -> None:
        self.revision = 0
        self.slots: list[Host | None] = []
        """Hosts by slot."""
        self.by_id: dict[str, Host] = {}
        self.vms: dict[str, Vm] = {}
        """VMs by id."""
        self._host_fields: dict[int, dict[str, Any]] = {}
        self._at: dict[int, dict[str, Vm]] = {}
        self._vm_fields: dict[str, dict[str, Any]] = {}
        self._building: Inventory | None = None
        self._version = 0
        self._hosts: tuple[Host, ...] | None = None

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Every host, by slot."""
        if self._hosts is None:
            # A delta before each decision drops it: hosts are true, so that no Python code runs for each.
            self._hosts = tuple(filter(None, self.slots))
        return self._hosts

    def host(self, id: str) -> Host | None:
        """The host of this id."""
        return self.by_id.get(id)

    def vm(self, id: str) -> Vm | None:
        """The VM of this id."""
        return self.vms.get(id)

    def select(self, mask: str | None) -> tuple[Host, ...]:
        """The hosts in a mask, by slot; all of them without a mask."""
        if mask is None:
            return self.hosts
        if mask.count("0") + mask.count("1") != len(mask):
            raise Wrong("hosts: a mask is of 0 and 1")
        if mask.count("1") == len(self.by_id) and len(self.slots) == len(self.by_id):
            if mask.rfind("1") < len(self.slots):
                return self.hosts
        chosen = tuple(compress(self.slots, mask.encode().translate(_BITS)))
        if None in chosen or mask.rfind("1") >= len(self.slots):
            raise Wrong("hosts: the mask names a slot without a host")
        return chosen  # type: ignore[return-value]

    def snapshot(self, part: Mapping[str, Any]) -> bool:
        """Takes a snapshot, or part of one; returns whether it was the last part. An invalid one changes
        nothing."""
        building = self._building or Inventory()
        self._building = None
        building._apply(part)
        if not part.get("last", True):
            self._building = building
            return False
        building.revision = _revision(part, "revision")
        self.__dict__.update(building.__dict__)
        return True

    def delta(self, delta: Mapping[str, Any]) -> None:
        """Advances to the next revision. An invalid delta changes nothing."""
        if _revision(delta, "from") != self.revision:
            raise WrongRevision(f"the inventory is at revision {self.revision}")
        revision = _revision(delta, "revision")
        self._apply(delta)
        self.revision = revision

    def _apply(self, change: Mapping[str, Any]) -> None:
        hosts = self._new_hosts(change)
        gone_hosts = {slot_of(entry) for entry in listed(change.get("gone_hosts", []))}
        vms = self._new_vms(change)
        gone_vms = {text(entry) for entry in listed(change.get("gone_vms", []))}
        self._check(hosts, gone_hosts, vms, gone_vms)
        touched = set(hosts)
        for number in gone_hosts:
            self._remove_host(number)
        self._host_fields.update(hosts)
        for id in gone_vms:
            touched.add(self._lift(id))
            self._vm_fields.pop(id, None)
            self.vms.pop(id, None)
        for id, values in vms.items():
            touched.add(self._lift(id))
            touched.add(self._put(id, values))
        for number in touched:
            if number in self._host_fields:
                self._build(number)
        self._hosts = None

    def _new_hosts(self, change: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        gone = set(map(slot_of, listed(change.get("gone_hosts", []))))
        found: dict[int, dict[str, Any]] = {}
        for index, entry in enumerate(listed(change.get("hosts", []))):
            values = fields(entry, HOST, f"hosts[{index}]")
            number = values.get("slot")
            if number is None:
                raise Wrong(f"hosts[{index}]: has no slot")
            old = found.get(number) or ({} if number in gone else self._host_fields.get(number, {}))
            merged = _merged(old, values)
            if "id" not in merged:
                raise Wrong(f"hosts[{index}]: is new and has no id")
            if old.get("id", merged["id"]) != merged["id"]:
                raise Wrong(f"hosts[{index}]: slot {number} belongs to {old['id']}")
            found[number] = merged
        return found

    def _new_vms(self, change: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        gone = set(map(text, listed(change.get("gone_vms", []))))
        found: dict[str, dict[str, Any]] = {}
        for index, entry in enumerate(listed(change.get("vms", []))):
            values = fields(entry, VM, f"vms[{index}]")
            id = values.get("id")
            if id is None:
                raise Wrong(f"vms[{index}]: has no id")
            old = found.get(id) or ({} if id in gone else self._vm_fields.get(id, {}))
            found[id] = _merged(old, values)
        return found

    def _check(
        self, hosts: Mapping[int, Any], gone_hosts: set[int], vms: Mapping[str, Any], gone_vms: set[str]
    ) -> None:
        seen: dict[str, int] = {}
        for number, values in hosts.items():
            id = values["id"]
            other = self.by_id.get(id)
            elsewhere = other is not None and other.slot != number and other.slot not in gone_hosts
            if elsewhere or seen.setdefault(id, number) != number:
                raise Wrong(f"hosts: {id} has two slots")
        if len(self._vm_fields) + len(vms) > MOST_VMS:
            raise Wrong(f"vms: more than {MOST_VMS}")
        for id, values in vms.items():
            host = values.get("host")
            known = host is None or host in hosts or (host in self._host_fields and host not in gone_hosts)
            # In a snapshot of several parts, a VM's host may be in a later part.
            if not known and self.revision != 0:
                raise Wrong(f"vms: {id}: slot {host} has no host")

    def _remove_host(self, number: int) -> None:
        old = self._host_fields.pop(number, None)
        if old is None:
            return
        self.by_id.pop(old["id"], None)
        self.slots[number] = None
        for id in self._at.pop(number, {}):
            self._vm_fields[id] = {**self._vm_fields[id], "host": None}
            self.vms[id] = _vm(self._vm_fields[id], None)

    def _lift(self, id: str) -> int:
        """Removes a VM from its host; returns the host's slot, or -1."""
        number = self._vm_fields.get(id, {}).get("host")
        if number is None:
            return -1
        self._at.get(number, {}).pop(id, None)
        return int(number)

    def _put(self, id: str, values: dict[str, Any]) -> int:
        """Adds a VM to its host; returns the host's slot, or -1."""
        number = values.get("host")
        self._vm_fields[id] = values
        host = self._host_fields.get(number) if number is not None else None
        vm = self.vms[id] = _vm(values, host["id"] if host else None)
        if number is None:
            return -1
        self._at.setdefault(number, {})[id] = vm
        return int(number)

    def _build(self, number: int) -> None:
        values = self._host_fields[number]
        here = self._at.get(number)
        if here and any(vm.host != values["id"] for vm in here.values()):
            for id in here:
                here[id] = self.vms[id] = _vm(self._vm_fields[id], values["id"])
        host = _host(values, tuple(here.values()) if here else ())
        if number >= len(self.slots):
            self.slots.extend([None] * (number + 1 - len(self.slots)))
        self.slots[number] = host
        self.by_id[host.id] = host


def vm_of(entry: object) -> Vm:
    """A VM to be placed."""
    values = fields(entry, VM, "vm")
    if "id" not in values:
        raise Wrong("vm: has no id")
    return _vm(_merged({}, values), None)


def _merged(old: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**old, **values}
    for name in [name for name, value in values.items() if value is None]:
        del merged[name]
    return merged


def _vm(values: Mapping[str, Any], host: str | None) -> Vm:
    values = {"name": values["id"], **values}
    values["host"] = host
    return Vm(**values)


def _host(values: Mapping[str, Any], vms: tuple[Vm, ...]) -> Host:
    values = {"name": values["id"], **values, "vms": vms}
    if vms:
        counts = ("vms_active", lambda vm: vm.state == "up"), (
            "vms_migrating",
            lambda vm: vm.state == "migrating",
        )
        for name, counted in counts:
            if name not in values:
                values[name] = sum(map(counted, vms))
        values.setdefault("vms_total", len(vms))
    return Host(**values)


def _revision(change: Mapping[str, Any], name: str) -> int:
    value = change.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Wrong(f"{name}: must be a revision, a whole number")
    return value


def ids(hosts: Iterable[Host]) -> list[str]:
    """The hosts' ids."""
    return [host.id for host in hosts]
