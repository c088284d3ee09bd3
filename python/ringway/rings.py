"""Rings of a fabric's ports and pipes, by `libringway.so`: frames in and out as buffers.

    from ringway.rings import RX, Ring

    with Ring("/run/ringway/lab/a.sock") as ring:
        ring.send(b"\\xff" * 6 + b"\\x02\\0\\0\\0\\0\\1" + b"\\x88\\xb5" + bytes(46))
        ring.wait(RX)
        for frame in ring.frames():
            print(len(frame), bytes(frame[:14]))

A received frame is a memoryview of the ring's memory, without a copy; it is released when the ring is
synced. RINGWAY_LIBRARY names the library if it is not where libraries are. A ring belongs to one thread
at a time; calls that wait release the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from typing import Any

__all__ = ["RX", "TX", "Ring", "RingClosed"]

RX, TX = 1, 2
"""What to wait for: a frame to receive, room to send the longest frame."""

_library: ctypes.CDLL | None = None


class RingClosed(ConnectionResetError):
    """The port, or the pipe's other end, is gone. Open the ring again."""


def _load() -> ctypes.CDLL:
    global _library
    if _library is None:
        name = os.environ.get("RINGWAY_LIBRARY", "libringway.so.0")
        try:
            library = ctypes.CDLL(name, use_errno=True)
        except OSError as error:
            raise OSError(f"{error}; build it with `make -C clients/c`, and set RINGWAY_LIBRARY") from None
        pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        for name, result, arguments in [
            ("open", pointer, [ctypes.c_char_p]),
            ("close", None, [pointer]),
            ("tx", number, [pointer, pointer, size]),
            ("rx", ctypes.c_ssize_t, [pointer, pointer, size]),
            ("rx_view", number, [pointer, pointer, pointer]),
            ("tx_view", pointer, [pointer, pointer]),
            ("tx_commit", number, [pointer, size]),
            ("sync", number, [pointer]),
            ("poll", number, [pointer, number, number]),
            ("arm", number, [pointer, number]),
            ("fd", number, [pointer]),
            ("unsent", ctypes.c_uint, [pointer]),
            ("longest", size, [pointer]),
            ("error", ctypes.c_char_p, []),
        ]:
            call = getattr(library, f"ringway_{name}")
            call.restype, call.argtypes = result, arguments
        _library = library
    return _library


class _Handle:
    """A ring of the library. It is closed when neither the ring nor a buffer of it is used any more."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.pointer: int | None = None
        self.library = _load()
        self.pointer = self.library.ringway_open(os.fsencode(path))
        if not self.pointer:
            raise self.error()

    def __del__(self) -> None:
        if self.pointer:
            self.library.ringway_close(self.pointer)

    def error(self) -> OSError:
        """The error of the last call."""
        number, text = ctypes.get_errno(), self.library.ringway_error().decode(errors="replace")
        return RingClosed(number, text) if number == errno.ECONNRESET else OSError(number, text)

    def view(self, address: int, size: int) -> memoryview:
        """Memory of the ring, which stays while it is viewed."""
        memory: Any = (ctypes.c_ubyte * size).from_address(address)
        memory.ring = self
        return memoryview(memory).cast("B")


class Ring:
    """A program's ring: of the port or pipe whose socket is `path`; in a guest, of the PCI device with this
    folder.

    Waits until the port has no other program, and on a pipe until its other end is there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._handle: _Handle | None = None
        self._views: list[memoryview] = []
        self._handle = _Handle(path)

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> tuple[_Handle, ctypes.CDLL, int]:
        handle = self._handle
        if handle is None or not handle.pointer:
            raise ValueError("the ring is closed")
        return handle, handle.library, handle.pointer

    def _checked(self, result: int) -> int:
        if result < 0 and self._handle:
            raise self._handle.error()
        return result

    def _release(self) -> None:
        """Ends the use of buffers: their slots are the other side's."""
        for view in self._views:
            view.release()
        self._views.clear()

    def send(self, frame: Any) -> bool:
        """Copies a frame, any buffer, into the ring, which `sync` or `wait` shows; False: no room."""
        _, library, ring = self._open()
        raw = frame if isinstance(frame, bytes) else bytes(frame)
        return self._checked(library.ringway_tx(ring, raw, len(raw))) == 1

    def slot(self) -> memoryview | None:
        """The memory of the next frame to send, to be written in place; None: there is no room now."""
        handle, library, ring = self._open()
        size = ctypes.c_size_t()
        address = library.ringway_tx_view(ring, ctypes.byref(size))
        if not address:
            if ctypes.get_errno() == errno.EAGAIN:
                return None
            raise handle.error()
        self._views.append(view := handle.view(address, size.value))
        return view

    def commit(self, size: int) -> bool:
        """Sends the first `size` bytes of `slot`."""
        _, library, ring = self._open()
        return self._checked(library.ringway_tx_commit(ring, size)) == 1

    def receive(self) -> memoryview | None:
        """The next frame, in the ring's memory until the ring is synced; None: there is none.

        The other side can change its bytes: copy what is checked first and used later. A frame that takes
        several slots is a copy.
        """
        handle, library, ring = self._open()
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        found = self._checked(library.ringway_rx_view(ring, ctypes.byref(address), ctypes.byref(size)))
        if found == 2:
            out = ctypes.create_string_buffer(1 << 17)
            size.value = self._checked(library.ringway_rx(ring, out, len(out)))
            return memoryview(out.raw[: size.value])
        if found == 0 or not address.value:
            return None
        self._views.append(view := handle.view(address.value, size.value).toreadonly())
        return view

    def frames(self) -> Iterator[memoryview]:
        """The frames that are there, as `receive`."""
        while (frame := self.receive()) is not None:
            yield frame

    def sync(self) -> None:
        """Shows what was sent, and gives what was received back. RingClosed: the other side is gone."""
        _, library, ring = self._open()
        self._release()
        self._checked(library.ringway_sync(ring))

    def wait(self, events: int, timeout: float | None = None) -> int:
        """Syncs, and waits at most `timeout` seconds for RX, TX or both; those that came, 0 if none did."""
        _, library, ring = self._open()
        self._release()
        millis = -1 if timeout is None else max(int(timeout * 1000), 0)
        return self._checked(library.ringway_poll(ring, events, millis))

    def arm(self, events: int) -> bool:
        """For a poll loop: syncs; False: one of `events` is there; True: poll `fileno` for POLLIN."""
        _, library, ring = self._open()
        self._release()
        return self._checked(library.ringway_arm(ring, events)) == 0

    def fileno(self) -> int:
        """The descriptor to poll after `arm`; -1: there is none."""
        _, library, ring = self._open()
        return int(library.ringway_fd(ring))

    def flush(self) -> None:
        """Waits until the other side took all that was sent: what it did not take is lost by `close`."""
        _, library, ring = self._open()
        pause = 0.0
        while True:
            try:
                self.wait(0, pause)
            except RingClosed:
                # It may leave as soon as it has all.
                if library.ringway_unsent(ring):
                    raise
            if not library.ringway_unsent(ring):
                return
            pause = 0.001

    @property
    def longest(self) -> int:
        """Longest frame in bytes."""
        _, library, ring = self._open()
        return int(library.ringway_longest(ring))

    def close(self) -> None:
        """Gives back what was received, and closes the ring once no buffer of it is used any more."""
        self._release()
        if self._handle is not None and self._handle.pointer:
            # The other side may have left already.
            self._handle.library.ringway_sync(self._handle.pointer)
        self._handle = None
