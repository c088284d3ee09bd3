"""Seccomp: the system calls a plugin can't make. A list of the forbidden, since Python and its libraries
make many."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from .libc import PR_SET_SECCOMP, prctl

_FILTER = 2
# Each call's number on x86-64 and on arm64.
_FORBIDDEN = {
    # Processes, and becoming another program.
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "personality": (135, 92),
    # Other processes.
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    # Memory that outlives the process or isn't counted as its own.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # The kernel's wide doors.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "seccomp": (317, 277),
    "fanotify_init": (300, 262),
    # The system.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # Changing files, which landlock doesn't know of or may not be there for.
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "creat": (85, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "truncate": (76, 45),
    # Serving others.
    "bind": (49, 200),
    "listen": (50, 201),
}
_CLONE, _CLONE3, _KILL, _TGKILL = (56, 220), (435, 435), (62, 129), (234, 131)
_SOCKET, _PRCTL, _PRLIMIT = (41, 198), (157, 167), (302, 261)
_MACHINES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}
_THREAD = 0x0001_0000
_FAMILIES = (2, 10, 16)
"""IPv4, IPv6, and netlink, which looking a name up takes."""
_SET_NAME, _SET_VMA = 15, 0x5356_4D41
# The classic BPF of seccomp: load a word of the call, compare, return.
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCH, _FIRST = 0, 4, 16
_ALLOW, _KILL_PROCESS = 0x7FFF_0000, 0x8000_0000


def available() -> bool:
    """Whether this machine's calls are known here and the kernel has seccomp."""
    return platform.machine() in _MACHINES and os.path.exists("/proc/sys/kernel/seccomp")


def forbid(network: bool) -> bool:
    """Forbids the calls in this thread and those it makes; whether that was possible."""
    if not available():
        return False
    program = _program(network)
    filters = ctypes.create_string_buffer(program, len(program))
    described = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(filters)), 16
    )
    try:
        prctl(PR_SET_SECCOMP, _FILTER, pointer=ctypes.byref(described))
    except OSError:
        return False
    return True


def _program(network: bool) -> bytes:
    column, arch = _MACHINES[platform.machine()]
    deny = _return(0x0005_0000 | errno.EPERM)
    code = _op(_LOAD, _ARCH) + _op(_EQUAL, arch, 1, 0) + _return(_KILL_PROCESS) + _op(_LOAD, _NUMBER)
    if column == 0:
        # The x32 calls: the same ones by other numbers.
        code += _op(_AT_LEAST, 0x4000_0000, 0, 1) + _return(0x0005_0000 | errno.ENOSYS)
    for numbers in _FORBIDDEN.values():
        number = numbers[column]
        if number is not None:
            code += _op(_EQUAL, number, 0, 1) + deny
    # The flags of `clone3` lie in memory, where no filter can look. Told there is none, the C library takes
    # `clone`.
    code += _op(_EQUAL, _CLONE3[column], 0, 1) + _return(0x0005_0000 | errno.ENOSYS)
    # Threads, but no processes.
    code += _when(_CLONE[column], _op(_AND, _THREAD) + _op(_EQUAL, 0, 0, 1) + deny)
    itself = _op(_EQUAL, os.getpid(), 1, 0) + deny
    code += _when(_KILL[column], itself) + _when(_TGKILL[column], itself)
    code += _when(_PRLIMIT[column], _op(_EQUAL, 0, 1, 0) + deny)
    code += _when(_PRCTL[column], _one_of((_SET_NAME, _SET_VMA)) + deny)
    code += _when(_SOCKET[column], (_one_of(_FAMILIES) if network else b"") + deny)
    return code + _return(_ALLOW)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _return(value: int) -> bytes:
    return _op(_RETURN, value)


def _when(number: int, judge: bytes) -> bytes:
    """Judges one call by its first argument; what `judge` doesn't refuse is allowed."""
    body = _op(_LOAD, _FIRST) + judge + _return(_ALLOW)
    return _op(_EQUAL, number, 0, len(body) // 8) + body


def _one_of(values: tuple[int, ...]) -> bytes:
    """Passes over the next operation if the value is one of these."""
    ops = b""
    for left in range(len(values), 0, -1):
        ops += _op(_EQUAL, values[len(values) - left], left, 0)
    return ops
