"""A stand-in for oVirt's Python SDK 3 (`ovirtsdk.api`, `ovirtsdk.xml.params`), backed by our inventory.

It has what scheduling plugins ask: lists and single entries of hosts, VMs and clusters, with the search
language's comparisons; attributes and their `get_` twins; statistics. What a balancer changes (`changes.py`)
becomes its result. It connects to nobody: address and password are passed over.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Iterator

from ringway.placement.inventory import Inventory
from ringway.placement.model import Vm

from . import entity
from .api import API, serving_now
from .changes import recorded
from .search import RequestError


__all__ = ["install", "recorded", "serving"]


@contextmanager
def serving(inventory: Inventory, vm: Vm | None) -> Iterator[None]:
    """Lets `ovirtsdk.api.API` answer from this inventory, and from the VM that is being placed."""
    serving_now.append((inventory, vm))
    try:
        yield
    finally:
        serving_now.pop()


def install() -> None:
    """Makes `import ovirtsdk` give the stand-in in this process."""
    errors = {"RequestError": RequestError, "ConnectionError": ConnectionError}
    params = {
        name: type(name, (entity.Entity,), {"_known": known._known | {"id", "name"}})
        for name, known in (
            ("Host", entity.HostEntity),
            ("VM", entity.VmEntity),
            ("Cluster", entity.ClusterEntity),
        )
    }
    action = {"_known": frozenset(("host", "fence_type", "force", "async", "grace_period"))}
    params["Action"] = type("Action", (entity.Entity,), action)
    members: dict[str, dict[str, object]] = {
        "ovirtsdk": {},
        "ovirtsdk.api": {"API": API},
        "ovirtsdk.xml": {},
        "ovirtsdk.xml.params": {**params},
        "ovirtsdk.infrastructure": {},
        "ovirtsdk.infrastructure.errors": {**errors},
    }
    for name, contents in members.items():
        module = ModuleType(name, __doc__)
        module.__dict__.update(contents)
        module.__path__ = []
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
