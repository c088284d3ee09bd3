"""Fewer hosts at night: they are emptied, put to sleep, and woken in the morning."""

from typing import Sequence

from hours import is_between
from ringway.placement import Action, Balancer, Host, Migrate, Properties, Sleep, Wake


class SleepByHour(Balancer):
    """From `sleep_from` (20) to `sleep_until` (6) o'clock all but `keep_awake` (1) hosts sleep, as far as
    their VMs fit on the others. Hosts not power-managed, and those in maintenance, are left alone."""

    properties_validation = "sleep_from=[0-9]{1,2};sleep_until=[0-9]{1,2};keep_awake=[0-9]{1,6}"

    def do_balance(self, hosts: Sequence[Host], args: Properties) -> Action | None:
        begin, end = int(args.get("sleep_from", "20")), int(args.get("sleep_until", "6"))
        if is_between(self.now.hour, begin, end):
            return self.put_one_to_sleep(hosts, int(args.get("keep_awake", "1")))
        return self.wake_one(hosts)

    def put_one_to_sleep(self, hosts: Sequence[Host], keep: int) -> Action | None:
        awake = [host for host in hosts if host.state == "up"]
        managed = [host for host in awake if host.power_managed]
        if len(awake) <= keep or not managed:
            return None
        least = min(managed, key=lambda host: (len(host.vms), host.id))
        if not least.vms:
            return Sleep(least, "nothing runs on it at night")
        others = [host for host in awake if host is not least]
        for vm in sorted(least.vms, key=lambda vm: (-vm.memory, vm.id)):
            room = [host for host in others if host.memory_free >= vm.memory]
            # A VM that can't go keeps its host awake: then nothing else needs to leave it.
            if not vm.migratable or not room:
                return None
        return Migrate(vm, room, f"{least.name} is to sleep")

    def wake_one(self, hosts: Sequence[Host]) -> Action | None:
        clusters = {host.cluster for host in hosts}
        for host in self.inventory.hosts:
            if host.state == "down" and host.power_managed and host.cluster in clusters:
                return Wake(host, "the night is over")
        return None
