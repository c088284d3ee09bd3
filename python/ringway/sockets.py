"""Sockets of Ringway's TCP/IP stack in the shape of Python's, by `libringway-stack.so`.

    from ringway.sockets import Network

    with Network("/run/ringway/lab/a.sock", "10.0.0.1/24", cc="bbr") as network:
        with network.create_connection(("10.0.0.2", 80)) as stream:
            stream.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            print(stream.makefile("r").read())

RINGWAY_STACK_LIBRARY names the library if it is not where libraries are. Calls release the interpreter's
lock.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import socket as std
import struct
from typing import IO, Any

__all__ = ["Network", "Socket"]

Address = tuple[str, int]
_RECEIVE_TIMEOUT, _SEND_TIMEOUT = std.SO_RCVTIMEO, std.SO_SNDTIMEO
_library: ctypes.CDLL | None = None


def _load() -> ctypes.CDLL:
    global _library
    if _library is None:
        name = os.environ.get("RINGWAY_STACK_LIBRARY", "libringway-stack.so.0")
        try:
            library = ctypes.CDLL(name, use_errno=True)
        except OSError as error:
            raise OSError(
                f"{error}; build it with `make -C clients/stack`, and set RINGWAY_STACK_LIBRARY"
            ) from None
        library.ringway_network_error.restype = ctypes.c_char_p
        size, data, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
        library.ringway_send.argtypes = [number, data, size, number]
        library.ringway_recv.argtypes = [number, data, size, number]
        library.ringway_sendto.argtypes = [number, data, size, number, data, ctypes.c_uint]
        library.ringway_recvfrom.argtypes = [number, data, size, number, data, data]
        for call in ["send", "recv", "sendto", "recvfrom"]:
            getattr(library, f"ringway_{call}").restype = ctypes.c_ssize_t
        _library = library
    return _library


def _pack(family: int, address: Address) -> bytes:
    host, port = address[0] or ("0.0.0.0" if family == std.AF_INET else "::"), address[1]
    if not 0 <= port <= 65535:
        raise OverflowError(f"port {port}: it must be 0 to 65535")
    packed = std.inet_pton(family, host)
    if family == std.AF_INET:
        return struct.pack("=H", family) + struct.pack(">H", port) + packed + bytes(8)
    return struct.pack("=H", family) + struct.pack(">HI", port, 0) + packed + bytes(4)


def _unpack(raw: bytes) -> Address:
    (family,), (port,) = struct.unpack_from("=H", raw), struct.unpack_from(">H", raw, 2)
    packed = raw[4:8] if family == std.AF_INET else raw[8:24]
    return std.inet_ntop(family, packed), port


class Network:
    """A host on a port of a fabric, or on a pipe, whose socket is at `path`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *addresses: str,
        gateway: str | None = None,
        cc: str | None = None,
        mtu: int | None = None,
    ) -> None:
        self._number = -1
        settings = [("gateway", gateway), ("cc", cc), ("mtu", mtu)]
        words = " ".join(f"{key}={value}" for key, value in settings if value is not None)
        self._library = _load()
        number = self._library.ringway_network(
            os.fsencode(path), " ".join(addresses).encode(), words.encode()
        )
        if number < 0:
            raise OSError(ctypes.get_errno(), self._library.ringway_network_error().decode(errors="replace"))
        self._number = number

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def socket(self, family: int = std.AF_INET, type: int = std.SOCK_STREAM) -> Socket:
        """A new socket."""
        number = self._library.ringway_socket(self._number, int(family), int(type), 0)
        return Socket(self._library, _checked(number), int(family))

    def create_connection(self, address: Address, timeout: float | None = None) -> Socket:
        """A TCP connection to an IP address and port."""
        made = self.socket(std.AF_INET6 if ":" in address[0] else std.AF_INET)
        try:
            made.settimeout(timeout)
            made.connect(address)
        except BaseException:
            made.close()
            raise
        return made

    def create_server(self, address: Address, backlog: int = 128) -> Socket:
        """A socket that listens at an IP address, which may be empty, and port."""
        made = self.socket(std.AF_INET6 if ":" in address[0] else std.AF_INET)
        try:
            made.bind(address)
            made.listen(backlog)
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """Waits, at most five seconds, until what was sent is acknowledged, and closes the network."""
        number, self._number = self._number, -1
        if number >= 0:
            _checked(self._library.ringway_close(number))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Socket:
    """A socket with the methods of Python's."""

    def __init__(self, library: ctypes.CDLL, number: int, family: int) -> None:
        self._library, self._number, self._family = library, number, family
        self._timeout: float | None = None
        self._files = 0
        self._closed = False

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._files = 0
        self.close()

    def _waited(self, result: int) -> int:
        """As `_checked`; the end of a timeout is a TimeoutError."""
        if result < 0 and self._timeout and ctypes.get_errno() in (errno.EAGAIN, errno.EINPROGRESS):
            raise TimeoutError("timed out")
        return _checked(result)

    @property
    def family(self) -> int:
        """AF_INET or AF_INET6."""
        return self._family

    def pollfd(self, events: int) -> int:
        """A descriptor for a poll loop, readable once the socket is ready for `select.POLLIN` or `POLLOUT`.

        Ask for it before each poll; it belongs to the socket.
        """
        return _checked(self._library.ringway_pollfd(self._number, ctypes.c_short(events)))

    def bind(self, address: Address) -> None:
        """Binds to an own address; port 0 chooses one."""
        raw = _pack(self._family, address)
        _checked(self._library.ringway_bind(self._number, raw, len(raw)))

    def listen(self, backlog: int = 128) -> None:
        """Listens for connections."""
        _checked(self._library.ringway_listen(self._number, backlog))

    def accept(self) -> tuple[Socket, Address]:
        """The next connection, and its peer."""
        raw, size = ctypes.create_string_buffer(128), ctypes.c_uint(128)
        number = self._waited(self._library.ringway_accept(self._number, raw, ctypes.byref(size)))
        return Socket(self._library, number, self._family), _unpack(raw.raw)

    def connect(self, address: Address) -> None:
        """Connects."""
        raw = _pack(self._family, address)
        self._waited(self._library.ringway_connect(self._number, raw, len(raw)))

    def send(self, data: Any, flags: int = 0) -> int:
        """Sends bytes; returns how many."""
        raw = bytes(data)
        return self._waited(self._library.ringway_send(self._number, raw, len(raw), int(flags)))

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Sends all bytes."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self.send(rest[: 1 << 20], flags) :]

    def sendto(self, data: Any, address: Address) -> int:
        """Sends a datagram."""
        raw, to = bytes(data), _pack(self._family, address)
        sent = self._library.ringway_sendto(self._number, raw, len(raw), 0, to, len(to))
        return self._waited(sent)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receives at most `size` bytes; none at the end."""
        out = bytearray(size)
        return bytes(out[: self.recv_into(out, flags=flags)])

    def recv_into(self, out: Any, size: int = 0, flags: int = 0) -> int:
        """Receives into a buffer."""
        view = memoryview(out).cast("B")
        size = min(size or len(view), len(view))
        if size == 0:
            return 0
        memory = (ctypes.c_char * size).from_buffer(view)
        return self._waited(self._library.ringway_recv(self._number, memory, size, int(flags)))

    def recvfrom(self, size: int) -> tuple[bytes, Address]:
        """The next datagram and its sender."""
        out = ctypes.create_string_buffer(max(size, 1))
        raw, len_ = ctypes.create_string_buffer(128), ctypes.c_uint(128)
        count = self._waited(
            self._library.ringway_recvfrom(self._number, out, size, 0, raw, ctypes.byref(len_))
        )
        return out.raw[:count], _unpack(raw.raw)

    def settimeout(self, timeout: float | None) -> None:
        """None blocks, 0 does not, else seconds that a call may block."""
        if timeout is not None and timeout < 0:
            raise ValueError("a timeout must not be negative")
        micros = max(int(timeout * 1e6), 1) if timeout else 0
        raw = struct.pack("=qq", *divmod(micros, 1_000_000))
        for name in (_RECEIVE_TIMEOUT, _SEND_TIMEOUT):
            self.setsockopt(std.SOL_SOCKET, name, raw)
        _checked(self._library.ringway_set_nonblocking(self._number, int(timeout == 0)))
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        """The timeout."""
        return self._timeout

    def setblocking(self, blocking: bool) -> None:
        """Whether calls block."""
        self.settimeout(None if blocking else 0.0)

    def setsockopt(self, level: int, name: int, value: int | bytes) -> None:
        """Sets an option."""
        raw = value if isinstance(value, bytes) else struct.pack("=i", value)
        _checked(self._library.ringway_setsockopt(self._number, level, name, raw, len(raw)))

    def getsockopt(self, level: int, name: int, size: int = 0) -> int | bytes:
        """An option: a number, or its bytes if a size is given."""
        raw, len_ = ctypes.create_string_buffer(size or 4), ctypes.c_uint(size or 4)
        _checked(self._library.ringway_getsockopt(self._number, level, name, raw, ctypes.byref(len_)))
        return raw.raw[: len_.value] if size else int(struct.unpack("=i", raw.raw)[0])

    def getsockname(self) -> Address:
        """The own address."""
        return self._name(self._library.ringway_getsockname)

    def getpeername(self) -> Address:
        """The peer's address."""
        return self._name(self._library.ringway_getpeername)

    def _name(self, call: Any) -> Address:
        raw, size = ctypes.create_string_buffer(128), ctypes.c_uint(128)
        _checked(call(self._number, raw, ctypes.byref(size)))
        return _unpack(raw.raw)

    def shutdown(self, how: int) -> None:
        """Ends one or both directions."""
        _checked(self._library.ringway_shutdown(self._number, int(how)))

    def makefile(
        self,
        mode: str = "r",
        buffering: int = -1,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """A file of the connection, which stays open until it is closed too."""
        if not mode or set(mode) - set("rwb"):
            raise ValueError(f"mode {mode!r}: use r, w, rw, with b for bytes")
        raw = _Stream(self, "r" in mode or "w" not in mode, "w" in mode)
        self._files += 1
        if buffering == 0:
            if "b" not in mode:
                raise ValueError("a text file needs a buffer")
            return raw  # type: ignore[return-value]
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffer: Any
        if raw.readable() and raw.writable():
            buffer = io.BufferedRWPair(raw, raw, size)
        else:
            buffer = io.BufferedReader(raw, size) if raw.readable() else io.BufferedWriter(raw, size)
        if "b" in mode:
            return buffer  # type: ignore[no-any-return]
        return io.TextIOWrapper(buffer, encoding, errors, newline, line_buffering=buffering == 1)

    def close(self) -> None:
        """Closes the socket, when its files are closed too."""
        self._closed = True
        if self._files == 0 and self._number >= 0:
            number, self._number = self._number, -1
            self._library.ringway_close(number)

    def _file_closed(self) -> None:
        self._files -= 1
        if self._closed:
            self.close()


class _Stream(io.RawIOBase):
    def __init__(self, socket: Socket, reads: bool, writes: bool) -> None:
        self._socket, self._reads, self._writes = socket, reads, writes

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def readinto(self, out: Any) -> int | None:
        try:
            return self._socket.recv_into(out)
        except BlockingIOError:
            return None

    def write(self, data: Any) -> int | None:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return None

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._socket._file_closed()
