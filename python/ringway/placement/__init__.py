"""The typed placement API, for writing units."""

from .inventory import Inventory
from .model import Host, HugePages, NumaNode, Port, Scalar, Vm
from .unit import (
    Accepted,
    Action,
    Balancer,
    Filter,
    Migrate,
    Number,
    Properties,
    Score,
    Scores,
    Sleep,
    Unit,
    Wake,
)

__all__ = [
    "Accepted",
    "Action",
    "Balancer",
    "Filter",
    "Host",
    "HugePages",
    "Inventory",
    "Migrate",
    "Number",
    "NumaNode",
    "Port",
    "Properties",
    "Scalar",
    "Score",
    "Scores",
    "Sleep",
    "Unit",
    "Vm",
    "Wake",
]
