"""The supervisor's handle to a worker: a process with a channel and deadlines."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable

from .lines import LineReader, TooLong, read_some, write_all

MOST_OUTPUT = 4096
ACKNOWLEDGED = b"{}"
"""A worker's acknowledgement of an inventory update."""
_MOST_UNACKNOWLEDGED = 64
_LOOK = 0.05
"""Seconds between checks of a busy worker's CPU time."""
_libc = ctypes.CDLL(None)


class Late(Exception):
    """The worker exceeded its time limit, or its CPU time limit if the text says so."""


class Ended(Exception):
    """The worker's process ended; the text has the reason."""


class Process:
    """A forked worker. `main` gets the channel's and the output's descriptor, and must not return.

    It runs only while it loads, answers or applies an update. Otherwise it is stopped (SIGSTOP), so that no
    thread or timer of a plugin continues after an answer."""

    def __init__(self, main: Callable[[int, int], object], client: int) -> None:
        ours, theirs = socket.socketpair()
        out_ours, out_theirs = os.pipe2(os.O_CLOEXEC)
        # Room for an answer about thousands of hosts, so that it takes one wake-up.
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.pid = os.fork()
        if self.pid == 0:
            _child(main, theirs.fileno(), out_theirs)
        theirs.close()
        os.close(out_theirs)
        os.set_blocking(out_ours, False)
        self._channel = ours
        self._reader = LineReader(ours.fileno())
        self._out = out_ours
        self._output = b""
        self._client = client
        self._ended: str | None = None
        self._stopped = False
        self._unacknowledged = 0
        self._acknowledge_by = 0.0
        clock = ctypes.c_int()
        _libc.clock_getcpuclockid(self.pid, ctypes.byref(clock))
        self._clock = clock.value

    def send(self, line: bytes, deadline: float) -> None:
        """Writes a line to the worker."""
        self._run(True)
        if not write_all(self._channel.fileno(), line, deadline):
            raise Ended(self.end()) if self.has_ended() else Late

    def update(self, line: bytes, deadline: float) -> None:
        """Writes a line that the worker only acknowledges."""
        # Unread acknowledgements would fill the channel.
        if self._unacknowledged >= _MOST_UNACKNOWLEDGED and not self.idle():
            raise Ended(self.end())
        self.send(line, deadline)
        self._unacknowledged += 1
        self._acknowledge_by = deadline

    def receive(self, deadline: float, cpu: float) -> bytes:
        """The worker's next line, for which it may use a limited CPU time in seconds."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._out, select.POLLIN)
        # Only the client's end is reported.
        poll.register(self._client, 0)
        most = self._used() + cpu
        while True:
            line = self._take()
            if line is not None:
                return line
            if self._reader.ended:
                raise Ended(self.end())
            left = deadline - time.monotonic()
            if left <= 0:
                raise Late
            # Attack: several threads, each of which uses a core.
            if self._used() > most:
                raise Late(f"it used more than {cpu:g} s of CPU time")
            for descriptor, _ in poll.poll(min(left, _LOOK) * 1000):
                if descriptor == self._client:
                    # Attack: the client is gone, and a worker spins until its time limit.
                    raise BrokenPipeError
                if descriptor == self._out:
                    if self.drain():
                        poll.unregister(self._out)
                else:
                    self._reader.fill()

    def _take(self) -> bytes | None:
        """The next received line that is not an acknowledgement."""
        try:
            while True:
                line = self._reader.take()
                if line != ACKNOWLEDGED or self._unacknowledged == 0:
                    return line
                self._unacknowledged -= 1
        except TooLong as error:
            self.kill()
            raise Ended(f"it answered with {error}") from None

    def _used(self) -> float:
        """CPU time used by the worker in seconds."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return 0.0

    def _run(self, running: bool) -> None:
        if self._stopped == running and self._ended is None:
            os.kill(self.pid, signal.SIGCONT if running else signal.SIGSTOP)
            self._stopped = not running

    def rest(self) -> None:
        """Stops the worker until something is sent to it, unless it has not acknowledged its updates yet."""
        if self._unacknowledged == 0:
            self._run(False)

    def descriptors(self) -> list[int]:
        """The descriptors that become readable when the worker writes or ends."""
        return [self._channel.fileno(), self._out]

    def idle(self) -> bool:
        """Checks the worker between requests; returns whether it is alive, and silent except for expected
        acknowledgements."""
        self.drain()
        self._reader.fill()
        try:
            well = self._take() is None and not self._reader.ended
        except Ended:
            return False
        self.rest()
        return well and (self._unacknowledged == 0 or time.monotonic() < self._acknowledge_by)

    def drain(self) -> bool:
        """Reads output that bypassed Python's stdout and stderr; returns whether it has ended."""
        data = read_some(self._out, 1 << 16)
        if data:
            # Attack: endless output. The end is the most useful part if the process died.
            self._output = (self._output + data)[-MOST_OUTPUT:]
        return data == b""

    def output(self) -> str:
        """The end of that output, once."""
        self.drain()
        output, self._output = self._output, b""
        return output.decode("utf-8", "replace").strip()

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._ended = _how(status)
        return self._ended is not None

    def kill(self) -> None:
        """Ends the process."""
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            self._ended = _how(os.waitpid(self.pid, 0)[1])

    def end(self) -> str:
        """How it ended; a process that only closed its channel is killed."""
        deadline = time.monotonic() + 0.2
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(0.002)
        self.kill()
        return self._ended or ""

    def close(self) -> None:
        """Kills the process and forgets it."""
        self.kill()
        self._channel.close()
        if self._out >= 0:
            os.close(self._out)
            self._out = -1


def _child(main: Callable[[int, int], object], channel: int, out: int) -> None:
    try:
        main(channel, out)
    except BaseException:  # The fork must not continue as the supervisor.
        try:
            os.write(2, traceback.format_exc()[-MOST_OUTPUT:].encode("utf-8", "replace"))
        except OSError:
            pass
    finally:
        os._exit(70)


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"its process exited with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"its process was ended by {name}"
