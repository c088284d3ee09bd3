"""Validation of units' results."""

import unittest

from ringway.placement.inventory import Inventory
from ringway.plugin_host import verdict
from ringway.plugin_host.failure import Failure


class AcceptedTest(unittest.TestCase):
    def setUp(self):
        self.inventory = Inventory()
        hosts = [{"slot": slot, "id": f"h{slot}"} for slot in range(4)]
        self.inventory.snapshot({"revision": 1, "hosts": hosts, "vms": []})

    def accepted(self, result, hosts):
        return verdict.accepted(result, hosts, self.inventory)

    def test_all_candidates_are_returned_as_they_are(self):
        hosts = self.inventory.hosts
        self.assertIs(self.accepted(list(hosts), hosts), hosts)
        self.assertIs(self.accepted((host for host in hosts), hosts), hosts)

    def test_others_are_compared(self):
        hosts = self.inventory.hosts
        self.assertEqual(self.accepted(hosts[::-1], hosts), list(hosts[::-1]))
        self.assertEqual(self.accepted([hosts[0], hosts[0]], hosts[:2]), [hosts[0], hosts[0]])
        self.assertEqual(self.accepted(["h1"], hosts), [hosts[1]])
        with self.assertRaises(Failure):
            self.accepted([hosts[0], hosts[3]], hosts[:2])


if __name__ == "__main__":
    unittest.main()
