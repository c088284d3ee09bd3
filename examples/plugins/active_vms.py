"""Hosts with few VMs first."""

from typing import Sequence

from ringway.placement import Host, Properties, Score, Vm


class ActiveVms(Score):
    """The number of VMs that run on a host or move to or from it; lower is better."""

    def do_score(self, hosts: Sequence[Host], vm: Vm, args: Properties) -> list[int]:
        return [host.vms_active + host.vms_migrating for host in hosts]
