"""A balancer in oVirt's style that acts through the SDK: at night all VMs stop and the hosts rest."""

from __future__ import print_function

from datetime import datetime

from ovirtsdk.api import API


class closed_at_night(object):
    """stops all VMs from `close` (20) to `open` (8) o'clock, puts the hosts into maintenance, and back"""

    properties_validation = "close=[0-9]{1,2};open=[0-9]{1,2}"

    def do_balance(self, hosts, args):
        close, opens = int(args.get("close", "20")), int(args.get("open", "8"))
        hour = datetime.now().hour
        closed = close <= hour < opens if close <= opens else hour >= close or hour < opens
        api = API(url="http://host:port", username="user@domain", password="")
        for host in api.hosts.list():
            if closed and host.id in hosts:
                for vm in api.vms.list(query="host=%s" % host.name):
                    vm.stop()
                host.deactivate()
            elif not closed:
                host.activate()
