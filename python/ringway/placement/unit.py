"""Units: classes with `do_filter`, `do_score` or `do_balance`.

A unit gets whole hosts and VMs, all hosts in one call, and returns its result. One object of the class serves
all calls until a file of the folder changes, so it may keep state.
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
"""A policy's custom properties. Values are text that matches the unit's expressions."""
Accepted = Iterable[Union[Host, str]]
"""The hosts that a filter accepts, or their ids."""
Number = Union[int, float]
Scores = Union[
    Mapping[Host, Number],
    Mapping[str, Number],
    Iterable[Union[Number, None]],
    Iterable[tuple[Union[Host, str], Number]],
]
"""A number per host: in the order of the hosts (`None` for no score), as pairs, or as a mapping. Lower is
better."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a VM to one of several hosts; the policy's filters and weights choose one."""

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


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a VM."""

    vm: Vm | str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Put a host into maintenance: it gets no new VMs, and its VMs move away."""

    host: Host | str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Activate:
    """Take a host that the policy put into maintenance into use again."""

    host: Host | str
    reason: str = ""


Action = Union[Migrate, Stop, Deactivate, Activate, Sleep, Wake]
"""An action of a balancer."""


class Unit:
    """The base of all units. Use `Filter`, `Score` or `Balancer`, or several of them."""

    properties_validation: ClassVar[str] = ""
    """The custom properties that this unit reads, `key=regex;key=regex`."""

    now: datetime = datetime.fromtimestamp(0, timezone.utc)
    """The local time of the decision; in a simulation, the simulated time. Don't use the system's clock."""
    random: random.Random = random.Random(0)
    """Random numbers that are the same when the decision is recomputed."""
    inventory: Inventory = Inventory()
    """All hosts and VMs, including those that are not candidates."""
    explaining: bool = False
    """Whether reasons are shown."""
    reasons: dict[int, str] = {}

    def why(self, host: Host, reason: str) -> None:
        """Records why a host is rejected, or has its score; shown by `explain`."""
        if self.explaining:
            self.reasons[host.slot] = reason


class Filter(Unit, ABC):
    """A unit that selects the hosts that can take a VM."""

    @abstractmethod
    def do_filter(self, hosts: Sequence[Host], vm: Vm, args: Properties) -> Accepted:
        """The given hosts that can take the VM."""


class Score(Unit, ABC):
    """A unit that rates how well hosts suit a VM."""

    @abstractmethod
    def do_score(self, hosts: Sequence[Host], vm: Vm, args: Properties) -> Scores:
        """A number for each host; lower is better."""


class Balancer(Unit, ABC):
    """A unit that moves and stops VMs and switches hosts over time."""

    @abstractmethod
    def do_balance(self, hosts: Sequence[Host], args: Properties) -> Action | Sequence[Action] | None:
        """The next action, if any, or several. One VM moves and one host is switched in a round."""
