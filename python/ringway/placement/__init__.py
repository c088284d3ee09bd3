"""The typed placement API, for writing units."""

from .inventory import Inventory
from .model import Host, HugePages, NumaNode, Port, Scalar, Vm
from .unit import (
    Accepted,
    Action,
    Activate,
    Balancer,
    Deactivate,
    Filter,
    Migrate,
    Number,
    Properties,
    Score,
    Scores,
    Sleep,
    Stop,
    Unit,
    Wake,
)

__all__ = [
    "Accepted",
    "Action",
    "Activate",
    "Balancer",
    "Deactivate",
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
    "Stop",
    "Unit",
    "Vm",
    "Wake",
]
