"""Users and capabilities: a plugin has none, and is nobody where nobody can read Python."""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import sys
import sysconfig

from .libc import PR_CAPBSET_DROP, prctl, syscall

NOBODY = 65_534
_VERSION_3 = 0x2008_0522
_CAPSET = 126 if platform.machine() == "x86_64" else 91


def drop(folder: str) -> None:
    """Gives up every capability, and root for nobody if nobody can read what a worker needs."""
    if os.geteuid() == 0:
        for capability in range(64):
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError:
                break  # There are no more of them, or none is ours.
        if nobody_can_run(folder):
            try:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            except OSError:
                pass  # Root of a user namespace without a nobody; it has what its maker has.
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    syscall(_CAPSET, ctypes.byref(header), ctypes.byref(none))


def nobody_can_run(folder: str) -> bool:
    """Whether other users can read Python, this package and the folder."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    needed = [folder, package, sys.prefix, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    return all(_open_to_others(os.path.realpath(path)) for path in needed)


def _open_to_others(path: str) -> bool:
    try:
        if not os.stat(path).st_mode & stat.S_IROTH:
            return False
        while True:
            if not os.stat(path).st_mode & stat.S_IXOTH:
                return False
            if path == "/":
                return True
            path = os.path.dirname(path)
    except OSError:
        return False
