"""A unit in oVirt's style: ids in, a printed list out. It runs under oVirt's proxy too."""

from __future__ import print_function

from ovirtsdk.api import API


class printed_memory(object):
    """hosts whose free memory is above a floor in MiB"""

    properties_validation = "memory_floor=[0-9]+"

    def do_filter(self, hosts, vm, args):
        floor = int(args.get("memory_floor", "1024")) << 20
        api = API(url="http://host:port", username="user@domain", password="")
        accepted = []
        for host in api.hosts.list(query=" or ".join("id=%s" % id for id in hosts)):
            free = host.get_statistics().get("memory.free").get_values().get_value()[0].get_datum()
            if free > floor:
                accepted.append(host.id)
        print(accepted)
