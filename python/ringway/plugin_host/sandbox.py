"""Confines a worker before it runs a plugin's code: descriptors, environment, file system, processes,
sockets and memory.

Attack: a plugin. Its author may write files into a folder, and nothing else; a plugin must have no effect
other than its answers. The program `ringway` confined the supervisor before it started: without its rights,
and under a separate user if it is root. The restrictions here are added in the workers; `ringway` supplies
their filters, since it knows the kernel's numbers.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
    # Libraries that would start threads on import.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
# From <linux/prctl.h> and <linux/seccomp.h>; the call's number is the same on every architecture.
_PDEATHSIG, _DUMPABLE, _SECCOMP, _FILTER, _LANDLOCK_RESTRICT_SELF = 1, 4, 22, 2, 446
_HOST = os.getpid()
# The time zone determines the local hour.
_KEPT = {name: value for name, value in os.environ.items() if name == "TZ"}
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """A worker's permissions and limits."""

    memory: int = 1024
    """MiB of address space in addition to the inventory and Python."""
    network: bool = False
    """Whether it may make network connections."""
    filters: tuple[bytes, ...] = ()
    """Seccomp filters in loading order; empty if the kernel has no seccomp."""
    ruleset: int | None = None
    """The descriptor of the landlock ruleset, if the kernel has landlock."""


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def confine(folder: str, limits: Limits, kept: set[int]) -> None:
    """Confines this process permanently; only the descriptors `kept`, and 0 to 2, stay open."""
    # A change of user would reset this; there is none after this.
    _call(_libc.prctl, _PDEATHSIG, signal.SIGKILL)
    if os.getppid() != _HOST:
        os._exit(1)
    os.environ.clear()
    os.environ.update(ENVIRONMENT | _KEPT)
    os.chdir(folder)
    sys.dont_write_bytecode = True
    _close_others(kept | ({limits.ruleset} if limits.ruleset is not None else set()))
    _limit(limits)
    _call(_libc.prctl, _DUMPABLE, 0)
    if limits.ruleset is not None:
        _call(_libc.syscall, _LANDLOCK_RESTRICT_SELF, limits.ruleset, 0)
        os.close(limits.ruleset)
    for program in limits.filters:
        described = _Program(len(program) // 8, program)
        _call(_libc.prctl, _SECCOMP, _FILTER, ctypes.byref(described))
    if not limits.filters:
        # The only protection from forks without seccomp.
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _call(call: ctypes._NamedFuncPointer, *arguments: object) -> None:
    longs = [ctypes.c_long(value) if isinstance(value, int) else value for value in (*arguments, 0, 0)]
    if call(*longs) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _close_others(kept: set[int]) -> None:
    low = 3
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _limit(limits: Limits) -> None:
    def at_most(what: int, value: int) -> None:
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))

    at_most(resource.RLIMIT_AS, _address_space() + (limits.memory << 20))
    # Python ignores the signal; writing to a file then fails.
    at_most(resource.RLIMIT_FSIZE, 0)
    at_most(resource.RLIMIT_CORE, 0)
    at_most(resource.RLIMIT_NOFILE, 64)


def _address_space() -> int:
    """The address space of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
