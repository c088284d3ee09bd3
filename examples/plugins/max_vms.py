"""At most so many VMs a host."""

from typing import Sequence

from ringway.placement import Filter, Host, Properties, Vm


class MaxVms(Filter):
    """Hosts with fewer VMs than `maximum_vms` (50)."""

    properties_validation = "maximum_vms=[0-9]{1,6}"

    def do_filter(self, hosts: Sequence[Host], vm: Vm, args: Properties) -> list[Host]:
        most = int(args.get("maximum_vms", "50"))
        if self.explaining:
            for host in hosts:
                if host.vms_active >= most:
                    self.why(host, f"has {host.vms_active} VMs, at most {most}")
        return [host for host in hosts if host.vms_active < most]
