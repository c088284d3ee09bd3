"""Hosts that take VMs only at some hours: give them a label such as `hours:22-6`."""

from typing import Sequence

from ringway.placement import Filter, Host, Properties, Vm


class Hours(Filter):
    """Hosts without a label `hours:FROM-TO`, and those within their hours."""

    def do_filter(self, hosts: Sequence[Host], vm: Vm, args: Properties) -> list[Host]:
        return [host for host in hosts if self.is_open(host)]

    def is_open(self, host: Host) -> bool:
        for label in host.labels:
            if label.startswith("hours:"):
                begin, _, end = label.removeprefix("hours:").partition("-")
                if not is_between(self.now.hour, int(begin), int(end)):
                    self.why(host, f"takes VMs from {begin} to {end} o'clock only")
                    return False
        return True


def is_between(hour: int, begin: int, end: int) -> bool:
    """Whether an hour is in a span that may go over midnight; the end is not part of it."""
    return begin <= hour < end if begin <= end else hour >= begin or hour < end
