"""The XML-RPC server."""

from __future__ import annotations

import socketserver
from http import HTTPStatus
from threading import BoundedSemaphore
from typing import Any
from xml.parsers import expat
from xmlrpc.client import Fault, dumps
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from .service import SchedulerProxy

LARGEST = 8 << 20
"""Attack: an endless body. Largest size in bytes."""
_MOST_CLIENTS = 16


_MOST_ELEMENTS = 1_000_000
"""Attack: endless values, each of which becomes an object. Largest number of elements in a call."""


class _Refused(Exception):
    """A call that is refused without parsing."""


def _look_at(data: bytes) -> None:
    """Refuses constructs that no XML-RPC call contains.

    Attack: entities that expand to a hundred times the document; they need a document type."""
    left = _MOST_ELEMENTS

    def doctype(*_: object) -> None:
        raise _Refused("a call has no document type")

    def element(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _Refused(f"a call has {_MOST_ELEMENTS} elements at most")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = element
    parser.Parse(data, True)


class _Handler(SimpleXMLRPCRequestHandler):
    rpc_paths = ("/", "/RPC2")
    timeout = 60

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > LARGEST:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        # Attack: a web page in a browser on this machine; it can't send this type to another origin without a
        # preflight request.
        if self.headers.get_content_type() != "text/xml":
            self.send_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            return
        super().do_POST()

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing: the caller gets the error."""

    def address_string(self) -> str:
        return str(self.client_address[0])


class Server(socketserver.ThreadingMixIn, SimpleXMLRPCServer):
    """Listens on a host and port, with one thread per client."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], proxy: SchedulerProxy) -> None:
        super().__init__(address, requestHandler=_Handler, logRequests=False, allow_none=True)
        self._clients = BoundedSemaphore(_MOST_CLIENTS)
        self.register_introspection_functions()
        for call in (proxy.discover, proxy.runFilters, proxy.runCostFunctions, proxy.runLoadBalancing):
            self.register_function(call)

    def _marshaled_dispatch(self, data: Any, *more: Any, **named: Any) -> Any:
        try:
            _look_at(data)
        except (_Refused, expat.ExpatError) as error:
            return dumps(Fault(1, f"{type(error).__name__.lstrip('_')}: {error}")).encode()
        return super()._marshaled_dispatch(data, *more, **named)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Attack: endless clients, each with a thread.
        if not self._clients.acquire(timeout=1):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()
