"""Requests over a fabric's control socket: HTTP and JSON on a UNIX socket."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode


class FabricError(Exception):
    """A refused request; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Connection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("ringway", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ControlSocket:
    """A connection to a fabric's control socket, `api.sock` in its run directory. For one thread."""

    def __init__(self, path: str, timeout: float = 90.0) -> None:
        self._http = _Connection(path, timeout)

    def __enter__(self) -> ControlSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        names: Sequence[object],
        query: Mapping[str, object] | None = None,
        *,
        body: object = None,
    ) -> bytes:
        """Sends a request, returns the answer's body. Each `{}` of the path stands for one of the names."""
        path = path.format(*(quote(str(name), safe="@") for name in names))
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            path += "?" + urlencode(given)
        headers = {} if body is None else {"content-type": "application/json"}
        self._http.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._http.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise FabricError(response.status, _error(answer))
        return answer

    def text(self, *request: Any, body: object = None) -> str:
        """The same for an answer that is text."""
        return self.call(*request, body=body).decode(errors="replace")

    def json(self, *request: Any, body: object = None) -> Any:
        """The same for an answer in JSON."""
        return json.loads(self.call(*request, body=body))


def _error(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace")
