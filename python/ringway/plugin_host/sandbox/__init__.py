"""What a worker gives up before it runs a plugin's code: descriptors, environment, privileges, most of the
file system, processes, sockets, memory without end.

Attack: a plugin. It is code of somebody who may write files into a folder, and no more; what it can do must
end with its answers. The system calls are the fence that matters; landlock and limits stand behind it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from dataclasses import dataclass

from . import files, identity, system_calls
from .libc import PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, prctl

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}


@dataclass(frozen=True)
class Limits:
    """What a worker may have."""

    memory: int = 1024
    """MiB of address space beside what the inventory and Python take."""
    network: bool = False
    """Whether it may connect to others."""


@dataclass(frozen=True)
class Available:
    """What this system can enforce."""

    seccomp: bool
    landlock: bool
    unprivileged: bool
    """Whether a plugin runs as a user who owns nothing."""


def available(folder: str) -> Available:
    """What confining will do here."""
    return Available(
        seccomp=system_calls.available(),
        landlock=files.available(),
        unprivileged=os.geteuid() != 0 or identity.nobody_can_run(folder),
    )


def confine(folder: str, limits: Limits, kept: set[int]) -> None:
    """Confines this process for good; only the descriptors `kept`, and 0 to 2, stay open."""
    parent = os.getppid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    _close_others(kept)
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    if "TZ" in _KEPT:
        os.environ["TZ"] = _KEPT["TZ"]
    os.chdir(folder)
    sys.dont_write_bytecode = True
    identity.drop(folder)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_DUMPABLE, 0)
    _limit(limits)
    files.forbid(folder, limits.network)
    if not system_calls.forbid(limits.network):
        # Without seccomp nothing else keeps a plugin from forking; a user's number of processes does, but
        # for root.
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


# The time zone says what hour it is.
_KEPT = {name: value for name, value in os.environ.items() if name == "TZ"}


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
