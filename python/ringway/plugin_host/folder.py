"""A folder's units: the workers that run them, and the handling of changed files and dead workers."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

from ringway.placement.inventory import Inventory
from ringway.placement.wire import Wrong, decode, listed, mapped, text, whole

from . import loader, worker
from .failure import LONGEST_TEXT, Failure, cut
from .loader import KINDS
from .process import Ended, Late, Process
from .runner import limit_of
from .sandbox import Limits
from .worker import LOAD_SECONDS

GRACE = 0.25
"""Seconds from a unit's time limit until its process is killed."""
STRIKES = 3
LONGEST_REST = 60.0
_SEND = 5.0
_NEXT = b"{}\n"
"""Tells a worker to load the next file."""
MOST_UNITS = 1024
"""Attack: endless units. Largest number of units."""
LONGEST_LOADED = 4 << 20
"""Attack: a line that exhausts the supervisor's memory and time. Largest length in bytes."""
_LONGEST_NAME = 200


@dataclass
class _Record:
    """Number of times in a row that a unit broke its worker."""

    strikes: int = 0
    rests_until: float = 0.0
    last: str = ""


@dataclass
class Folder:
    """The units of one folder."""

    path: str
    limits: Limits
    inventory: Inventory
    log: Callable[[str], None]
    client: int
    """The descriptor for answers to the client."""
    generation: int = 0
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name, as returned by `discover`."""
    problems: list[dict[str, Any]] = field(default_factory=list)
    _sources: dict[str, bytes] = field(default_factory=dict)
    _seen: object = None
    _identity: tuple[int, int] | None = None
    _worker: Process | None = None
    _records: dict[str, _Record] = field(default_factory=dict)

    def refresh(self) -> bool:
        """Reloads changed files; returns whether anything changed. A file that fails to load keeps
        its previous version."""
        if self._is_another():
            # Landlock's rules apply to the folder that existed at the start.
            raise RuntimeError(f"{self.path} is another folder now; restart to load its units")
        seen = loader.fingerprint(self.path)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            sources, wrong = loader.read_folder(self.path)
        except OSError as error:
            self.log(f"{self.path}: can't be read: {error.strerror}; its units are unchanged")
            return False
        before = self._sources
        unreadable = [{"file": file, "line": 0, "text": text} for file, text in wrong.items()]
        started, units, problems = self._start(dict(sources), before)
        old, self._worker = self._worker, started
        if old is not None:
            old.close()
        self.units, self.problems = {unit["name"]: unit for unit in units}, unreadable + problems
        self._records.clear()
        self.generation += 1
        for problem in self.problems:
            self.log(f"{problem['file']}:{problem['line']}: {problem['text']}")
        return True

    def _is_another(self) -> bool:
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        identity = status.st_dev, status.st_ino
        if self._identity is None:
            self._identity = identity
        return self._identity != identity

    def _start(
        self, sources: dict[str, bytes], before: Mapping[str, bytes]
    ) -> tuple[Process, list[Any], list[Any]]:
        """Starts a worker with these sources; files that fail to load are replaced by their previous
        version, or skipped."""
        handled: list[dict[str, Any]] = []
        while True:
            process, units, problems = self._load(sources)
            broken = {problem["file"]: problem for problem in problems if problem["file"] in sources}
            replaced = False
            for file, problem in broken.items():
                old = before.get(file)
                hopeless = problem.pop("fatal", False)
                if old is not None and old != sources[file]:
                    sources[file] = old
                    problem["text"] += "; the file's previous version stays in use"
                elif hopeless:
                    del sources[file]
                else:
                    continue
                handled.append(problem)
                problems.remove(problem)
                replaced = True
            if not replaced and process is not None:
                self._sources = sources
                return process, units, handled + problems
            if process is not None:
                process.close()

    def _load(self, sources: Mapping[str, bytes]) -> tuple[Process | None, list[Any], list[Any]]:
        process = self._fork(
            lambda channel, out: worker.serve(channel, out, self.path, self.limits, sources, self.inventory)
        )
        file = ""
        try:
            for one in sources:
                if self._loaded(process) != {"loading": one}:
                    raise Wrong
                file = one
                process.send(_NEXT, time.monotonic() + _SEND)
            answer = self._loaded(process)
            units = [_described(entry) for entry in _some(answer.get("loaded"))]
            problems = [_problem(entry) for entry in _some(answer.get("problems"))]
            process.rest()
            return process, units, problems
        except Wrong:
            why = "makes its process send an invalid message while it is loaded"
        except Late as late:
            why = str(late) or f"takes longer than {LOAD_SECONDS:g} s to load"
        except Ended as ended:
            why = f"ends its process while it is loaded: {ended}"
            output = process.output()
            why += f" ({cut(output, 300)})" if output else ""
        except BaseException:
            process.close()
            raise
        process.close()
        if not file:
            raise RuntimeError(f"a worker doesn't start: {why}")
        return None, [], [{"file": file, "line": 0, "text": why, "fatal": True}]

    def _loaded(self, process: Process) -> dict[str, Any]:
        """A message of a worker that loads. It is a plugin's process, and not trusted."""
        line = process.receive(time.monotonic() + LOAD_SECONDS + GRACE, LOAD_SECONDS + GRACE)
        if len(line) > LONGEST_LOADED:
            raise Wrong
        return decode(line)

    def _fork(self, main: Callable[[int, int], object]) -> Process:
        return Process(main, self.client)

    def update(self, line: bytes) -> None:
        """Forwards an update of the inventory, already applied here, to the worker."""
        if self._worker is None:
            return
        try:
            self._worker.update(line, time.monotonic() + _SEND)
        except (Late, Ended):
            self._replace("it didn't accept the inventory")

    def descriptors(self) -> list[int]:
        """The descriptors that become readable when a worker acts unasked."""
        return [] if self._worker is None else self._worker.descriptors()

    def look(self) -> None:
        """Checks the worker between requests."""
        if self._worker is not None and not self._worker.idle():
            self._replace(self._worker.end())

    def _replace(self, why: str) -> None:
        """Starts a new worker with the same files. Files that fail to load are reported."""
        old, self._worker = self._worker, None
        if old is not None:
            output = old.output()
            old.close()
            self.log(f"a worker is replaced: {why}" + (f" ({cut(output, 300)})" if output else ""))
        self._worker, units, problems = self._start(dict(self._sources), {})
        if {unit["name"]: unit for unit in units} != self.units:
            self.units = {unit["name"]: unit for unit in units}
            self.problems = problems
            self.generation += 1

    def ask(self, request: Mapping[str, Any], line: bytes) -> bytes:
        """The answer line to a request for a result."""
        name = request.get("unit")
        unit = self.units.get(name) if isinstance(name, str) else None
        if unit is None:
            raise Failure("unit", f"there is no unit {str(name)[:80]} in {self.path}")
        record = self._records.setdefault(unit["name"], _Record())
        rest = record.rests_until - time.monotonic()
        if rest > 0:
            raise Failure("resting", f"is suspended for another {rest:.1f} s: {record.last}")
        try:
            answer = (
                self._fresh(unit, request)
                if unit["style"] == "ovirt-fresh"
                else self._resident(request, line)
            )
        except Failure as broken:
            self._strike(record, broken)
            raise
        if not answer.startswith(b'{"id":%d,"' % request["id"]):
            self._replace("it sent an answer without a request")
            failure = Failure("result", "its worker sent an answer without a request")
            self._strike(record, failure)
            raise failure
        kind = _kind(answer)
        if kind in ("time", "memory"):
            self._strike(
                record, Failure(kind, "it took too long" if kind == "time" else "it took too much memory")
            )
            if unit["style"] != "ovirt-fresh":
                self._replace(f"{unit['name']} was interrupted ({kind})")
        elif kind != "exit":
            record.strikes = 0
        return answer + b"\n"

    def _strike(self, record: _Record, failure: Failure) -> None:
        record.strikes += 1
        record.last = failure.text
        if record.strikes >= STRIKES:
            rest = min(2.0 ** (record.strikes - STRIKES), LONGEST_REST)
            record.rests_until = time.monotonic() + rest

    def _resident(self, request: Mapping[str, Any], line: bytes) -> bytes:
        self.look()
        process = self._worker
        if process is None:
            raise Failure("exit", "there is no worker")
        seconds = limit_of(request) / 1000
        deadline = time.monotonic() + seconds + GRACE
        try:
            process.send(line, deadline)
            answer = process.receive(deadline, seconds + GRACE)
            process.rest()
            return answer
        except (Late, Ended) as error:
            failure = _failure(error, seconds, process)
            self._replace(f"{request['unit']}: {failure.text}")
            raise failure from None

    def _fresh(self, unit: Mapping[str, Any], request: Mapping[str, Any]) -> bytes:
        file = unit["file"]
        if file not in self._sources:
            raise Failure("load", f"{file[:80]} is not in the folder")
        process = self._fork(
            lambda channel, out: worker.once(
                channel, out, self.path, self.limits, self._sources, self.inventory, file, request
            )
        )
        seconds = limit_of(request) / 1000
        most = LOAD_SECONDS + seconds + GRACE
        try:
            return process.receive(time.monotonic() + most, most)
        except (Late, Ended) as error:
            raise _failure(error, seconds, process) from None
        finally:
            process.close()

    def close(self) -> None:
        """Ends the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _failure(error: Exception, seconds: float, process: Process) -> Failure:
    if isinstance(error, Ended):
        failure = Failure("exit", str(error))
    else:
        hung = f"it took longer than {seconds:g} s and could not be interrupted"
        failure = Failure("time", str(error) or hung)
    failure.output = process.output()
    return failure


def _kind(answer: bytes) -> str:
    """The kind of an answer's error, without parsing the whole answer; empty if it is not an error."""
    at = answer.find(b'"error":{"kind":"', 0, 64)
    return "" if at < 0 else answer[at + 17 : answer.find(b'"', at + 17)].decode("ascii", "replace")


def _some(entries: object) -> list[Any]:
    # Attack: a plugin that writes to its worker's channel while it is loaded.
    return listed(entries)[:MOST_UNITS]


def _described(entry: object) -> dict[str, Any]:
    """A unit as described by a worker."""
    unit = mapped(entry)
    kinds = [kind for kind in KINDS if kind in listed(unit.get("kinds"))]
    described = mapped(unit.get("description"))
    return {
        "name": _short(unit, "name"),
        "kinds": kinds,
        "description": {kind: _short(described, kind, LONGEST_TEXT) for kind in kinds},
        "properties": _short(unit, "properties", LONGEST_TEXT),
        "style": _short(unit, "style"),
        "file": _short(unit, "file"),
        "line": whole(unit.get("line")),
    }


def _problem(entry: object) -> dict[str, Any]:
    problem = mapped(entry)
    return {
        "file": _short(problem, "file"),
        "line": whole(problem.get("line")),
        "text": _short(problem, "text", LONGEST_TEXT),
    }


def _short(entry: Mapping[str, Any], name: str, most: int = _LONGEST_NAME) -> str:
    return cut(text(entry.get(name)), most)
