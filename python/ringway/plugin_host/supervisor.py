"""The supervisor: reads requests, keeps the inventory, and answers in order. It runs no plugin code."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from ringway.placement.inventory import Inventory, WrongRevision
from ringway.placement.wire import Wrong

from .failure import Failure
from .folder import Folder
from .lines import LineReader, TooLong, encode, write_all
from .sandbox import Limits

PROTOCOL = 1
LOOK = 0.5
"""Seconds between checks of the folder's files."""
_LARGEST_ID = 1 << 53


class Supervisor:
    """Serves a folder over two descriptors, which may be the same."""

    def __init__(self, folder: str, limits: Limits, input: int, output: int) -> None:
        self._inventory = Inventory()
        self._folder = Folder(folder, limits, self._inventory, log, output)
        self._limits = limits
        self._reader = LineReader(input)
        self._output = output
        self._looked = 0.0

    def run(self) -> None:
        """Serves until the input ends or the output is closed."""
        try:
            self._folder.refresh()
            self._looked = time.monotonic()
            self._send(self._hello())
            while self._wait():
                self._serve_lines()
        except BrokenPipeError:
            pass
        finally:
            self._folder.close()

    def _hello(self) -> dict[str, Any]:
        fences = {
            "seccomp": bool(self._limits.filters),
            "landlock": self._limits.ruleset is not None,
            "user": os.geteuid(),
            "network": self._limits.network,
            "memory": self._limits.memory,
        }
        return {
            "ringway_plugin_host": PROTOCOL,
            "folder": self._folder.path,
            "generation": self._folder.generation,
            "sandbox": fences,
        }

    def _wait(self) -> bool:
        """Waits for input, checking files and workers meanwhile; returns whether there may be more input."""
        while not self._reader.ended:
            poll = select.poll()
            poll.register(self._reader.descriptor, select.POLLIN)
            for descriptor in self._folder.descriptors():
                poll.register(descriptor, select.POLLIN)
            left = max(self._looked + LOOK - time.monotonic(), 0.001)
            ready = {descriptor for descriptor, _ in poll.poll(left * 1000)}
            if ready - {self._reader.descriptor}:
                self._folder.look()
            self._look()
            if self._reader.descriptor in ready:
                self._reader.fill()
                return True
        return False

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        self._folder.look()
        if self._folder.refresh():
            self._send({"event": "units", "generation": self._folder.generation})

    def _serve_lines(self) -> None:
        while True:
            try:
                line = self._reader.take()
            except TooLong as error:
                self._send(Failure("request", str(error)).answer(None))
                continue
            if line is None:
                return
            if line.strip():
                self._write(self._answer(line))

    def _answer(self, line: bytes) -> bytes:
        id = None
        generation = self._folder.generation
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise Wrong("a request is a JSON object")
            id = _id(request)
            answer = self._dispatch(request, line)
        except WrongRevision as wrong:
            answer = encode(Failure("revision", str(wrong)).answer(id))
        except (ValueError, RecursionError) as wrong:
            answer = encode(Failure("request", str(wrong) or "is nested too deep").answer(id))
        except Failure as failure:
            answer = encode(failure.answer(id))
        if self._folder.generation != generation:
            answer += encode({"event": "units", "generation": self._folder.generation})
        return answer

    def _dispatch(self, request: dict[str, Any], line: bytes) -> bytes:
        match request.get("op"):
            case "filter" | "score" | "balance":
                revision = request.get("revision")
                if revision is not None and revision != self._inventory.revision:
                    raise WrongRevision(f"the inventory is at revision {self._inventory.revision}")
                return self._folder.ask(request, line + b"\n")
            case "discover":
                units = list(self._folder.units.values())
                ok = {
                    "generation": self._folder.generation,
                    "units": units,
                    "problems": self._folder.problems,
                }
            case "snapshot":
                self._inventory.snapshot(request)
                self._folder.update(line + b"\n")
                ok = {"revision": self._inventory.revision, "hosts": len(self._inventory.by_id)}
                ok["vms"] = len(self._inventory.vms)
            case "delta":
                self._inventory.delta(request)
                self._folder.update(line + b"\n")
                ok = {"revision": self._inventory.revision}
            case other:
                raise Wrong(f"op: there is no {str(other)[:40]!r}")
        return encode({"id": request["id"], "ok": ok})

    def _send(self, value: dict[str, Any]) -> None:
        self._write(encode(value))

    def _write(self, data: bytes) -> None:
        if not write_all(self._output, data):
            raise BrokenPipeError


def _id(request: dict[str, Any]) -> int:
    id = request.get("id")
    if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id <= _LARGEST_ID:
        raise Wrong("id: must be a whole number from 0 to 2^53")
    return id


def log(text: str) -> None:
    """A line of the host's own log."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    print(f"plugin host: {printable}", file=sys.stderr, flush=True)
