"""The plugins of examples/plugins, and the pages that show them."""

import json
import os
import re
import subprocess
import unittest
from datetime import datetime

from ringway.plugin_client import PluginHost

from .support import EXAMPLES

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
NEW = {"id": "new", "memory": 1000, "cpus": 2}


def host(slot, id, vms=0, **more):
    return {"slot": slot, "id": id, "cluster": "c", "cpu_threads": 10, "vms_active": vms, **more}


def at(hour):
    return datetime(2026, 3, 4, hour, 30).timestamp()


class ExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.host = PluginHost(EXAMPLES, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.host.close)

    def verdict(self, op, unit, hosts, vms=(), properties=None, **more):
        self.host.snapshot(1, hosts, vms)
        about = {} if op == "balance" else {"vm": NEW}
        return self.host.call(op, unit=unit, properties=properties or {}, **about, **more)

    def test_all_load(self):
        found = self.host.call("discover")
        self.assertEqual(found["problems"], [])
        names = {unit["name"] for unit in found["units"]}
        tested = {"MaxVms", "Hours", "ActiveVms", "SleepByHour", "RelieveOverloaded", "printed_memory"}
        tested.add("closed_at_night")
        self.assertEqual(names, tested)

    def test_max_vms(self):
        hosts = [host(0, "a", 3), host(1, "b", 2), host(2, "c", 60)]
        self.assertEqual(self.verdict("filter", "MaxVms", hosts), {"hosts": "110"})
        answer = self.verdict("filter", "MaxVms", hosts, properties={"maximum_vms": "3"}, explain=True)
        reasons = {"0": "has 3 VMs, at most 3", "2": "has 60 VMs, at most 3"}
        self.assertEqual(answer, {"hosts": "010", "reasons": reasons})

    def test_hours(self):
        hosts = [
            host(0, "a"),
            host(1, "b", labels=["hours:22-6"]),
            host(2, "c", labels=["fast", "hours:8-18"]),
        ]
        for hour, mask in ((3, "110"), (7, "100"), (8, "101"), (18, "100"), (22, "110"), (6, "100")):
            self.assertEqual(self.verdict("filter", "Hours", hosts, now=at(hour)), {"hosts": mask}, hour)

    def test_active_vms(self):
        hosts = [host(0, "a", 3), host(1, "b", 2, vms_migrating=4)]
        self.assertEqual(self.verdict("score", "ActiveVms", hosts), {"scores": [3, 6]})

    def test_sleep_by_hour(self):
        managed = {"power_managed": True, "memory_free": 4000, "state": "up"}
        hosts = [host(index, f"h{index}", None, **managed) for index in range(3)]
        vms = [{"id": "v", "host": 0, "memory": 100}, {"id": "w", "host": 1, "memory": 100}]
        vms += [{"id": "x", "host": 1, "memory": 5000}]

        def night(**properties):
            answer = self.verdict("balance", "SleepByHour", hosts, vms, properties, now=at(23))
            return {name: answer[name] for name in ("action", "host", "vm", "hosts") if name in answer}

        self.assertEqual(night(), {"action": "sleep", "host": 2})
        hosts[2]["state"] = "down"
        self.assertEqual(night(), {"action": "migrate", "vm": "v", "hosts": [1]})
        self.assertEqual(night(keep_awake="2"), {"action": None})
        vms[0]["migratable"] = False
        self.assertEqual(night(), {"action": None})
        day = self.verdict("balance", "SleepByHour", hosts, vms, now=at(9))
        self.assertEqual((day["action"], day["host"]), ("wake", 2))
        hosts[2]["state"] = "maintenance"
        self.assertEqual(self.verdict("balance", "SleepByHour", hosts, vms, now=at(9)), {"action": None})

    def test_closed_at_night(self):
        hosts = [host(0, "a"), host(1, "b"), host(2, "c", state="maintenance")]
        vms = [{"id": "v", "host": 0}, {"id": "w", "host": 1}]
        closed = {"close": "0", "open": "24"}
        night = self.verdict("balance", "closed_at_night", hosts, vms, closed, ids=["a"])
        expected = [{"action": "stop", "vm": "v"}, {"action": "deactivate", "host": "a"}]
        self.assertEqual(night, {"action": None, "actions": expected})
        day = self.verdict("balance", "closed_at_night", hosts, vms, {"close": "0", "open": "0"})
        self.assertEqual(day["actions"], [{"action": "activate", "host": slot} for slot in range(3)])

    def test_relieve_overloaded(self):
        vms = [{"id": "big", "host": 0, "memory": 900, "cpus": 1, "cpu_load": 50}]
        vms += [{"id": "small", "host": 0, "memory": 100, "cpus": 1, "cpu_load": 50}]
        hosts = [
            host(index, f"h{index}", memory_free=500, cpu_load=load)
            for index, load in enumerate((95, 60, 40, 68))
        ]
        answer = self.verdict("balance", "RelieveOverloaded", hosts, vms)
        self.assertEqual(
            (answer["vm"], answer["hosts"], answer["reason"]), ("small", [2, 1], "h0 is at 95 %")
        )
        calm = self.verdict("balance", "RelieveOverloaded", hosts, vms, {"high": "96"})
        self.assertEqual(calm, {"action": None})
        full = self.verdict("balance", "RelieveOverloaded", [hosts[0], {**hosts[1], "cpu_load": 90}], vms)
        self.assertEqual(full, {"action": None})

    def test_printed_memory(self):
        hosts = [host(0, "a", memory_free=2000), host(1, "b", memory_free=1000)]
        self.assertEqual(self.verdict("filter", "printed_memory", hosts), {"hosts": "10"})
        self.assertEqual(
            self.verdict("filter", "printed_memory", hosts, properties={"memory_floor": "500"}),
            {"hosts": "11"},
        )


class PagesTest(unittest.TestCase):
    def test_the_page_shows_the_examples_as_they_are(self):
        with open(os.path.join(ROOT, "docs", "plugins.md"), encoding="utf-8") as page:
            blocks = re.findall(
                r"`examples/plugins/(\w+\.py)`[^\n]*\n\n```python\n(.*?)```", page.read(), re.DOTALL
            )
        self.assertEqual(len(blocks), 7)
        for name, block in blocks:
            with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
                self.assertEqual(block, file.read(), f"docs/plugins.md shows another {name}")

    def test_the_protocols_examples_are_json(self):
        with open(os.path.join(ROOT, "python", "PROTOCOL.md"), encoding="utf-8") as page:
            blocks = re.findall(r"```json\n(.*?)```", page.read(), re.DOTALL)
        decoder, count = json.JSONDecoder(), 0
        for block in blocks:
            while block.strip():
                value, end = decoder.raw_decode(block.strip())
                self.assertTrue({"id", "event", "ringway_plugin_host"} & value.keys(), value)
                block, count = block.strip()[end:], count + 1
        self.assertGreater(count, 12)


if __name__ == "__main__":
    unittest.main()
