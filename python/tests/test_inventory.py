import random
import unittest

from ringway.placement.inventory import Inventory, WrongRevision, vm_of
from ringway.placement.wire import Wrong


def snapshot(hosts, vms=(), revision=1, last=True):
    return {"revision": revision, "last": last, "hosts": list(hosts), "vms": list(vms)}


class InventoryTest(unittest.TestCase):
    def setUp(self):
        self.inventory = Inventory()
        hosts = [{"slot": 0, "id": "a", "memory": 100}, {"slot": 2, "id": "c"}]
        self.inventory.snapshot(snapshot(hosts, [{"id": "v", "host": 2}]))

    def test_hosts_have_their_vms(self):
        host = self.inventory.host("c")
        self.assertEqual([vm.id for vm in host.vms], ["v"])
        self.assertEqual((host.vms_active, host.vms_total), (1, 1))
        self.assertEqual(self.inventory.vm("v").host, "c")
        self.assertEqual([host.slot for host in self.inventory.hosts], [0, 2])

    def test_a_delta_changes_what_it_names(self):
        before = self.inventory.host("a")
        self.inventory.delta(
            {
                "from": 1,
                "revision": 5,
                "hosts": [{"slot": 2, "cpu_load": 7}],
                "vms": [{"id": "v", "host": 0}],
            }
        )
        self.assertEqual(self.inventory.revision, 5)
        self.assertEqual(self.inventory.host("a").memory, 100)
        self.assertEqual([vm.id for vm in self.inventory.host("a").vms], ["v"])
        self.assertEqual(before.vms, (), "what a unit got earlier stays as it was")
        self.assertEqual(self.inventory.host("c").cpu_load, 7)
        self.assertEqual(self.inventory.host("c").vms, ())

    def test_a_wrong_delta_changes_nothing(self):
        wrong = [
            {"hosts": [{"slot": 0, "memory": "much"}]},
            {"hosts": [{"slot": 0, "cpu_load": float("inf")}]},
            {"hosts": [{"slot": -1, "id": "d"}]},
            {"hosts": [{"slot": 1 << 40, "id": "d"}]},
            {"hosts": [{"slot": 1}]},
            {"hosts": [{"slot": 1, "id": "a"}]},
            {"hosts": [{"slot": 0, "id": "other"}]},
            {"hosts": [{"slot": 1, "id": "d"}, {"slot": 3, "id": "d"}]},
            {"hosts": {"slot": 1}},
            {"hosts": [7]},
            {"hosts": [{"slot": 0, "facts": {"x": []}}]},
            {"hosts": [{"slot": 0, "huge_pages": {"big": {}}}]},
            {"vms": [{"id": "w", "host": 1}]},
            {"vms": [{"host": 1}]},
            {"vms": [{"id": "w", "properties": {"a": 1}}]},
            {"gone_hosts": ["a"]},
            {"gone_vms": [1]},
            {"gone_hosts": [2], "vms": [{"id": "w", "host": 2}]},
        ]
        for delta in wrong:
            with self.subTest(delta):
                before = dict(self.inventory.by_id), dict(self.inventory.vms), list(self.inventory.slots)
                with self.assertRaises(Wrong):
                    self.inventory.delta({"from": 1, "revision": 2, **delta})
                self.assertEqual(before, (self.inventory.by_id, self.inventory.vms, self.inventory.slots))
                self.assertEqual(self.inventory.revision, 1)

    def test_another_revision_is_refused(self):
        with self.assertRaises(WrongRevision):
            self.inventory.delta({"from": 3, "revision": 4})

    def test_null_is_the_default(self):
        self.inventory.delta({"from": 1, "revision": 2, "hosts": [{"slot": 0, "memory": None}]})
        self.assertEqual(self.inventory.host("a").memory, 0)

    def test_a_slot_is_used_again(self):
        self.inventory.delta(
            {"from": 1, "revision": 2, "gone_hosts": [2], "hosts": [{"slot": 2, "id": "d"}]}
        )
        self.assertIsNone(self.inventory.host("c"))
        self.assertEqual(self.inventory.host("d").slot, 2)
        self.assertEqual(self.inventory.host("d").vms, ())
        self.assertIsNone(self.inventory.vm("v").host)

    def test_parts_take_effect_together(self):
        self.inventory.snapshot(snapshot([], [{"id": "n", "host": 1}], revision=9, last=False))
        self.assertEqual(self.inventory.revision, 1)
        self.inventory.snapshot(snapshot([{"slot": 1, "id": "b"}], revision=9))
        self.assertEqual(self.inventory.revision, 9)
        self.assertEqual([vm.id for vm in self.inventory.host("b").vms], ["n"])
        self.assertEqual(self.inventory.vm("n").host, "b")
        self.assertIsNone(self.inventory.host("a"))

    def test_masks(self):
        ids = lambda mask: [host.id for host in self.inventory.select(mask)]
        self.assertEqual(ids(None), ["a", "c"])
        self.assertEqual(ids("101"), ["a", "c"])
        self.assertEqual(ids("001"), ["c"])
        self.assertEqual(ids("1"), ["a"])
        self.assertEqual(ids(""), [])
        self.assertEqual(ids("10100"), ["a", "c"])
        for wrong in ("111", "01", "10101", "x", "１"):
            with self.subTest(wrong), self.assertRaises(Wrong):
                self.inventory.select(wrong)

    def test_a_vm_to_be_placed(self):
        vm = vm_of({"id": "x", "memory": 5, "unknown": 1, "host": 3})
        self.assertEqual((vm.name, vm.memory, vm.host), ("x", 5, None))
        with self.assertRaises(Wrong):
            vm_of({"name": "x"})

    def test_any_deltas_lead_where_a_snapshot_leads(self):
        chance = random.Random(1)
        hosts, vms, inventory = {}, {}, Inventory()
        for revision in range(300):
            delta = {
                "from": revision,
                "revision": revision + 1,
                "hosts": [],
                "vms": [],
                "gone_hosts": [],
                "gone_vms": [],
            }
            slot, id = chance.randrange(5), f"v{chance.randrange(9)}"
            if chance.random() < 0.5:
                entry = {"slot": slot, "id": f"h{slot}", "cpu_load": chance.randrange(100)}
                hosts[slot] = {**hosts.get(slot, {}), **entry}
                delta["hosts"].append(entry)
            elif chance.random() < 0.3 and hosts:
                slot = chance.choice(sorted(hosts))
                del hosts[slot]
                vms = {id: {**vm, "host": None} if vm["host"] == slot else vm for id, vm in vms.items()}
                delta["gone_hosts"].append(slot)
            if chance.random() < 0.7:
                vms[id] = {"id": id, "host": chance.choice([*sorted(hosts), None])}
                delta["vms"].append(vms[id])
            elif chance.random() < 0.3:
                vms.pop(id, None)
                delta["gone_vms"].append(id)
            inventory.delta(delta)
            fresh = Inventory()
            fresh.snapshot(snapshot(hosts.values(), vms.values()))
            self.assertEqual(shape(inventory), shape(fresh))


def shape(inventory):
    hosts = {
        host.slot: (host.id, host.cpu_load, sorted(vm.id for vm in host.vms)) for host in inventory.hosts
    }
    return hosts, {vm.id: vm.host for vm in inventory.vms.values()}


if __name__ == "__main__":
    unittest.main()
