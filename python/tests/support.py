"""Shared by tests: a folder of plugins, a running plugin host, a small inventory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import textwrap
import time
import unittest
from typing import Any, Callable

from ringway.plugin_client import PluginHost

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "plugins")

HOSTS = [
    {
        "slot": 0,
        "id": "a",
        "name": "ha",
        "memory": 8000,
        "memory_free": 100,
        "cpu_threads": 8,
        "cpu_load": 95,
    },
    {
        "slot": 1,
        "id": "b",
        "name": "hb",
        "memory": 8000,
        "memory_free": 6000,
        "cpu_threads": 8,
        "cpu_load": 20,
    },
    {
        "slot": 2,
        "id": "c",
        "name": "hc",
        "memory": 8000,
        "memory_free": 7000,
        "cpu_threads": 8,
        "cpu_load": 10,
    },
]
VMS = [
    {"id": f"v{index}", "name": f"vm{index}", "host": 0, "memory": 500 + index, "os_type": "rhel"}
    for index in range(4)
] + [{"id": "w", "name": "vmw", "host": 1, "memory": 100, "os_type": "win"}]
VM = {"id": "x", "name": "new", "memory": 100, "os_type": "rhel"}


class HostCase(unittest.TestCase):
    """A plugin host per test class, with the plugins of `files`."""

    files: dict[str, str] = {}
    arguments: list[str] = []
    folder: str
    host: PluginHost

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = temporary.name
        for name, text in cls.files.items():
            put(cls.folder, name, text)
        cls.host = PluginHost(cls.folder, cls.arguments, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.host.close)

    def setUp(self) -> None:
        self.host.snapshot(1, HOSTS, VMS)

    def renew(self) -> None:
        """Restarts the workers, by a changed file."""
        generation = self.host.call("discover")["generation"]
        put(self.folder, "good.py", self.files["good.py"] + f"# {time.monotonic_ns()}\n")
        if not until(lambda: self.host.call("discover")["generation"] > generation):
            self.fail("a changed file is not seen")

    def ask(self, op: str, unit: str, **fields: Any) -> dict[str, Any]:
        """A unit's result for the VM to be placed."""
        if op != "balance" and "vm_id" not in fields:
            fields.setdefault("vm", VM)
        return self.host.ask(op, unit=unit, **fields)

    def failed(self, op: str, unit: str, kind: str, **fields: Any) -> dict[str, Any]:
        """A result that must be an error of this kind; returns the error."""
        answer = self.ask(op, unit, **fields)
        self.assertIn("error", answer)
        self.assertEqual(answer["error"]["kind"], kind, answer)
        error: dict[str, Any] = answer["error"]
        return error


def put(folder: str, name: str, text: str) -> None:
    """Writes a plugin's file atomically, as an editor does."""
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(text))
    os.replace(path + ".new", path)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether a condition becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
