"""What a worker gives up before it runs a plugin's code: descriptors, environment, most of the file system,
processes, sockets, memory without end.

Attack: a plugin. It is code of somebody who may write files into a folder, and no more; what it can do must
end with its answers. The supervisor was confined by the program `ringway` before it started: it has no rights
of that program's, and a user of its own where that is root. What is added here holds for workers alone; its
parts come from `ringway` too, which knows the kernel's numbers.
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
    # Libraries that would start threads when they are imported.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
# Of <linux/prctl.h> and <linux/seccomp.h>; the call's number is the same on every architecture.
_PDEATHSIG, _DUMPABLE, _SECCOMP, _FILTER, _LANDLOCK_RESTRICT_SELF = 1, 4, 22, 2, 446
_HOST = os.getpid()
# The time zone says what hour it is.
_KEPT = {name: value for name, value in os.environ.items() if name == "TZ"}
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """What a worker may have, and what confines it."""

    memory: int = 1024
    """MiB of address space beside what the inventory and Python take."""
    network: bool = False
    """Whether it may connect to others."""
    filters: tuple[bytes, ...] = ()
    """Seccomp's programs, in the order they are loaded; none if the kernel has no seccomp."""
    ruleset: int | None = None
    """The descriptor of landlock's ruleset, if the kernel has landlock."""


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def confine(folder: str, limits: Limits, kept: set[int]) -> None:
    """Confines this process for good; only the descriptors `kept`, and 0 to 2, stay open."""
    # Lost when a process changes its user, which none does any more here.
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
        # Nothing else keeps a plugin from forking then.
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
    # Python ignores the signal; a write to a file then fails.
    at_most(resource.RLIMIT_FSIZE, 0)
    at_most(resource.RLIMIT_CORE, 0)
    at_most(resource.RLIMIT_NOFILE, 64)


def _address_space() -> int:
    """Bytes this process has mapped."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
