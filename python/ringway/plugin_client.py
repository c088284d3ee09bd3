"""A client of the plugin host's protocol: starts a plugin host for a folder and sends requests to it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Any, Mapping

from ringway.placement.wire import Wrong, decode

PROGRAM = os.environ.get("RINGWAY", "ringway")
"""The program that confines and starts plugin hosts; searched along `PATH` if it is only a name."""


class PluginError(Exception):
    """A request was answered with an error; `kind` is one of PROTOCOL.md's."""

    def __init__(self, kind: str, text: str, where: str = "") -> None:
        super().__init__(f"{text} ({where})" if where else text)
        self.kind = kind
        self.text = text
        self.where = where


class PluginHost:
    """A running plugin host. Thread-safe; requests are handled one by one."""

    def __init__(
        self, folder: str, arguments: Sequence[str] = (), stderr: int | IO[Any] | None = None
    ) -> None:
        command = [PROGRAM, "plugin-host", folder, *arguments]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        except FileNotFoundError:
            raise PluginError("exit", f"there is no program {PROGRAM}; set RINGWAY to its path") from None
        self._lock = threading.Lock()
        self._id = 0
        self.events: list[dict[str, Any]] = []
        """Received events that were not taken yet."""
        hello = self._read()
        if "ringway_plugin_host" not in hello:
            self.close()
            raise PluginError("exit", "the plugin host did not start")
        self.hello = hello

    def __enter__(self) -> PluginHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """A request's whole answer, or its error."""
        with self._lock:
            self._id += 1
            self._write({"id": self._id, "op": op, **fields})
            while True:
                answer = self._read()
                if not answer:
                    raise PluginError("exit", "the plugin host ended")
                if answer.get("id") == self._id:
                    return answer
                self.events.append(answer)

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """The result of a request; raises `PluginError` on an error."""
        answer = self.ask(op, **fields)
        if "ok" in answer:
            ok: dict[str, Any] = answer["ok"]
            return ok
        error: Mapping[str, str] = answer.get("error", {})
        raise PluginError(error.get("kind", ""), error.get("text", ""), error.get("where", ""))

    def snapshot(
        self, revision: int, hosts: Sequence[Mapping[str, Any]], vms: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Sends the inventory to the host, in parts that fit a line."""
        parts: list[tuple[Sequence[Any], Sequence[Any]]] = [
            (hosts[at : at + 2000], ()) for at in range(0, len(hosts), 2000)
        ]
        parts += [((), vms[at : at + 5000]) for at in range(0, len(vms), 5000)]
        parts = parts or [((), ())]
        for index, (some_hosts, some_vms) in enumerate(parts):
            last = index == len(parts) - 1
            self.call("snapshot", revision=revision, last=last, hosts=list(some_hosts), vms=list(some_vms))

    def close(self) -> None:
        """Ends the host."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, request: Mapping[str, Any]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(request, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise PluginError("exit", "the plugin host ended") from None

    def _read(self) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None
        line = pipe.readline()
        try:
            return decode(line) if line else {}
        except Wrong as wrong:
            # Attack: a plugin that writes its answer itself.
            return {"id": self._id, "error": {"kind": "result", "text": f"the answer {wrong}"}}
