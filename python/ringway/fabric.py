"""A client of a running fabric's functions, over its control socket.

    from ringway.fabric import Fabric

    with Fabric("/run/ringway/lab/api.sock") as fabric:
        fabric.create_function("mirror", "FromPort(a) -> EtherMirror -> c :: Counter -> ToPort(a)", ["a"])
        print(fabric.read("mirror", "c.count"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .api import Api, FunctionView, GraphView, NewFunction
from .control_socket import ControlSocket, FabricError

__all__ = ["Fabric", "FabricError"]


class Fabric:
    """A connection to a fabric's control socket, `api.sock` in its run directory. For one thread.

    `api` has every operation of the control API; the methods are those of functions with plainer arguments.
    """

    def __init__(self, path: str, timeout: float = 90.0) -> None:
        self._socket = ControlSocket(path, timeout)
        self.api = Api(self._socket)

    def __enter__(self) -> Fabric:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def functions(self) -> list[FunctionView]:
        """Every function."""
        return self.api.functions()

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
        new: NewFunction = {
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
        self.api.create_function(new)

    def destroy_function(self, name: str) -> None:
        """Stops a function and forgets it."""
        self.api.destroy_function(name)

    def start_function(self, name: str) -> None:
        """Starts a stopped function; its configuration runs after the return."""
        self.api.start_function(name)

    def stop_function(self, name: str) -> None:
        """Stops a function; its process ends after the return."""
        self.api.stop_function(name)

    def suspend_function(self, name: str) -> None:
        """Suspends a function, which keeps its state."""
        self.api.suspend_function(name)

    def resume_function(self, name: str) -> None:
        """Lets a suspended function go on."""
        self.api.resume_function(name)

    def update_function(self, name: str, configuration: str) -> None:
        """Replaces the configuration of a running function; a refused one changes nothing."""
        self.api.update_function(name, {"configuration": configuration})

    def read(self, name: str, handler: str) -> str:
        """The value of a handler, such as `counter.count`."""
        return self.api.read_handler(name, handler)["value"]

    def write(self, name: str, handler: str, value: str = "") -> None:
        """Writes a handler, such as `counter.reset`."""
        self.api.write_handler(name, handler, {"value": value})

    def graph(self, name: str, seconds: float = 1.0) -> GraphView:
        """Counts a running function's packets for some seconds. Returns its graph."""
        return self.api.function_graph(name, seconds=seconds)

    def graph_svg(self, name: str, seconds: float = 1.0) -> str:
        """The graph as an SVG drawing."""
        return self.api.function_svg(name, seconds=seconds)
