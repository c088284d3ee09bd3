"""The worker: loads the folder's units, then handles requests, or a single one."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
from typing import Any, Mapping, NoReturn

from ringway.placement.inventory import Inventory

from . import loader, ovirtsdk
from .capture import Capture
from .clock import TimeIsUp, limited
from .failure import LONGEST_TEXT, cut, of_exception, place
from .lines import LineReader, encode, write_all
from .process import ACKNOWLEDGED
from .runner import Runner
from .sandbox import Limits, confine

LOAD_SECONDS = 5.0
"""Time limit for loading a file in seconds."""


def serve(
    channel: int,
    out: int,
    folder: str,
    limits: Limits,
    sources: Mapping[str, bytes],
    kept: Inventory,
) -> NoReturn:
    """A resident worker, which runs until its channel ends, in a fork of the supervisor."""
    _begin(channel, out, folder, limits, sources)
    units: dict[str, loader.Loaded] = {}
    problems: list[dict[str, Any]] = []
    reader = LineReader(channel)
    for file in sources:
        # Names the responsible unit if this process dies or hangs.
        write_all(channel, encode({"loading": file}))
        _next(reader)
        found, problem = _load(file, folder)
        if problem is not None:
            problems.append(problem)
        for unit in found:
            if unit.name in units:
                text = f"{unit.name} is in {units[unit.name].file} already; this one isn't used"
                problems.append({"file": file, "line": unit.line, "text": text})
            else:
                units[unit.name] = unit
    described = [unit.described() for unit in units.values()]
    write_all(channel, encode({"loaded": described, "problems": problems}))
    runner = Runner(folder, kept, units)
    while True:
        request = json.loads(_next(reader))
        match request["op"]:
            case "snapshot":
                if kept.snapshot(request):
                    # Thousands of permanent objects: exclude them from garbage collection.
                    gc.freeze()
                write_all(channel, ACKNOWLEDGED + b"\n")
            case "delta":
                kept.delta(request)
                write_all(channel, ACKNOWLEDGED + b"\n")
            case _:
                write_all(channel, encode(runner.answer(request)))


def once(
    channel: int,
    out: int,
    folder: str,
    limits: Limits,
    sources: Mapping[str, bytes],
    kept: Inventory,
    file: str,
    request: Any,
) -> NoReturn:
    """A new worker for one request."""
    _begin(channel, out, folder, limits, sources)
    found, problem = _load(file, folder)
    if problem is not None:
        error = {"kind": "load", "text": problem["text"], "where": f"{file}:{problem['line']}"}
        answer = {"id": request["id"], "error": error}
    else:
        answer = Runner(folder, kept, {unit.name: unit for unit in found}).answer(request)
    write_all(channel, encode(answer))
    os._exit(0)


def _begin(
    channel: int, out: int, folder: str, limits: Limits, sources: Mapping[str, bytes]
) -> None:
    # Objects from before the fork are never collected, so their pages stay shared.
    gc.freeze()
    gc.set_threshold(50_000)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    confine(folder, limits, {channel})
    loader.install(folder, sources)
    ovirtsdk.install()


def _load(file: str, folder: str) -> tuple[list[loader.Loaded], dict[str, Any] | None]:
    capture = Capture(LONGEST_TEXT)
    try:
        with capture, limited(LOAD_SECONDS):
            return loader.load_file(file), None
    except TimeIsUp:
        return [], {"file": file, "line": 0, "text": f"takes longer than {LOAD_SECONDS:g} s to load"}
    except BaseException as error:  # Exceptions of a plugin's file are reported.
        failure = of_exception(error, folder)
        line = place(error, folder).rpartition(":")[2]
        return [], {"file": file, "line": int(line or 0), "text": cut(failure.text, LONGEST_TEXT)}


def _next(reader: LineReader) -> bytes:
    poll = select.poll()
    poll.register(reader.descriptor, select.POLLIN)
    while True:
        line = reader.take()
        if line is not None:
            return line
        if reader.ended:
            os._exit(0)
        poll.poll()
        reader.fill()
