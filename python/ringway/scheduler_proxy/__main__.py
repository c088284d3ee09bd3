"""`python3 -m ringway.scheduler_proxy DIR`."""

from __future__ import annotations

import argparse
import sys
import threading

from ringway.plugin_client import PluginError, PluginHost

from .inventory import InventoryFile
from .server import Server
from .service import SchedulerProxy


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m ringway.scheduler_proxy",
        description="Serves a folder's placement units to an oVirt engine, as ovirt-scheduler-proxy does.",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder with the plugins' .py files")
    parser.add_argument("--listen", default="localhost:18781", metavar="HOST:PORT", help="(%(default)s)")
    parser.add_argument(
        "--inventory", metavar="FILE", help="hosts and VMs as JSON; read again when it changes"
    )
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="of a worker (%(default)s)")
    parser.add_argument("--network", action="store_true", help="let plugins connect to others")
    asked = parser.parse_args(arguments)
    host, _, port = asked.listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        parser.error("--listen: must be HOST:PORT")
    options = ["--memory", str(asked.memory)] + (["--network"] if asked.network else [])
    try:
        plugins = PluginHost(asked.folder, options)
    except PluginError as error:
        print(f"scheduler proxy: {error}", file=sys.stderr)
        return 1
    with plugins:
        stop = threading.Event()
        if asked.inventory:
            file = InventoryFile(asked.inventory, plugins)
            trouble = file.refresh()
            if trouble:
                print(f"scheduler proxy: {trouble}", file=sys.stderr)
                return 1
            threading.Thread(target=_follow, args=(file, stop), daemon=True).start()
        try:
            server = Server((host.strip("[]"), int(port)), SchedulerProxy(plugins))
        except OSError as error:
            print(f"scheduler proxy: {asked.listen}: {error.strerror or error}", file=sys.stderr)
            return 1
        return _serve(server, stop)


def _serve(server: Server, stop: threading.Event) -> int:
    with server:
        print(f"scheduler proxy: listening on port {server.server_address[1]}", file=sys.stderr, flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
    stop.set()
    return 0


def _follow(file: InventoryFile, stop: threading.Event) -> None:
    while not stop.wait(1.0):
        trouble = file.refresh()
        if trouble:
            print(f"scheduler proxy: {trouble}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
