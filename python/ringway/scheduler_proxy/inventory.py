"""The hosts and VMs for the units, from a file in the protocol's form; read again when it changes."""

from __future__ import annotations

import json
import os
from typing import Any

from ringway.plugin_client import PluginError, PluginHost

LARGEST = 256 << 20


class InventoryFile:
    """`{"hosts": [...], "vms": [...]}`: hosts with their fields (`slot` is optional), VMs whose `host` is a
    host's id."""

    def __init__(self, path: str, host: PluginHost) -> None:
        self._path = path
        self._host = host
        self._seen: tuple[int, int] | None = None
        self._revision = 0

    def refresh(self) -> str | None:
        """Applies the file if it changed; returns its error, if any. In case of an error nothing changes."""
        try:
            status = os.stat(self._path)
            seen = (status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return None
            self._seen = seen
            hosts, vms = read(self._path)
            self._host.snapshot(self._revision + 1, hosts, vms)
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        except (ValueError, RecursionError, PluginError) as error:
            return f"{self._path}: {error}"
        self._revision += 1
        return None


def read(path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A file's hosts and VMs, with hosts numbered and VMs' hosts given by number."""
    if os.path.getsize(path) > LARGEST:
        raise ValueError(f"larger than {LARGEST} bytes")
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    if not isinstance(content, dict):
        raise ValueError("must be an object with hosts and vms")
    hosts = [{**entry, "slot": index} for index, entry in enumerate(_objects(content, "hosts"))]
    slots = {entry.get("id"): entry["slot"] for entry in hosts}
    vms = []
    for index, entry in enumerate(_objects(content, "vms")):
        at = entry.get("host")
        if at is not None and at not in slots:
            raise ValueError(f"vms[{index}]: host: there is no host {at!r}")
        vms.append({**entry, "host": None if at is None else slots[at]})
    return hosts, vms


def _objects(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries = content.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{name}: must be a list of objects")
    return entries
