"""Moves a VM off the most overloaded host."""

from typing import Sequence

from ringway.placement import Action, Balancer, Host, Migrate, Properties, Vm


class RelieveOverloaded(Balancer):
    """Moves the smallest VM off the hottest host above `high` (80) percent of CPU, to hosts left 10 below."""

    properties_validation = "high=[1-9][0-9]?"

    def do_balance(self, hosts: Sequence[Host], args: Properties) -> Action | None:
        high = int(args.get("high", "80"))
        hottest = max(hosts, key=lambda host: host.cpu_load, default=None)
        if hottest is None or hottest.cpu_load <= high:
            return None
        for vm in sorted(hottest.vms, key=lambda vm: (vm.memory, vm.id)):
            takers = [host for host in hosts if host is not hottest and host.memory_free >= vm.memory]
            takers = [host for host in takers if host.cpu_load + added(host, vm) <= high - 10]
            if vm.migratable and takers:
                takers.sort(key=lambda host: host.cpu_load)
                return Migrate(vm, takers, f"{hottest.name} is at {hottest.cpu_load:.0f} %")
        return None


def added(host: Host, vm: Vm) -> float:
    """Percent of a host's CPU that a VM takes."""
    return vm.cpu_load * vm.cpus / max(host.cpu_threads, 1)
