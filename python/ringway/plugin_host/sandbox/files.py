"""Landlock: a worker reads Python and its folder, and writes nothing."""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig

from .libc import syscall

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_GET_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_NEWEST_FILES = (1 << 16) - 1
_BIND, _CONNECT = 1 << 0, 1 << 1
_SCOPES = 0b11
# What the C library and Python read of the system.
_SYSTEM = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/lib64",
    "/usr/share/zoneinfo",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/ld.so.cache",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
)
_NETWORK = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
    "/run/systemd/resolve",
)


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def _version() -> int:
    try:
        return syscall(_CREATE, None, 0, _GET_VERSION)
    except OSError:
        return 0


def available() -> bool:
    """Whether the kernel has landlock."""
    return _version() > 0


def forbid(folder: str, network: bool) -> bool:
    """Forbids what the kernel can forbid; whether it could anything."""
    version = _version()
    if version <= 0:
        return False
    ruleset = _Ruleset(_ALL_FILES.get(version, _NEWEST_FILES))
    size = 8
    if version >= 4:
        # Nobody serves; whoever may connect isn't kept from it here.
        ruleset.network, size = _BIND if network else _BIND | _CONNECT, 16
    if version >= 6:
        ruleset.scopes, size = _SCOPES, 24
    rules = syscall(_CREATE, ctypes.byref(ruleset), size, 0)
    try:
        for path in _readable(folder) + (list(_NETWORK) if network else []):
            _allow(rules, path, _EXECUTE | _READ_FILE | _READ_DIR)
        _allow(rules, os.devnull, _READ_FILE | _WRITE_FILE)
        syscall(_RESTRICT, rules, 0)
    finally:
        os.close(rules)
    return True


def _readable(folder: str) -> list[str]:
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    stdlib = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # The folder a program was started in is on the path too and isn't Python's.
    beyond = [path for path in sys.path if "-packages" in path or path.endswith(".zip")]
    return [folder, package, *stdlib, *beyond, *_SYSTEM]


def _allow(rules: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= ~_READ_DIR
        syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(_Beneath(access, descriptor)), 0)
    finally:
        os.close(descriptor)
