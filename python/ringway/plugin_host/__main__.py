"""The program started by `ringway`; to start it by hand, use `ringway plugin-host DIR`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .sandbox import Limits
from .supervisor import Supervisor


def main(
    arguments: Sequence[str] | None = None, filters: Sequence[str] = (), ruleset: int | None = None
) -> int:
    """Runs the program; returns its exit status. `filters` are in hexadecimal."""
    parser = argparse.ArgumentParser(
        prog="ringway plugin-host",
        description="Runs a folder's placement units; speaks line-delimited JSON over stdin and stdout.",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder with the plugins' .py files")
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="of a worker (%(default)s)")
    parser.add_argument("--network", action="store_true", help="let plugins connect to others")
    asked = parser.parse_args(arguments)
    limits = Limits(
        memory=asked.memory,
        network=asked.network,
        filters=tuple(map(bytes.fromhex, filters)),
        ruleset=ruleset,
    )
    try:
        Supervisor(os.path.realpath(asked.folder), limits, 0, 1).run()
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        print(f"plugin host: {error}", file=sys.stderr)
        return 1
    return 0
