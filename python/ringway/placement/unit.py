"""What a unit is: a class with `do_filter`, `do_score` or `do_balance`.

A unit gets whole hosts and VMs, all hosts in one call, and returns its verdict. One object of the class
serves all calls until a file of the folder changes, so it may keep what it likes in itself.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import ClassVar, Iterable, Mapping, Sequence, Union

from .inventory import Inventory
from .model import Host, Vm

Properties = Mapping[str, str]
"""A policy's custom properties. Values are text, and fit the unit's expressions."""
Accepted = Iterable[Union[Host, str]]
"""The hosts a filter lets through, or their ids."""
Number = Union[int, float]
Scores = Union[
    Mapping[Host, Number],
    Mapping[str, Number],
    Iterable[Union[Number, None]],
    Iterable[tuple[Union[Host, str], Number]],
]
"""A number a host: in the order of the hosts (`None` for no opinion), as pairs, or as a mapping. Lower is
better."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a VM to one of some hosts; which, the policy's filters and weights say."""

    vm: Vm | str
    hosts: Sequence[Host | str]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Power an empty host down."""

    host: Host | str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Wake:
    """Power a sleeping host up."""

    host: Host | str
    reason: str = ""


Action = Union[Migrate, Sleep, Wake]
"""What a balancer wants done."""


class Unit:
    """What every unit can ask. Use `Filter`, `Score` or `Balancer`, or several of them."""

    properties_validation: ClassVar[str] = ""
    """The custom properties this unit takes, `key=regex;key=regex`."""

    now: datetime = datetime.fromtimestamp(0, timezone.utc)
    """The decision's time, local; in a simulation, the simulated one. Ask this, not the system's clock."""
    random: random.Random = random.Random(0)
    """Random numbers that a recomputed decision gets again."""
    inventory: Inventory = Inventory()
    """All hosts and VMs, also those that are not candidates."""
    explaining: bool = False
    """Whether somebody will read reasons."""
    reasons: dict[int, str] = {}

    def why(self, host: Host, reason: str) -> None:
        """Says why a host is refused, or scored as it is; shown by `explain`."""
        if self.explaining:
            self.reasons[host.slot] = reason


class Filter(Unit, ABC):
    """A unit that says which hosts can take a VM."""

    @abstractmethod
    def do_filter(self, hosts: Sequence[Host], vm: Vm, args: Properties) -> Accepted:
        """The hosts, among those given, that can take the VM."""


class Score(Unit, ABC):
    """A unit that says how well hosts suit a VM."""

    @abstractmethod
    def do_score(self, hosts: Sequence[Host], vm: Vm, args: Properties) -> Scores:
        """A number for each host; lower is better."""


class Balancer(Unit, ABC):
    """A unit that moves VMs, and powers hosts, from time to time."""

    @abstractmethod
    def do_balance(self, hosts: Sequence[Host], args: Properties) -> Action | None:
        """The next thing to do, if any."""
