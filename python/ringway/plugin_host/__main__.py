"""`python3 -m ringway.plugin_host DIR`."""

from __future__ import annotations

import argparse
import os
import socket
import sys

from . import sandbox
from .supervisor import Supervisor


def main(arguments: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m ringway.plugin_host",
        description="Runs a folder's placement units; speaks line-delimited JSON over stdin and stdout.",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder with the plugins' .py files")
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="of a worker (%(default)s)")
    parser.add_argument("--network", action="store_true", help="let plugins connect to others")
    parser.add_argument("--socket", type=int, metavar="FD", help="speak over this inherited socket instead")
    parser.add_argument(
        "--unconfined",
        action="store_true",
        help="go on where the system can't confine plugins (no seccomp)",
    )
    asked = parser.parse_args(arguments)
    folder = os.path.realpath(asked.folder)
    if not os.path.isdir(folder):
        parser.error(f"{asked.folder}: is no folder")
    if asked.memory < 16:
        parser.error("--memory: at least 16")
    if not sandbox.available(folder).seccomp and not asked.unconfined:
        parser.error(
            "this system has no seccomp for plugins to be confined by; --unconfined goes on without"
        )
    input, output = 0, 1
    if asked.socket is not None:
        input = output = socket.socket(fileno=asked.socket).detach()
    try:
        Supervisor(folder, sandbox.Limits(memory=asked.memory, network=asked.network), input, output).run()
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        print(f"plugin host: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
