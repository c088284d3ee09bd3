"""Confinement of hostile plugins: files, messages, processes, system calls."""

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

from ringway.plugin_client import PROGRAM, PluginError, PluginHost

from .support import HOSTS, VM, VMS, HostCase, put, until

GOOD = "class Good:\n    def do_filter(self, hosts, vm, args):\n        print(hosts)\n"
SECRET = "secret_word_of_root = (\n"


class Family:
    """The processes of a host's session."""

    def __init__(self, host):
        self.host = host._process.pid

    def workers(self):
        """The processes except the host itself, with their states."""
        found = {}
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as file:
                    state, _, _, session = file.read().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(session) == self.host and int(name) != self.host and state not in "ZX":
                found[int(name)] = state
        return found

    def rest(self):
        """Whether exactly one worker is left, and stopped."""
        return list(self.workers().values()) == ["T"]


class FilesTest(HostCase):
    files = {"good.py": GOOD}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        outside = tempfile.TemporaryDirectory()
        cls.addClassCleanup(outside.cleanup)
        cls.secret = os.path.join(outside.name, "secret.py")
        put(outside.name, "secret.py", SECRET)

    def test_only_regular_files_of_the_folders_owner_are_read(self):
        at = lambda name: os.path.join(self.folder, name)  # noqa: E731
        os.symlink(self.secret, at("link.py"))
        os.symlink("good.py", at("near.py"))
        os.mkfifo(at("pipe.py"))
        os.mkdir(at("tree.py"))
        expected = {
            "link.py": "is a link",
            "near.py": "is a link",
            "pipe.py": "is no regular file",
            "tree.py": "directory",
        }
        if os.geteuid() == 0:
            put(self.folder, "given.py", SECRET)
            os.chown(at("given.py"), 12345, 12345)
            expected["given.py"] = "belongs to user 12345"
        generation = 0

        def problems():
            nonlocal generation
            found = self.host.call("discover")
            generation = found["generation"]
            return {problem["file"]: problem["text"] for problem in found["problems"]}

        self.assertTrue(until(lambda: problems().keys() == expected.keys()), problems())
        for name, text in problems().items():
            self.assertIn(expected[name], text, name)
        self.assertNotIn("secret_word", json.dumps(self.host.ask("discover")))
        self.assertEqual(self.ask("filter", "Good")["ok"], {"hosts": "111"})
        # A change of a link's target is not visible either.
        put(os.path.dirname(self.secret), "secret.py", SECRET + "other = 1\n")
        self.assertEqual(problems().keys(), expected.keys())


class ReadingTest(HostCase):
    files = {
        "reads.py": """
            import os
            from ringway.placement import Filter

            class Reads(Filter):
                def do_filter(self, hosts, vm, args):
                    for path in args["paths"].split(":"):
                        try:
                            if os.path.isdir(path):
                                os.listdir(path)
                            else:
                                open(path, "rb").read(1)
                            print("read", path)
                        except OSError:
                            pass
                    import below.leaf
                    return hosts
        """
    }

    def test_a_plugin_reads_its_folder_and_python(self):
        os.mkdir(os.path.join(self.folder, "below"))
        put(os.path.join(self.folder, "below"), "leaf.py", "")
        os.symlink("/etc", os.path.join(self.folder, "out"))
        os.symlink("/etc/passwd", os.path.join(self.folder, "passwd"))
        outside = ["out/passwd", "passwd", "/etc/passwd", "/proc/self/maps", "/proc", "/etc", "/", "/root"]
        outside += [os.path.expanduser("~"), __file__, "/dev/kmsg", "/dev/mem", "/sys/kernel", "/tmp", "/run"]
        answer = self.ask("filter", "Reads", properties={"paths": ":".join([*outside, os.__file__, "."])})
        self.assertEqual(answer["ok"], {"hosts": "111"}, answer)
        self.assertEqual(answer["output"].splitlines(), [f"read {os.__file__}", "read ."])


UNIT = (
    b'{"name":"X","kinds":["filter"],"description":{"filter":""},"properties":"","style":"ovirt",'
    b'"file":"x.py"'
)
FORGED = {
    "long": b'{"loaded":[' + UNIT + b',"line":' + b"9" * 400 + b'}],"problems":[]}',
    "longer": b'{"loaded":[' + UNIT + b',"line":' + b"9" * 100_000 + b'}],"problems":[]}',
    "fraction": b'{"loaded":[' + UNIT + b',"line":1e400}],"problems":[]}',
    "nan": b'{"loaded":[' + UNIT + b',"line":NaN}],"problems":[]}',
    "deep": b'{"loaded":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "nothing": b'{"loaded":[{}]}',
    "types": b'{"loaded":{"a":1},"problems":7}',
    "wide": b'{"loaded":[' + b"[]," * 2_000_000 + b"[]]}",
    "names": b'{"loading":"' + b"x" * 3_000_000 + b'"}',
    "endless": b"x" * (9 << 20),
    "bytes": b"\xff\xfe\x00",
    "list": b"[1]",
}


class ChannelTest(unittest.TestCase):
    """Whatever a file's code writes to its worker's channel while it is loaded, the host continues, reports
    the file, and leaves no process."""

    def test_what_a_worker_says_is_bounded_and_typed(self):
        for name, line in FORGED.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                put(folder, "a_good.py", GOOD)
                with open(os.path.join(folder, "line"), "wb") as file:
                    file.write(line + b"\n")
                text = """
                    import os
                    line = open("line", "rb").read()
                    for descriptor in range(3, 64):
                        at = 0
                        try:
                            while at < len(line):
                                at += os.write(descriptor, line[at:])
                        except OSError:
                            pass
                    while True:
                        pass
                """
                put(folder, "forges.py", text)
                with PluginHost(folder, stderr=subprocess.DEVNULL) as host:
                    found = host.call("discover")
                    self.assertEqual([unit["name"] for unit in found["units"]], ["Good"])
                    self.assertEqual([problem["file"] for problem in found["problems"]], ["forges.py"])
                    family = Family(host)
                    self.assertTrue(until(family.rest), family.workers())

    def test_a_request_of_numbers_that_are_none_ends_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            with PluginHost(folder, stderr=subprocess.DEVNULL) as host:
                hosts = [{"slot": 0, "id": "a", "memory": 10**400}]
                answer = host.ask("snapshot", revision=1, last=True, hosts=hosts, vms=[])
                self.assertEqual(answer["error"]["kind"], "request")
                self.assertEqual(host.call("discover")["units"], [])


HOSTILE = """
    import ctypes, fcntl, hashlib, mmap, os, resource, signal, socket, sys, threading, time
    from ringway.placement import Filter

    libc = ctypes.CDLL(None, use_errno=True)

    def spin():
        while True:
            pass

    class Hostile(Filter):
        def do_filter(self, hosts, vm, args):
            return getattr(self, args["do"])(hosts) or hosts

        def spins_on(self, hosts):
            threading.Thread(target=spin, daemon=True).start()

        def rings_on(self, hosts):
            signal.signal(signal.SIGVTALRM, lambda *_: spin())
            threading.Timer(0.001, lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)).start()

        def prints_on(self, hosts):
            def on():
                while True:
                    os.write(1, b"x" * 4096)
            threading.Thread(target=on, daemon=True).start()

        def hashes(self, hosts):
            def on():
                hashlib.pbkdf2_hmac("sha512", b"x", b"y", 1 << 31)
            for _ in range(8):
                threading.Thread(target=on, daemon=True).start()
            spin()

        def hangs(self, hosts):
            while True:
                try:
                    spin()
                except BaseException:
                    pass

        def nests(self, hosts):
            frame = sys._getframe()
            while "request" not in frame.f_locals:
                frame = frame.f_back
            answer = b'{"id":%d,"ok":{"hosts":%s%s}}' % (
                frame.f_locals["request"]["id"], b"[" * 100_000, b"]" * 100_000)
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, answer + b"\\\\n")
                except OSError:
                    pass
            spin()

        def who(self, hosts):
            print(os.getresuid(), os.getresgid(), os.getgroups())

        def threads(self, hosts):
            made = []
            try:
                while True:
                    made.append(threading.Thread(target=time.sleep, args=(0.2,)))
                    made[-1].start()
            except (RuntimeError, MemoryError):
                print(len(made) < 1000)

        def calls(self, hosts):
            parent, me = os.getppid(), os.getpid()
            number = {"x86_64": 0, "aarch64": 1}[os.uname().machine]

            def syscall(numbers, *arguments):
                if libc.syscall(numbers[number], *map(ctypes.c_long, arguments)) == -1:
                    raise OSError(ctypes.get_errno(), "refused")

            pair = socket.socketpair()
            place = ctypes.addressof(ctypes.create_string_buffer(4096))
            tried = {
                "nice of a parent": lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),
                "nice of a user": lambda: os.setpriority(os.PRIO_USER, 0, 19),
                "nice of a group": lambda: os.setpriority(os.PRIO_PGRP, 0, 19),
                "cores of a parent": lambda: os.sched_setaffinity(parent, {0}),
                "scheduler of a parent": lambda: os.sched_setscheduler(
                    parent, os.SCHED_IDLE, os.sched_param(0)),
                "parameters": lambda: os.sched_setparam(parent, os.sched_param(0)),
                "sched_setattr": lambda: syscall((314, 274), parent, place, 0),
                "ioprio of a user": lambda: syscall((251, 30), 3, os.getuid(), 3 << 13),
                "limits of a parent": lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE),
                "limits": lambda: resource.setrlimit(resource.RLIMIT_CPU, (1, 1)),
                "owner": lambda: fcntl.fcntl(pair[0], fcntl.F_SETOWN, parent),
                "owner of a kind": lambda: fcntl.fcntl(pair[0], 15, bytes(8)),
                "signal": lambda: fcntl.fcntl(pair[0], fcntl.F_SETSIG, signal.SIGKILL),
                "owner by ioctl": lambda: fcntl.ioctl(pair[0], 0x8901, bytes(4)),
                "group by ioctl": lambda: fcntl.ioctl(pair[0], 0x8902, bytes(4)),
                "lease": lambda: fcntl.fcntl(os.open("hostile.py", os.O_RDONLY), fcntl.F_SETLEASE, 0),
                "lock": lambda: fcntl.flock(os.open("hostile.py", os.O_RDONLY), fcntl.LOCK_EX),
                "notify": lambda: fcntl.fcntl(os.open(".", os.O_RDONLY), fcntl.F_NOTIFY, 1),
                "datagrams": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
                "raw pair": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW),
                "packets": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
                "unix": lambda: socket.socket(socket.AF_UNIX),
                "internet": lambda: socket.socket(),
                "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
                "io_setup": lambda: syscall((206, 0), 1, place),
                "io_uring": lambda: syscall((425, 425), 1, place),
                "fork": os.fork,
                "vfork": lambda: os.posix_spawn("/bin/true", ["true"], {}),
                "forkpty": os.forkpty,
                "clone": lambda: syscall((56, 220), signal.SIGCHLD, 0, 0, 0, 0),
                "clone into a namespace": lambda: syscall((56, 220), 0x1000_0011, 0, 0, 0, 0),
                "clone3": lambda: syscall((435, 435), place, 88),
                "unshare": lambda: syscall((272, 97), 0x1000_0000),
                "kill": lambda: os.kill(parent, 0),
                "kill all": lambda: os.kill(-1, 0),
                "tgkill": lambda: syscall((234, 131), parent, parent, 0),
                "queue": lambda: syscall((129, 138), parent, 0, place),
                "pidfd": lambda: os.pidfd_open(parent),
                "ptrace": lambda: syscall((101, 117), 16, parent, 0, 0),
                "memory": lambda: syscall((310, 270), parent, place, 1, place, 1, 0),
                "parent's death": lambda: syscall((157, 167), 1, 0, 0, 0, 0),
                "dumpable": lambda: syscall((157, 167), 4, 1, 0, 0, 0),
                "seccomp": lambda: syscall((317, 277), 1, 0, place),
                "user": lambda: os.setuid(0),
                "session": os.setsid,
                "group": lambda: os.setpgid(0, 0),
                "huge pages": lambda: mmap.mmap(-1, 2 << 20, flags=0x40022),
                "locked pages": lambda: mmap.mmap(-1, 4096, flags=0x2022),
                "mlock": lambda: syscall((151, 230), 1),
                "membarrier": lambda: syscall((324, 283), 2, 0, 0),
                "inotify": lambda: syscall((294, 26), 0),
                "memfd": lambda: os.memfd_create("x"),
                "keys": lambda: syscall((250, 219), 0, -3, 1),
                "mq": lambda: syscall((240, 180), place, 0x42, 0o600, 0),
                "shm": lambda: syscall((29, 194), 1, 4096, 0o1600),
                "bpf": lambda: syscall((321, 280), 0, place, 64),
                "fanotify": lambda: syscall((300, 262), 0, 0),
                "personality": lambda: syscall((135, 92), 0x0040000),
                "write": lambda: os.open("hostile.py", os.O_WRONLY),
                "make": lambda: os.open("new", os.O_WRONLY | os.O_CREAT),
                "unnamed": lambda: os.open(".", os.O_WRONLY | os.O_TMPFILE),
                "xattr": lambda: os.setxattr("hostile.py", "user.x", b"x"),
                "times": lambda: os.utime("hostile.py", (0, 0)),
                "watch": lambda: os.open("/proc/self/mem", os.O_RDWR),
            }
            for name, call in tried.items():
                try:
                    call()
                except (OSError, ValueError):
                    continue
                print("could", name)

        def works(self, hosts):
            import asyncio, concurrent.futures, random, sqlite3, zoneinfo

            assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
            assert asyncio.run(asyncio.sleep(0, 7)) == 7
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                assert list(pool.map(abs, range(-9, 0))) == list(range(9, 0, -1))
            zoneinfo.ZoneInfo("UTC")
            ones = [time.time(), os.cpu_count(), os.getloadavg, resource.getrlimit(resource.RLIMIT_AS)]
            assert os.isatty(1) is False and os.stat(".") and random.SystemRandom().random() >= 0 and ones
            left, right = socket.socketpair()
            left.setblocking(False)
            left.send(b"x")
            assert right.recv(1) == b"x"
            with open("/dev/null", "w") as null:
                null.write("x")
"""


class CallsTest(HostCase):
    files = {"hostile.py": HOSTILE, "good.py": GOOD}
    arguments = ["--memory", "256"]

    def setUp(self):
        self.renew()
        super().setUp()

    def do(self, what, **fields):
        return self.ask("filter", "Hostile", properties={"do": what}, **{"limit_ms": 20_000, **fields})

    def test_no_call_reaches_another_process(self):
        answer = self.do("calls")
        self.assertEqual((answer.get("ok"), answer.get("output")), ({"hosts": "111"}, None), answer)

    def test_what_python_needs_works(self):
        answer = self.do("works")
        self.assertEqual(answer.get("ok"), {"hosts": "111"}, answer)

    def test_threads_have_an_end(self):
        answer = self.do("threads")
        self.assertIn(answer.get("output", "MemoryError"), ("True", "MemoryError"), answer)
        self.assertTrue(until(lambda: self.ask("filter", "Good").get("ok") == {"hosts": "111"}))

    def test_nothing_runs_after_an_answer(self):
        family = Family(self.host)
        for what in ("spins_on", "rings_on", "prints_on"):
            # A thread or timer left in the process continues with the next call.
            self.setUp()
            answer = self.do(what)
            self.assertEqual(answer.get("ok"), {"hosts": "111"}, (what, answer))
            self.assertTrue(until(family.rest), (what, family.workers()))
            # An update of the inventory also wakes the process.
            self.host.snapshot(1, HOSTS, VMS)
            self.assertTrue(until(family.rest), (what, family.workers()))
        self.assertTrue(until(lambda: self.ask("filter", "Good").get("ok") == {"hosts": "111"}))

    def test_cpu_time_has_a_limit(self):
        answer = self.do("hashes", limit_ms=1000)
        self.assertEqual(answer["error"]["kind"], "time", answer)
        self.assertTrue(until(lambda: len(Family(self.host).workers()) == 1))

    def test_an_answer_that_is_too_deep_is_the_units_failure(self):
        self.assertEqual(self.do("nests")["error"]["kind"], "result")
        self.assertTrue(until(lambda: self.ask("filter", "Good").get("ok") == {"hosts": "111"}))


class IdentityTest(unittest.TestCase):
    @unittest.skipIf(os.geteuid() != 0, "who is not root keeps its user")
    def test_each_folder_has_a_user_of_its_own(self):
        users = set()
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                put(folder, "hostile.py", HOSTILE)
                with PluginHost(folder, stderr=subprocess.DEVNULL) as host:
                    user = host.hello["sandbox"]["user"]
                    host.snapshot(1, HOSTS, VMS)
                    output = host.ask("filter", unit="Hostile", vm=VM, properties={"do": "who"})["output"]
                    self.assertEqual(output, f"({user}, {user}, {user}) ({user}, {user}, {user}) []")
                    with open(f"/proc/{host._process.pid}/status") as file:
                        status = dict(line.split(":", 1) for line in file)
                    # A folder readable only by its owner must be readable within landlock's rules.
                    self.assertEqual(int(status["CapEff"], 16) & ~(1 << 2), 0)
                    self.assertEqual(status["NoNewPrivs"].strip(), "1")
                    users.add(user)
        self.assertTrue(all(61_184 <= user < 65_520 for user in users), users)


class EndTest(unittest.TestCase):
    """A spinning worker ends with its supervisor, and the supervisor with its client."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        put(folder.name, "hostile.py", HOSTILE)
        self.host = PluginHost(folder.name, stderr=subprocess.DEVNULL)
        self.addCleanup(self.host.close)
        self.host.snapshot(1, HOSTS, VMS)
        self.family = Family(self.host)

    def hang(self):
        def ask():
            try:
                self.host.ask("filter", unit="Hostile", vm=VM, properties={"do": "hangs"}, limit_ms=30_000)
            except (PluginError, ValueError, OSError):
                pass

        thread = threading.Thread(target=ask)
        thread.start()
        self.addCleanup(thread.join)
        self.assertTrue(until(lambda: "R" in self.family.workers().values()))

    def test_workers_die_with_a_supervisor_that_is_killed(self):
        self.hang()
        os.kill(self.family.host, signal.SIGKILL)
        self.assertTrue(until(lambda: not self.family.workers()), self.family.workers())

    def test_workers_that_rest_die_too(self):
        self.assertTrue(until(self.family.rest))
        os.kill(self.family.host, signal.SIGKILL)
        self.assertTrue(until(lambda: not self.family.workers()), self.family.workers())

    def test_a_host_ends_when_nobody_reads_its_answers(self):
        process, vm = self.host._process, {"id": "x"}
        request = {"id": 9, "op": "filter", "unit": "Hostile", "vm": vm, "properties": {"do": "hangs"}}
        process.stdin.write(json.dumps({**request, "limit_ms": 30_000}).encode() + b"\n")
        process.stdin.flush()
        self.assertTrue(until(lambda: "R" in self.family.workers().values()))
        process.stdout.close()
        self.assertTrue(until(lambda: process.poll() is not None and not self.family.workers()))


def without_landlock():
    """Runs between fork and exec: makes `landlock_create_ruleset` fail as an unknown call."""
    load, refuse, allow = (0x20, 0, 0, 0), (0x06, 0, 0, 0x0005_0026), (0x06, 0, 0, 0x7FFF_0000)
    program = struct.pack("HBBI" * 4, *load, 0x15, 0, 1, 444, *refuse, *allow)
    described = struct.pack("HxxxxxxP", 4, ctypes.addressof(held := ctypes.create_string_buffer(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_long(0)
    one, two = ctypes.c_long(1), ctypes.c_long(2)
    if libc.prctl(38, one, zero, zero, zero) or libc.prctl(22, two, described, zero, zero):
        raise OSError(ctypes.get_errno(), f"no filter of {len(held)} bytes")


class LandlockTest(unittest.TestCase):
    def run_host(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            put(folder, "good.py", GOOD)
            return subprocess.run(
                [PROGRAM, "plugin-host", folder, *options],
                input=b'{"id": 1, "op": "discover"}\n',
                capture_output=True,
                preexec_fn=without_landlock,
                # A Python installation readable by other users.
                env={**os.environ, "PATH": f"/usr/bin:/bin:{os.environ['PATH']}"},
                timeout=60,
            )

    def test_without_landlock_plugins_run_only_if_allowed_explicitly(self):
        refused = self.run_host()
        self.assertEqual((refused.returncode, refused.stdout), (1, b""), refused)
        self.assertIn(b"the kernel has no landlock", refused.stderr)
        self.assertIn(b"unconfined", refused.stderr)
        allowed = self.run_host("--unconfined")
        lines = [json.loads(line) for line in allowed.stdout.splitlines()]
        self.assertEqual(len(lines), 2, allowed)
        self.assertEqual((lines[0]["sandbox"]["seccomp"], lines[0]["sandbox"]["landlock"]), (True, False))
        self.assertEqual([unit["name"] for unit in lines[1]["ok"]["units"]], ["Good"])


class NetworkTest(HostCase):
    arguments = ["--network"]
    files = {
        "net.py": """
            import socket
            from ringway.placement import Filter

            class Net(Filter):
                def do_filter(self, hosts, vm, args):
                    socket.socket().close()
                    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
                    family, kind = socket.AF_INET, socket.SOCK_STREAM
                    for name, make in {
                        "unix": lambda: socket.socket(socket.AF_UNIX),
                        "raw": lambda: socket.socket(family, socket.SOCK_RAW, 1),
                        "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
                        "vsock": lambda: socket.socket(socket.AF_VSOCK, kind),
                        "netfilter": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12),
                        "bind": lambda: socket.socket(family, kind).bind(("127.0.0.1", 0)),
                        "datagrams": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
                    }.items():
                        try:
                            make()
                            print("could", name)
                        except OSError:
                            pass
                    with socket.create_connection(("127.0.0.1", int(args["port"])), 5) as there:
                        print(there.recv(5).decode())
                    return hosts
        """
    }

    def test_a_plugin_connects_and_does_nothing_else(self):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])

            def greet():
                there, _ = server.accept()
                with there:
                    there.sendall(b"hello")

            thread = threading.Thread(target=greet)
            thread.start()
            answer = self.ask("filter", "Net", properties={"port": port}, limit_ms=10_000)
            if "ok" not in answer:
                socket.create_connection(("127.0.0.1", int(port))).close()
            thread.join()
        self.assertEqual((answer.get("ok"), answer.get("output")), ({"hosts": "111"}, "hello"), answer)


if __name__ == "__main__":
    sys.exit(unittest.main())
