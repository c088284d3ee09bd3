"""The plugin host by its protocol: results of typed units, and their faults."""

import json
import os
import subprocess
import tempfile
import time
import unittest

from ringway.plugin_client import PROGRAM, PluginError, PluginHost

from .support import HOSTS, VM, VMS, HostCase, put, until

TYPED = """
    from ringway.placement import Activate, Balancer, Deactivate, Filter, Migrate, Score, Sleep, Stop, Unit
    from ringway.placement import Wake

    class Few(Filter):
        '''Few VMs.'''
        properties_validation = "most=[0-9]+"

        def do_filter(self, hosts, vm, args):
            '''Hosts with fewer than `most` VMs.'''
            print("looking at", len(hosts))
            for host in hosts:
                if host.vms_active:
                    self.why(host, f"has {host.vms_active} VMs")
            return [host for host in hosts if host.vms_active < int(args.get("most", "1"))]

    class Ids(Filter):
        def do_filter(self, hosts, vm, args):
            return (host.id for host in hosts)

    class InOrder(Score):
        def do_score(self, hosts, vm, args):
            return [None if host.id == "b" else host.cpu_load for host in hosts]

    class Pairs(Score):
        def do_score(self, hosts, vm, args):
            return [(hosts[0], 1), ("c", 2.5)]

    class Table(Score):
        def do_score(self, hosts, vm, args):
            return {host: self.random.random() for host in hosts}

    class Clock(Balancer):
        def do_balance(self, hosts, args):
            match args.get("what"):
                case "move": return Migrate(self.inventory.vm("v0"), hosts[1:], "busy")
                case "sleep": return Sleep("c")
                case "wake": return Wake(hosts[2], f"at {self.now.timestamp()}")
                case "night": return [Stop("v0", "late"), Deactivate("a"), Activate(hosts[1])]

    class Seldom(Filter):
        calls = 0
        def do_filter(self, hosts, vm, args):
            self.calls += 1
            return hosts[self.calls - 1:]
"""


class TypedTest(HostCase):
    files = {"typed.py": TYPED}

    def test_discover(self):
        found = {unit["name"]: unit for unit in self.host.call("discover")["units"]}
        few = found["Few"]
        self.assertEqual(sorted(found), ["Clock", "Few", "Ids", "InOrder", "Pairs", "Seldom", "Table"])
        self.assertEqual(few["kinds"], ["filter"])
        self.assertEqual(few["description"], {"filter": "Hosts with fewer than `most` VMs."})
        self.assertEqual(
            (few["properties"], few["style"], few["file"]), ("most=[0-9]+", "typed", "typed.py")
        )
        self.assertEqual(self.host.call("discover")["problems"], [])

    def test_the_first_line_says_what_confines_plugins(self):
        self.assertEqual(self.host.hello["ringway_plugin_host"], 1)
        self.assertTrue(self.host.hello["sandbox"]["seccomp"])

    def test_filter(self):
        answer = self.ask("filter", "Few", properties={"most": "2"})
        self.assertEqual(answer["ok"], {"hosts": "011"})
        self.assertEqual(answer["output"], "looking at 3")
        self.assertEqual(self.ask("filter", "Few", hosts="11")["ok"], {"hosts": "000"})
        self.assertEqual(self.ask("filter", "Ids", hosts="01")["ok"], {"hosts": "010"})

    def test_reasons(self):
        answer = self.ask("filter", "Few", explain=True)
        self.assertEqual(answer["ok"], {"hosts": "001", "reasons": {"0": "has 4 VMs", "1": "has 1 VMs"}})

    def test_score(self):
        self.assertEqual(self.ask("score", "InOrder")["ok"], {"scores": [95, None, 10]})
        self.assertEqual(self.ask("score", "Pairs", hosts="101")["ok"], {"scores": [1, 2.5]})
        again = [self.ask("score", "Table", seed=seed)["ok"]["scores"] for seed in (7, 7, 8)]
        self.assertEqual(again[0], again[1])
        self.assertNotEqual(again[0], again[2])

    def test_balance(self):
        move = self.ask("balance", "Clock", properties={"what": "move"})["ok"]
        self.assertEqual(move, {"action": "migrate", "vm": "v0", "hosts": [1, 2], "reason": "busy"})
        self.assertEqual(
            self.ask("balance", "Clock", properties={"what": "sleep"})["ok"], {"action": "sleep", "host": 2}
        )
        wake = self.ask("balance", "Clock", properties={"what": "wake"}, now=5.5)["ok"]
        self.assertEqual(wake, {"action": "wake", "host": 2, "reason": "at 5.5"})
        night = [
            {"action": "stop", "vm": "v0", "reason": "late"},
            {"action": "deactivate", "host": 0},
            {"action": "activate", "host": 1},
        ]
        answer = self.ask("balance", "Clock", properties={"what": "night"})["ok"]
        self.assertEqual(answer, {"action": None, "actions": night})
        self.assertEqual(self.ask("balance", "Clock")["ok"], {"action": None})

    def test_hosts_by_id(self):
        answer = self.ask("filter", "Few", ids=["c", "a", "stranger"], vm_id="v1")
        self.assertEqual(answer["ok"]["ids"], ["c", "stranger"])
        self.assertEqual(
            self.ask("score", "InOrder", ids=["c", "stranger", "a"], vm_id="v1")["ok"],
            {"scores": [10, None, 95]},
        )

    def test_a_unit_keeps_itself(self):
        verdicts = [self.ask("filter", "Seldom")["ok"]["hosts"] for _ in range(3)]
        self.assertEqual(verdicts, ["111", "011", "001"])

    def test_deltas_reach_units(self):
        self.host.call("delta", **{"from": 1}, revision=2, gone_vms=["v0", "v1", "v2", "v3"])
        self.assertEqual(self.ask("filter", "Few", revision=2)["ok"], {"hosts": "101"})
        self.failed("filter", "Few", "revision", revision=1)
        with self.assertRaises(PluginError) as raised:
            self.host.call("delta", **{"from": 1}, revision=3)
        self.assertEqual(raised.exception.kind, "revision")

    def test_wrong_requests(self):
        self.failed("filter", "Nobody", "unit")
        self.failed("score", "Few", "unit")
        self.failed("filter", "Few", "property", properties={"most": "x"})
        self.failed("filter", "Few", "request", properties={"most": 1})
        self.failed("filter", "Few", "request", hosts="1111")
        self.failed("filter", "Few", "request", hosts=[1])
        self.failed("filter", "Few", "request", vm=None)
        self.failed("filter", "Few", "request", now=1e300)
        self.assertEqual(self.host.ask("dance")["error"]["kind"], "request")


class LinesTest(unittest.TestCase):
    def test_lines_that_are_none(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [PROGRAM, "plugin-host", folder]
            lines = [
                b"garbage",
                b"[]",
                b"{}",
                b'{"id":true,"op":"discover"}',
                b"\xff",
                b"[" * 100_000,
                b"x" * (9 << 20),
                b"",
            ]
            lines += [b'{"id":1,"op":"discover"}']
            done = subprocess.run(command, input=b"\n".join(lines) + b"\n", capture_output=True, timeout=60)
        answers = [json.loads(line) for line in done.stdout.splitlines()][1:]
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([answer["id"] for answer in answers], [None] * 7 + [1])
        self.assertEqual({answer["error"]["kind"] for answer in answers[:7]}, {"request"})
        self.assertEqual(answers[7]["ok"]["units"], [])

    def test_no_folder(self):
        command = [PROGRAM, "plugin-host", "/nonexistent"]
        done = subprocess.run(command, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"there is no folder", done.stderr)


HOSTILE = """
    import os, socket, subprocess, sys, threading, time
    from ringway.placement import Balancer, Filter, Migrate, Score, Sleep

    class Hostile(Filter, Score, Balancer):
        def do_filter(self, hosts, vm, args):
            return getattr(self, args["do"])(hosts)

        def do_score(self, hosts, vm, args):
            return eval(args["give"])

        def do_balance(self, hosts, args):
            return eval(args["give"])

        def hang(self, hosts):
            while True:
                pass

        def hang_on(self, hosts):
            while True:
                try:
                    time.sleep(10)
                except BaseException:
                    pass

        def exit(self, hosts):
            sys.exit(3)

        def exit_now(self, hosts):
            os.write(2, b"good bye")
            os._exit(3)

        def abort(self, hosts):
            os.abort()

        def eat(self, hosts):
            kept = []
            while True:
                kept.append(bytearray(1 << 20))

        def raises(self, hosts):
            raise KeyError("vms")

        def says_much(self, hosts):
            for _ in range(100):
                print("x" * 100_000)
                print("x" * 100_000, file=sys.stderr)
                os.write(1, b"y" * 4096)
            return hosts

        def stranger(self, hosts):
            return ["nobody"]

        def not_asked(self, hosts):
            return self.inventory.hosts

        def none(self, hosts):
            return None

        def text(self, hosts):
            return "abc"

        def endless(self, hosts):
            while True:
                yield hosts[0]

        def forges(self, hosts):
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, b'{"id":1,"ok":{"hosts":"111"}}\\n')
                except OSError:
                    pass
            return hosts

        def surrogate(self, hosts):
            raise ValueError("\\ud800")

        def denied(self, hosts):
            tried = {
                "fork": os.fork,
                "exec": lambda: os.execv("/bin/true", ["true"]),
                "run": lambda: subprocess.run(["/bin/true"]),
                "connect": lambda: socket.create_connection(("127.0.0.1", 1)),
                "unix": lambda: socket.socket(socket.AF_UNIX),
                "kill": lambda: os.kill(os.getppid(), 9),
                "kill group": lambda: os.kill(0, 9),
                "read": lambda: open("/etc/passwd"),
                "write here": lambda: open("new.py", "w").write("x"),
                "write": lambda: open("/tmp/ringway-test", "w").write("x"),
                "remove": lambda: os.remove("hostile.py"),
                "chmod": lambda: os.chmod("hostile.py", 0),
                "mkdir": lambda: os.mkdir("/tmp/ringway-test"),
                "session": os.setsid,
            }
            for name, call in tried.items():
                try:
                    call()
                except OSError:
                    continue
                print("could", name)
            threading.Thread(target=int).start()
            print("stdin:", repr(os.read(0, 10)), "environment:", sorted(os.environ))
            return hosts
"""


class HostileTest(HostCase):
    files = {
        "hostile.py": HOSTILE,
        "good.py": "class Good:\n    def do_filter(self, hosts, vm, args):\n        print(hosts)\n",
    }
    arguments = ["--memory", "128"]

    def setUp(self):
        self.renew()
        super().setUp()

    def tearDown(self):
        # After any unit's fault, the next one answers.
        self.assertEqual(self.ask("filter", "Good")["ok"], {"hosts": "111"})

    def does(self, what, kind, **fields):
        return self.failed("filter", "Hostile", kind, properties={"do": what}, limit_ms=300, **fields)

    def test_hangs(self):
        begin = time.monotonic()
        self.does("hang", "time")
        self.does("hang_on", "time")
        self.assertLess(time.monotonic() - begin, 10)

    def test_ends(self):
        self.assertEqual(self.does("exit", "exit")["where"], "hostile.py:27")
        answer = self.ask("filter", "Hostile", properties={"do": "exit_now"})
        self.assertEqual(answer["error"], {"kind": "exit", "text": "its process exited with status 3"})
        self.assertEqual(answer["output"], "good bye")
        self.assertIn("its process was ended by", self.does("abort", "exit")["text"])

    def test_eats_memory(self):
        self.failed("filter", "Hostile", "memory", properties={"do": "eat"}, limit_ms=20_000)

    def test_raises(self):
        self.assertEqual(self.does("raises", "exception")["text"], "KeyError: 'vms'")
        self.assertEqual(self.does("surrogate", "exception")["text"], "ValueError: ?")

    def test_says_much(self):
        answer = self.ask("filter", "Hostile", properties={"do": "says_much"}, limit_ms=20_000)
        self.assertEqual(answer["ok"], {"hosts": "111"})
        self.assertLessEqual(len(answer["output"]), 4096)

    def test_wrong_verdicts(self):
        self.assertIn("'nobody', which is no host", self.does("stranger", "result")["text"])
        self.assertIn("not among the candidates", self.does("not_asked", "result", hosts="1")["text"])
        self.does("none", "result")
        self.does("text", "result")
        for given in (
            "None",
            "'abc'",
            "[1]",
            "[1, 2, 'x']",
            "[1, 2, float('nan')]",
            "[1, 2, 1 << 80]",
            "[True] * 3",
        ):
            self.failed("score", "Hostile", "result", properties={"give": given})
        for given in ("[('nobody', 1)]", "[('c', 1)]", "[('a', 1, 2)]", "{'a': 'x'}"):
            self.failed("score", "Hostile", "result", properties={"give": given}, hosts="11")
        for given in (
            "1",
            "Migrate('nobody', hosts)",
            "Migrate('v0', ['nobody'])",
            "Migrate('v0', None)",
            "Sleep(3)",
            "[Sleep('a'), 3]",
            "[[]]",
        ):
            self.failed("balance", "Hostile", "result", properties={"give": given})

    def test_an_endless_answer(self):
        answer = self.ask("filter", "Hostile", properties={"do": "endless"}, limit_ms=2000)
        self.assertIn(answer["error"]["kind"], ("result", "time"))

    def test_a_forged_answer_is_seen(self):
        self.does("forges", "result")

    def test_what_it_may_not(self):
        answer = self.ask("filter", "Hostile", properties={"do": "denied"}, limit_ms=5000)
        output = answer["output"].splitlines()
        environment = "stdin: b'' environment: ['HOME', 'LANG', 'MKL_NUM_THREADS', 'OMP_NUM_THREADS', "
        self.assertEqual(len(output), 1, output)
        self.assertTrue(output[0].startswith(environment), output)

    def test_who_breaks_workers_rests(self):
        for _ in range(3):
            self.does("exit_now", "exit")
        self.assertIn("is suspended for another", self.does("raises", "resting")["text"])


class LoadTest(HostCase):
    files = {
        "a_good.py": "class Good:\n    def do_filter(self, hosts, vm, args):\n        print(hosts)\n",
        "broken.py": "x = 1\ndef broken(:\n",
        "exits.py": "import os\nos._exit(1)\n",
        "raises.py": "import nothing_like_this\n",
        "quits.py": "raise SystemExit\n",
        "twice.py": "class Good:\n    def do_score(self, hosts, vm, args):\n        print([])\n",
        "validation.py": "class Odd:\n    properties_validation = 'a=['\n    def do_score(self, *_): pass\n",
        "not-a-module.py": "",
        "imports.py": "from a_good import Good\nimport helper\nclass Also(Good):\n    pass\n",
        "helper.py": "",
    }

    def test_load_errors_are_reported_and_the_rest_continues(self):
        found = self.host.call("discover")
        self.assertEqual(sorted(unit["name"] for unit in found["units"]), ["Also", "Good"])
        problems = {problem["file"]: (problem["line"], problem["text"]) for problem in found["problems"]}
        self.assertEqual(
            sorted(problems),
            [
                "broken.py",
                "exits.py",
                "not-a-module.py",
                "quits.py",
                "raises.py",
                "twice.py",
                "validation.py",
            ],
        )
        self.assertEqual(problems["broken.py"][0], 2)
        self.assertIn("exited with status 1", problems["exits.py"][1])
        self.assertEqual(
            problems["raises.py"], (1, "ModuleNotFoundError: No module named 'nothing_like_this'")
        )
        self.assertIn("Good is in a_good.py already", problems["twice.py"][1])
        self.assertIn("Odd.properties_validation: a: '['", problems["validation.py"][1])
        self.assertEqual(self.ask("filter", "Also")["ok"], {"hosts": "111"})


class ReloadTest(HostCase):
    files = {
        "one.py": "class One:\n    def do_filter(self, hosts, vm, args):\n        print(hosts[:1])\n",
        "two.py": "class Two:\n    def do_filter(self, hosts, vm, args):\n        print(hosts[:2])\n",
    }

    def changed(self, name, text):
        generation = self.host.call("discover")["generation"]
        put(self.folder, name, text)
        self.assertTrue(until(lambda: self.host.call("discover")["generation"] > generation))

    def test_a_changed_file_is_taken_over(self):
        self.changed("one.py", self.files["one.py"].replace("hosts[:1]", "hosts[1:]"))
        self.assertIn("units", [event.get("event") for event in self.host.events])
        self.assertEqual(self.ask("filter", "One")["ok"], {"hosts": "011"})
        self.changed("one.py", "class One:\n    def broken(:\n")
        problem = self.host.call("discover")["problems"][0]
        self.assertIn("previous version stays in use", problem["text"])
        self.assertEqual((problem["file"], problem["line"]), ("one.py", 2))
        self.assertEqual(self.ask("filter", "One")["ok"], {"hosts": "011"})
        os.remove(os.path.join(self.folder, "two.py"))
        self.changed("one.py", self.files["one.py"])
        self.assertEqual(self.ask("filter", "One")["ok"], {"hosts": "100"})
        self.failed("filter", "Two", "unit")


if __name__ == "__main__":
    unittest.main()
