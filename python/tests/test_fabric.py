"""The client of a running fabric's functions."""

import os
import subprocess
import tempfile
import unittest

from ringway.fabric import Fabric, FabricError
from ringway.plugin_client import PROGRAM

FILE = """
[fabric]
name = "python"
[switch.main]
[port.a]
kind = "ring"
socket = "a.sock"
switch = "main"
"""
MIRROR = "FromPort(a) -> EtherMirror -> c :: Counter -> ToPort(a);"


class FunctionCase(unittest.TestCase):
    """A fabric with one port for a function."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        file = os.path.join(temporary.name, "python.toml")
        with open(file, "w", encoding="utf-8") as text:
            text.write(FILE)
        self.environment = {**os.environ, "RINGWAY_RUN": os.path.join(temporary.name, "run")}
        self.run_program("up", file, "--detach")
        self.addCleanup(self.run_program, "down")
        self.fabric = Fabric(os.path.join(temporary.name, "run", "python", "api.sock"))
        self.addCleanup(self.fabric.close)

    def run_program(self, *words):
        subprocess.run([PROGRAM, *words], env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def test_a_function_lives_from_create_to_destroy(self):
        fabric = self.fabric
        fabric.create_function("mirror", MIRROR, ["a"], memory=64 << 20)
        [function] = fabric.functions()
        self.assertEqual((function["name"], function["state"]), ("mirror", "running"))
        self.assertEqual(function["ports"], ["a"])
        self.assertEqual(fabric.read("mirror", "c.count"), "0")
        fabric.write("mirror", "c.reset")
        fabric.update_function("mirror", MIRROR.replace("EtherMirror", "EtherMirror -> d :: Counter"))
        self.assertEqual(fabric.read("mirror", "d.count"), "0")
        graph = fabric.graph("mirror", 0.01)
        self.assertEqual(len(graph["elements"]), 5)
        self.assertEqual(graph["connections"][0]["packets"], 0)
        self.assertTrue(fabric.graph_svg("mirror", 0.01).startswith("<svg "))
        fabric.suspend_function("mirror")
        self.assertEqual(fabric.functions()[0]["state"], "suspended")
        fabric.resume_function("mirror")
        fabric.stop_function("mirror")
        fabric.start_function("mirror")
        fabric.destroy_function("mirror")
        self.assertEqual(fabric.functions(), [])

    def test_refusals_say_why(self):
        with self.assertRaises(FabricError) as refused:
            self.fabric.create_function("mirror", MIRROR.replace("EtherMirror", "EtherMirrot"), ["a"])
        self.assertEqual(refused.exception.status, 422)
        self.assertIn("mirror:1:16: undeclared element 'EtherMirrot'", str(refused.exception))
        with self.assertRaises(FabricError) as refused:
            self.fabric.destroy_function("mirror")
        self.assertEqual(refused.exception.status, 404)
