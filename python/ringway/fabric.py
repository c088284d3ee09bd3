"""A client of a running fabric's functions, over its control socket.

    from ringway.fabric import Fabric

    with Fabric("/run/ringway/lab/api.sock") as fabric:
        fabric.create_function("mirror", "FromPort(a) -> EtherMirror -> c :: Counter -> ToPort(a)", ["a"])
        print(fabric.read("mirror", "c.count"))
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote


class FabricError(Exception):
    """A refused request; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Function(TypedDict):
    """A function, as `GET /v1/functions` describes it."""

    name: str
    state: str
    pid: int
    ports: list[str]
    configuration: str
    handlers: str
    restarts: int
    reason: str


Element = TypedDict("Element", {"name": str, "class": str, "packets": int, "ticks": int})
"""An element of a graph."""

Connection = TypedDict("Connection", {"from": int, "output": int, "input": int, "to": int, "packets": int})
"""A connection of a graph, from an output to an input; elements are indexes."""


class Graph(TypedDict):
    """The graph of a function, with what passed during a sample."""

    nanoseconds: int
    elements: list[Element]
    connections: list[Connection]


class _Connection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("ringway", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Fabric:
    """A connection to a fabric's control socket, `api.sock` in its run directory. For one thread."""

    def __init__(self, path: str, timeout: float = 90.0) -> None:
        self._http = _Connection(path, timeout)

    def __enter__(self) -> Fabric:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def functions(self) -> list[Function]:
        """Every function."""
        found: list[Function] = json.loads(self._call("GET", "/v1/functions"))
        return found

    def create_function(
        self,
        name: str,
        configuration: str,
        ports: Sequence[str],
        *,
        isolation: str | None = None,
        devices: Mapping[str, str] | None = None,
        parameters: Mapping[str, str] | None = None,
        memory: int | None = None,
        core: int | None = None,
        burst: int | None = None,
    ) -> None:
        """Creates a function and starts it; a refused configuration changes nothing."""
        new = {
            "name": name,
            "configuration": configuration,
            "isolation": isolation,
            "ports": list(ports),
            "devices": dict(devices or {}),
            "parameters": dict(parameters or {}),
            "memory": memory,
            "core": core,
            "burst": burst,
        }
        self._call("POST", "/v1/functions", new)

    def destroy_function(self, name: str) -> None:
        """Stops a function and forgets it."""
        self._call("DELETE", _path(name))

    def start_function(self, name: str) -> None:
        """Starts a stopped function; its configuration runs after the return."""
        self._call("POST", _path(name, "start"))

    def stop_function(self, name: str) -> None:
        """Stops a function; its process ends after the return."""
        self._call("POST", _path(name, "stop"))

    def suspend_function(self, name: str) -> None:
        """Suspends a function, which keeps its state."""
        self._call("POST", _path(name, "suspend"))

    def resume_function(self, name: str) -> None:
        """Lets a suspended function go on."""
        self._call("POST", _path(name, "resume"))

    def update_function(self, name: str, configuration: str) -> None:
        """Replaces the configuration of a running function; a refused one changes nothing."""
        self._call("PUT", _path(name, "configuration"), {"configuration": configuration})

    def read(self, name: str, handler: str) -> str:
        """The value of a handler, such as `counter.count`."""
        value: str = json.loads(self._call("GET", _path(name, "handlers", handler)))["value"]
        return value

    def write(self, name: str, handler: str, value: str = "") -> None:
        """Writes a handler, such as `counter.reset`."""
        self._call("PUT", _path(name, "handlers", handler), {"value": value})

    def graph(self, name: str, seconds: float = 1.0) -> Graph:
        """Counts a running function's packets for some seconds. Returns its graph."""
        found: Graph = json.loads(self._call("GET", f"{_path(name, 'graph')}?seconds={seconds}"))
        return found

    def graph_svg(self, name: str, seconds: float = 1.0) -> str:
        """The same as a drawing."""
        return self._call("GET", f"{_path(name, 'graph.svg')}?seconds={seconds}").decode()

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        headers = {} if body is None else {"content-type": "application/json"}
        text = None if body is None else json.dumps(body)
        self._http.request(method, path, text, headers)
        response = self._http.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise FabricError(response.status, _error(answer))
        return answer


def _path(*parts: str) -> str:
    return "/".join(["/v1/functions", *(quote(part, safe="/@") for part in parts)])


def _error(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace")
