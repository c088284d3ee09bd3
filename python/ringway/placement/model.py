"""The units' view of hosts and VMs at one revision of the inventory. All objects are read-only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Union

Scalar = Union[str, int, float, bool, None]
"""The value of a fact."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumaNode:
    """One NUMA node of a host."""

    cpus: int = 0
    """Threads."""
    memory: int = 0
    """MiB."""
    memory_free: int = 0
    """MiB."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HugePages:
    """A host's huge pages of one size."""

    total: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Port:
    """A physical port of a host."""

    name: str = ""
    numa: int = 0
    """The NUMA node that it is attached to."""
    bandwidth: float = 0
    """Mb/s."""
    used: float = 0
    """Mb/s, measured."""
    pps: float = 0
    """Capacity in frames per second."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vm:
    """A VM, or a network function (`kind` says which)."""

    id: str
    name: str = ""
    host: str | None = None
    """The id of the host it runs on, if any."""
    state: str = "up"
    kind: str = "vm"
    cpus: int = 0
    """vCPUs."""
    cpu_load: float = 0
    """Percent of its vCPUs."""
    memory: int = 0
    """MiB."""
    memory_guaranteed: int = 0
    """MiB."""
    huge_page: int = 0
    """The size of its huge pages in KiB; 0 for none."""
    os_type: str = ""
    os_version: str = ""
    priority: int = 0
    ha: bool = False
    """Whether it is restarted elsewhere if its host fails."""
    migratable: bool = True
    group: str = ""
    """Its server group."""
    chain: str = ""
    """Its chain of functions."""
    chain_index: int = 0
    """Its position in the chain, from 0."""
    labels: tuple[str, ...] = ()
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Host:
    """A host."""

    slot: int
    """Its number in masks and lists, unique among existing hosts."""
    id: str
    name: str = ""
    cluster: str = ""
    address: str = ""
    comment: str = ""
    state: str = "up"
    """`up`, `preparing_for_maintenance`, `maintenance`, `down` (switched off) or `non_responsive`."""
    power_managed: bool = False
    """Whether it can be switched on and off."""
    fault_domain: str = ""
    """Its failure domain, such as a rack."""
    cpu_sockets: int = 0
    cpu_cores: int = 0
    """Of all sockets."""
    cpu_threads: int = 0
    """Of all cores."""
    cpu_model: str = ""
    cpu_mhz: float = 0
    cpu_load: float = 0
    """Percent of all threads."""
    cpu_committed: float = 0
    """vCPUs of its VMs."""
    cpu_pending: float = 0
    """vCPUs of pending VMs."""
    memory: int = 0
    """MiB, like all memory here."""
    memory_free: int = 0
    memory_committed: int = 0
    memory_pending: int = 0
    max_scheduling_memory: int = 0
    """Memory available to new VMs."""
    swap: int = 0
    swap_free: int = 0
    huge_pages: Mapping[int, HugePages] = field(default_factory=dict)
    """By size in KiB."""
    numa: tuple[NumaNode, ...] = ()
    ports: tuple[Port, ...] = ()
    vms_active: int = 0
    vms_migrating: int = 0
    vms_total: int = 0
    spm: bool = False
    """Whether it is the storage pool manager."""
    ksm: bool = False
    """Whether it merges equal pages."""
    ha_score: float = 0
    os_type: str = ""
    os_version: str = ""
    labels: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    """Facts that have not expired."""
    vms: tuple[Vm, ...] = ()
    """The VMs on it."""
