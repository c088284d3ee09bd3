"""Plugins in oVirt's style: printed results, the SDK's replacement, the proxy's calls."""

import glob
import os
import subprocess
import tempfile
import threading
import unittest
import xmlrpc.client

from ringway.plugin_client import PluginHost
from ringway.scheduler_proxy.inventory import InventoryFile
from ringway.scheduler_proxy.server import Server
from ringway.scheduler_proxy.service import SchedulerProxy

from .support import HOSTS, VM, VMS, HostCase

PRINTING = """
    from __future__ import print_function
    import sys
    from ovirtsdk.api import API
    from ovirtsdk.xml import params
    from ovirtsdk.infrastructure.errors import RequestError

    class Filter(object):
        '''What the class says.'''
        properties_validation = 'most=[0-9]*'

        def do_filter(self, hosts, vm, args):
            assert all(isinstance(id, str) for id in hosts) and isinstance(vm, str)
            api = API(url='http://host:port', username='user@domain', password='')
            found = api.hosts.list(query=' or '.join('id=%s' % id for id in hosts))
            print([host.id for host in found if host.summary.active < int(args.get('most', 1))])

    class Score:
        def do_score(self, hosts, vm, args):
            '''What the method says.'''
            api = API()
            placed = api.vms.get(id=vm)
            print('debugging')
            print([(host.id, sum(placed.get_os().get_type() == other.get_os().get_type()
                                 for other in api.vms.list('host=' + host.name))) for host in
                                 api.hosts.list()])

    class Loose:
        def do_balance(self, hosts, args):
            print('v0', hosts[1:])

    class Strict:
        def do_balance(self, hosts, args):
            print(('v0', hosts[1:]))

    class Nothing:
        def do_filter(self, hosts, vm, args):
            pass
        def do_balance(self, hosts, args):
            pass

    class Complains:
        def do_filter(self, hosts, vm, args):
            print(hosts)
            print('no connection', file=sys.stderr)

    class Garbage:
        def do_filter(self, hosts, vm, args):
            print('<html>')
        def do_score(self, hosts, vm, args):
            print([(hosts[0], 'x')])
        def do_balance(self, hosts, args):
            print('nobody', hosts)

    class Stranger:
        def do_filter(self, hosts, vm, args):
            print(['stranger'])

    class Night:
        '''All VMs stop and all hosts rest at night; in the morning all hosts are taken back.'''
        properties_validation = 'hour=[0-9]+'

        def do_balance(self, hosts, args):
            api = API(url='http://host:port', username='user@domain', password='')
            if args['hour'] == '8':
                for host in api.hosts.list():
                    host.activate()
            else:
                for host in api.hosts.list(query=' or '.join('id=%s' % id for id in hosts)):
                    for vm in api.vms.list('host=' + host.name):
                        vm.stop()
                        vm.stop()
                    host.deactivate()
            print(('', []))

    class Acts:
        def do_balance(self, hosts, args):
            api = API()
            api.vms.get(name='vm1').migrate(params.Action(host=params.Host(name='hc')))
            api.vms.get(name='vm2').migrate()
            api.hosts.get(name='hb').fence(params.Action(fence_type='stop'))

    class Evening:
        '''One VM, found by its name, is shut down, and its host goes off; another host comes back.'''

        def do_balance(self, hosts, args):
            api = API(url='https://host:port/ovirt-engine/api', username='user@internal', password='',
                      ca_file='ca.pem', insecure=True, debug=False)
            vm = api.vms.get(name='vmw')
            if vm.get_status().get_state() != 'down':
                vm.shutdown()
            host = api.hosts.get(id=vm.get_host().get_id())
            if host.get_status().get_state() == 'up':
                assert host.deactivate(params.Action()).status.state == 'complete'
                power = host.fence(action=params.Action(fence_type='status')).power_management
                assert power.get_status().get_state() == 'on'
                host.fence(action=params.Action(fence_type='stop'))
            other = api.hosts.list(query='name=hc and status=up')[0]
            other.fence(params.Action(fence_type='start'))
            other.activate()
            api.vms.get(id='v3').migrate(params.Action(host=params.Host(id=other.id), force=False))
            api.disconnect()

    class Unanswered:
        properties_validation = 'call=.*'

        def do_balance(self, hosts, args):
            api = API()
            of, call = args['call'].split('.')
            entry = api.vms.get(name='vm1') if of == 'vm' else api.hosts.get(name='ha')
            api.vms.get(name='vm2').stop()
            getattr(entry, call)(params.Action())

    class Meddles:
        def do_filter(self, hosts, vm, args):
            API().vms.get(name='vm1').stop()
            print(hosts)

    class Returns:
        def do_filter(self, hosts, vm, args):
            return hosts[:1]

    class Figures:
        def do_filter(self, hosts, vm, args):
            api = API()
            host = api.hosts.get(id='a')
            assert host.get_name() == 'ha' == api.hosts.get(name='ha').name
            assert host.get_memory() == 8000 << 20
            free = host.get_statistics().get('memory.free')
            assert free.get_values().get_value()[0].get_datum() == 100 << 20
            assert host.status.state == 'up' and host.get_cpu().get_topology().get_cores() == 0
            assert host.get_power_management() is None
            try:
                host.colour
                assert False
            except AttributeError:
                pass
            try:
                api.hosts.list(query='colour=red')
                assert False
            except RequestError:
                pass
            assert [host.id for host in api.hosts.list('cpu_usage>50')] == ['a']
            assert [vm.id for vm in api.vms.list('host=hb')] == ['w'] and len(api.vms.list()) == 6
            assert api.vms.list('name=vm0')[0].get_host().get_id() == 'a'
            assert api.vms.get(name='nobody') is None and api.hosts.get(id='nobody') is None
            api.disconnect()
            print(hosts)
"""
KEEPS = """
    import os
    seen = []

    class Keeps:
        def do_filter(self, hosts, vm, args):
            seen.append(vm)
            print(hosts[: len(seen)])

    class Dies:
        def do_filter(self, hosts, vm, args):
            os._exit(4)

    class Hangs:
        def do_filter(self, hosts, vm, args):
            while True:
                try:
                    while True: pass
                except BaseException:
                    pass

    class Resident:
        isolation = 'resident'
        count = []
        def do_filter(self, hosts, vm, args):
            self.count.append(vm)
            print(hosts[: len(self.count)])
"""


class PrintingTest(HostCase):
    files = {"printing.py": PRINTING, "keeps.py": KEEPS}

    def test_discover(self):
        found = {unit["name"]: unit for unit in self.host.call("discover")["units"]}
        self.assertEqual(self.host.call("discover")["problems"], [])
        self.assertEqual(found["Filter"]["description"], {"filter": "What the class says."})
        self.assertEqual(found["Score"]["description"], {"score": "What the method says."})
        styles = {name: found[name]["style"] for name in ("Filter", "Keeps", "Resident")}
        self.assertEqual(styles, {"Filter": "ovirt", "Keeps": "ovirt-fresh", "Resident": "ovirt"})

    def test_results(self):
        self.assertEqual(self.ask("filter", "Filter")["ok"], {"hosts": "001"})
        self.assertEqual(
            self.ask("filter", "Filter", properties={"most": "2"}, hosts="11")["ok"], {"hosts": "010"}
        )
        answer = self.ask("score", "Score")
        self.assertEqual((answer["ok"], answer["output"]), ({"scores": [4, 0, 0]}, "debugging"))
        for unit in ("Loose", "Strict"):
            self.assertEqual(
                self.ask("balance", unit)["ok"], {"action": "migrate", "vm": "v0", "hosts": [1, 2]}
            )
        self.assertEqual(self.ask("balance", "Nothing")["ok"], {"action": None})
        self.assertEqual(self.ask("filter", "Returns")["ok"], {"hosts": "100"})

    def test_changes_by_the_sdk(self):
        night = self.ask("balance", "Night", properties={"hour": "20"}, hosts="11")["ok"]
        stops = [{"action": "stop", "vm": vm} for vm in ("v0", "v1", "v2", "v3")]
        rests = [{"action": "deactivate", "host": slot} for slot in (0, 1)]
        expected = [*stops, rests[0], {"action": "stop", "vm": "w"}, rests[1]]
        self.assertEqual(night, {"action": None, "actions": expected})
        morning = self.ask("balance", "Night", properties={"hour": "8"})["ok"]["actions"]
        self.assertEqual(morning, [{"action": "activate", "host": slot} for slot in range(3)])
        moves = [
            {"action": "migrate", "vm": "v1", "hosts": [2]},
            {"action": "migrate", "vm": "v2", "hosts": [1, 2]},
            {"action": "sleep", "host": 1},
        ]
        self.assertEqual(self.ask("balance", "Acts")["ok"], {"action": None, "actions": moves})
        evening = [
            {"action": "stop", "vm": "w"},
            {"action": "deactivate", "host": 1},
            {"action": "sleep", "host": 1},
            {"action": "wake", "host": 2},
            {"action": "activate", "host": 2},
            {"action": "migrate", "vm": "v3", "hosts": [2]},
        ]
        self.assertEqual(self.ask("balance", "Evening")["ok"], {"action": None, "actions": evening})
        # Nothing that was asked for before a call that is not answered happens.
        calls = {
            "vm.start": "stop(), shutdown() and migrate() of a VM",
            "vm.suspend": "stop(), shutdown() and migrate() of a VM",
            "vm.delete": "stop(), shutdown() and migrate() of a VM",
            "host.install": "activate(), deactivate() and fence() of a host",
            "host.update": "activate(), deactivate() and fence() of a host",
        }
        for call, answered in calls.items():
            failed = self.failed("balance", "Unanswered", "exception", properties={"call": call})
            self.assertIn(f"{call.split('.')[1]}() is not answered here; {answered} are", failed["text"])
        restart = self.failed("balance", "Unanswered", "exception", properties={"call": "host.fence"})
        self.assertIn("it may be 'start', 'stop' or 'status'", restart["text"])
        self.assertIn("only a balancer", self.failed("filter", "Meddles", "exception")["text"])

    def test_failures(self):
        self.assertEqual(self.failed("filter", "Complains", "exception")["text"], "no connection")
        self.assertIn("printed nothing", self.failed("filter", "Nothing", "result")["text"])
        self.assertIn("<html>", self.failed("filter", "Garbage", "result")["text"])
        self.failed("score", "Garbage", "result")
        self.failed("balance", "Garbage", "result")
        self.failed("filter", "Stranger", "result")
        self.failed("filter", "Stranger", "result", ids=["a"], vm_id="v0")

    def test_the_sdk(self):
        self.assertEqual(self.ask("filter", "Figures")["ok"], {"hosts": "111"})

    def test_fresh_processes_keep_nothing(self):
        for _ in range(2):
            self.assertEqual(self.ask("filter", "Keeps")["ok"], {"hosts": "100"})
        self.assertEqual([self.ask("filter", "Resident")["ok"]["hosts"] for _ in range(2)], ["100", "110"])
        self.assertIn("status 4", self.failed("filter", "Dies", "exit")["text"])
        self.failed("filter", "Hangs", "time", limit_ms=100)
        self.assertEqual(self.ask("filter", "Filter")["ok"], {"hosts": "001"})


PROXY = """
    import sys
    class Even:
        '''The hosts of even place.'''
        properties_validation = 'x=[0-9]'
        def do_filter(self, hosts, vm, args): print(hosts[::2])
        def do_score(self, hosts, vm, args): print([(id, place / 2) for place, id in enumerate(hosts)])
        def do_balance(self, hosts, args): print(('some-vm', hosts[:1]))

    class First:
        def do_filter(self, hosts, vm, args): print(hosts[:2])
        def do_score(self, hosts, vm, args): print([(hosts[0], 10)])
        def do_balance(self, hosts, args): pass

    class Fails:
        def do_filter(self, hosts, vm, args): raise Exception('no')
        def do_score(self, hosts, vm, args): raise Exception('no')
        def do_balance(self, hosts, args): raise Exception('no')
"""
IDS = [
    "11111111-1111-1111-1111-111111111111",
    "22222222-2222-2222-2222-222222222222",
    "33333333-3333-3333-3333-333333333333",
]
VM_ID = "44444444-4444-4444-4444-444444444444"


class ProxyTest(HostCase):
    files = {"proxy.py": PROXY}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        server = Server(("localhost", 0), SchedulerProxy(cls.host))
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        cls.addClassCleanup(lambda: (server.shutdown(), thread.join(), server.server_close()))
        cls.port = server.server_address[1]
        cls.proxy = xmlrpc.client.ServerProxy(f"http://localhost:{cls.port}/")
        cls.addClassCleanup(cls.proxy("close"))

    def test_discover(self):
        found = self.proxy.discover()
        self.assertEqual(sorted(found), ["balance", "filters", "scores"])
        self.assertEqual(sorted(found["filters"]), ["Even", "Fails", "First"])
        self.assertEqual(found["balance"]["Even"], ["The hosts of even place.", "x=[0-9]"])

    def test_filters(self):
        reply = self.proxy.runFilters(["Even", "First"], IDS, VM_ID, {"x": "1"})
        self.assertEqual(reply, {"result_code": 0, "result": IDS[:1]})
        reply = self.proxy.runFilters(["Even", "Fails", "Nobody"], IDS, VM_ID, "")
        self.assertEqual((reply["result_code"], reply["result"]), (1, [IDS[0], IDS[2]]))
        self.assertEqual(reply["plugin_errors"]["Nobody"], ["plugin not found: 'Nobody'"])
        self.assertIn("Exception: no", reply["plugin_errors"]["Fails"][0])
        reply = self.proxy.runFilters(["Fails"], IDS, VM_ID, {})
        self.assertEqual((reply["result"], reply["errors"]), (IDS, ["all filters failed"]))

    def test_cost_functions(self):
        reply = self.proxy.runCostFunctions([["Even", 2], ["First", 3]], IDS, VM_ID, {})
        self.assertEqual(reply, {"result_code": 0, "result": [[IDS[0], 30], [IDS[1], 1], [IDS[2], 2]]})
        reply = self.proxy.runCostFunctions([["Fails", 1]], IDS, VM_ID, {})
        self.assertEqual((reply["result_code"], reply["result"]), (1, []))

    def test_load_balancing(self):
        reply = self.proxy.runLoadBalancing("Even", IDS, {})
        self.assertEqual(reply, {"result_code": 0, "result": ["some-vm", IDS[:1]]})
        self.assertEqual(self.proxy.runLoadBalancing("First", IDS, {})["result"], ["", []])
        self.assertEqual(self.proxy.runLoadBalancing("Fails", IDS, {})["result"], ["", []])
        reply = self.proxy.runLoadBalancing("Nobody", IDS, {})
        self.assertEqual((reply["result_code"], reply["result"]), (1, []))

    def test_wrong_calls(self):
        with self.assertRaises(xmlrpc.client.Fault):
            self.proxy.runFilters(7, IDS, VM_ID, {})
        with self.assertRaises(xmlrpc.client.Fault):
            self.proxy.runEverything()
        import http.client

        for headers in (
            {"Content-Type": "text/plain"},
            {"Content-Type": "text/xml", "Content-Length": str(1 << 40)},
        ):
            connection = http.client.HTTPConnection("localhost", self.port, timeout=20)
            connection.request("POST", "/", b"", headers)
            self.assertIn(connection.getresponse().status, (413, 415))
            connection.close()

    @staticmethod
    def filters_of(hosts):
        names = "<array><data><value><string>Even</string></value></data></array>"
        given = (names, hosts, "<string>v</string>", "<struct></struct>")
        values = "".join(f"<param><value>{value}</value></param>" for value in given)
        return f"<methodCall><methodName>runFilters</methodName><params>{values}</params></methodCall>"

    def test_bombs(self):
        from http.client import HTTPConnection

        laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
        call = "<methodCall><methodName>discover</methodName><params>{}</params></methodCall>"
        value = "<param><value><string>{}</string></value></param>"
        many = value.format("x") * 100_000
        bombs = {
            "laughs": f'<!DOCTYPE m [<!ENTITY l0 "ha">{laughs}]>' + call.format(value.format("&l9;")),
            "quadratic": f'<!DOCTYPE m [<!ENTITY a "{"a" * 50_000}">]>'
            + call.format(value.format("&a;" * 50_000)),
            "outside": '<!DOCTYPE m [<!ENTITY f SYSTEM "file:///etc/passwd">]>'
            + call.format(value.format("&f;")),
            "elements": call.format("<param/>" * 1_000_001),
            "deep": "<methodCall><params>" + "<value><array><data>" * 100_000,
            "deep and closed": self.filters_of(
                "<array><data><value>" * 60_000 + "<int>1</int>" + "</value></data></array>" * 60_000
            ),
            "deep structs": self.filters_of(
                "<struct><member><name>a</name><value>" * 40_000
                + "<int>1</int>"
                + "</value></member></struct>" * 40_000
            ),
            "an array of nothing": self.filters_of(
                f"<array><data>{'<value><nil/></value>' * 200_000}</data></array>"
            ),
            "twice": call.format("") * 2,
            "number": call.format(f"<param><value><int>{'9' * 1_000_000}</int></value></param>"),
            "arguments": call.format(many),
            "garbage": "\x00\x01",
            "nothing": "",
        }
        for name, text in bombs.items():
            for data in (text.encode(), ('<?xml version="1.0" encoding="utf-16"?>' + text).encode("utf-16")):
                with self.subTest(name):
                    connection = HTTPConnection("localhost", self.port, timeout=60)
                    connection.request("POST", "/", data[: 8 << 20], {"Content-Type": "text/xml"})
                    reply = connection.getresponse()
                    self.assertIn(b"faultString", reply.read()[:2000])
                    connection.close()
        self.assertIn("filters", self.proxy.discover())

    def test_an_inventory_file(self):
        path = os.path.join(self.folder, "inventory.json")
        with open(path, "w") as file:
            file.write('{"hosts": [{"id": "h"}], "vms": [{"id": "v", "host": "h"}]}')
        inventory = InventoryFile(path, self.host)
        self.assertIsNone(inventory.refresh())
        with open(path, "w") as file:
            file.write('{"hosts": [{"id": "h"}], "vms": [{"id": "v", "host": "nowhere"}]}')
        self.assertIn("there is no host 'nowhere'", inventory.refresh())
        self.assertIsNone(inventory.refresh())


class Samples:
    """oVirt's own samples, if `RINGWAY_OVIRT_SAMPLES` names their folder (`doc/plugin_samples` of
    ovirt-scheduler-proxy)."""

    EXPECTED = {
        ("filter", "max_vms", "maximum_vm_count=2"): {"hosts": "011"},
        ("filter", "max_vms", ""): {"hosts": "111"},
        ("score", "even_vm_distribution", ""): {"scores": [4, 1, 0]},
        ("score", "ksm_same_os_score", ""): {"scores": [100, 0, 0]},
        ("balance", "vm_balance", "maximum_vm_count=2"): {"action": "migrate", "vm": "v0", "hosts": [1, 2]},
        ("balance", "vm_balance", ""): {"action": None},
        ("balance", "host_memory_balance", ""): {"action": "migrate", "vm": "v0", "hosts": [1, 2]},
    }

    def test_samples_run_as_they_are(self):
        folder = os.environ["RINGWAY_OVIRT_SAMPLES"]
        self.assertTrue(glob.glob(os.path.join(folder, "*.py")))
        with PluginHost(folder, stderr=subprocess.DEVNULL) as host:
            self.assertEqual(host.call("discover")["problems"], [])
            host.snapshot(1, HOSTS, VMS)
            for (op, unit, properties), expected in self.EXPECTED.items():
                with self.subTest(unit):
                    about = {} if op == "balance" else {"vm": VM}
                    given = dict([properties.split("=")]) if properties else {}
                    self.assertEqual(host.call(op, unit=unit, properties=given, **about), expected)


if os.environ.get("RINGWAY_OVIRT_SAMPLES"):

    class SamplesTest(Samples, unittest.TestCase):
        pass


if __name__ == "__main__":
    unittest.main()
