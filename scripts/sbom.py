#!/usr/bin/env python3
"""Prints a bill of materials of the program `ringway` (CycloneDX 1.5, JSON): the crates that it is built of,
with versions, licences and checksums, and which of them need which.

Usage: scripts/sbom.py >FILE, in the folder of the sources
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "ringway-cli"


def metadata() -> dict[str, Any]:
    """What Cargo knows of the crates, for this machine's kind."""
    host = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    triple = next(line.split()[1] for line in host.splitlines() if line.startswith("host:"))
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", triple]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def needed(nodes: dict[str, Any], first: str) -> dict[str, list[str]]:
    """Which crates the crate `first` is built of, each with those that it needs itself, without tests'."""
    found: dict[str, list[str]] = {}
    left = [first]
    while left:
        crate = left.pop()
        if crate in found:
            continue
        uses = nodes[crate]["deps"]
        found[crate] = sorted(
            one["pkg"] for one in uses if any(kind["kind"] in (None, "build") for kind in one["dep_kinds"])
        )
        left += found[crate]
    return found


def component(package: dict[str, Any], checksums: dict[tuple[str, str], str]) -> dict[str, Any]:
    """A crate in CycloneDX's words."""
    name, version = package["name"], package["version"]
    out: dict[str, Any] = {
        "type": "application" if name == PROGRAM else "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
    }
    if package["license"]:
        # The former separator of alternatives.
        out["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["source"]:
        out["purl"] = f"pkg:cargo/{name}@{version}"
    if checksum := checksums.get((name, version)):
        out["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return out


def reference(package: dict[str, Any]) -> str:
    """The name of a crate within the list."""
    return f"{package['name']}@{package['version']}"


def main() -> None:
    """Prints the list."""
    known = metadata()
    packages = {one["id"]: one for one in known["packages"]}
    nodes = {one["id"]: one for one in known["resolve"]["nodes"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text("utf-8"))["package"]
    checksums = {(one["name"], one["version"]): one["checksum"] for one in lock if "checksum" in one}
    first = next(one["id"] for one in known["packages"] if one["name"] == PROGRAM)
    uses = needed(nodes, first)
    rest = sorted((packages[one] for one in uses if one != first), key=reference)
    print(
        json.dumps(
            {
                "bomFormat": "CycloneDX",
                "specVersion": "1.5",
                "version": 1,
                "metadata": {"component": component(packages[first], checksums)},
                "components": [component(one, checksums) for one in rest],
                "dependencies": [
                    {"ref": reference(packages[one]), "dependsOn": [reference(packages[each]) for each in by]}
                    for one, by in sorted(uses.items(), key=lambda pair: reference(packages[pair[0]]))
                ],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
