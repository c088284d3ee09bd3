"""System calls that Python has no names for."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def prctl(option: int, *values: int, pointer: object = None) -> None:
    """`prctl(2)`; `pointer` is the third argument if given."""
    arguments = [ctypes.c_ulong(value) for value in values]
    if pointer is not None:
        arguments.append(pointer)  # type: ignore[arg-type]
    arguments += [ctypes.c_ulong(0)] * (4 - len(arguments))
    _checked(_libc.prctl(ctypes.c_int(option), *arguments))


def syscall(number: int, *values: object) -> int:
    """`syscall(2)`; whole numbers are passed as long."""
    return _checked(_libc.syscall(ctypes.c_long(number), *(_argument(value) for value in values)))


def _argument(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
