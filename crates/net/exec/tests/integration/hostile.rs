//! Programs that do what they should not, or more of it than others; and that nothing of theirs reaches the host.

use crate::lab::{Lab, MODES, NOBODY, Running, alone, compare, has};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";

/// A folder that every user may look into, and that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ringway-hostile-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Folder(path)
    }

    /// Builds a program of C; `None`: there is no compiler.
    fn build(&self, source: &str) -> Option<String> {
        if !has("cc") {
            return None;
        }
        let (file, program) = (self.0.join("main.c"), self.0.join("main"));
        std::fs::write(&file, source).unwrap();
        let built = Command::new("cc").arg("-O1").arg("-pthread").arg("-o").args([&program, &file]).output();
        let built = built.unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(program.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_socket_tells_of_the_programs_own_interfaces() {
    let script = "\
import array, fcntl, socket, struct
for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
    s = socket.socket(socket.AF_INET, kind)
    room = array.array('B', bytes(400))
    size, at = struct.unpack('iP', fcntl.ioctl(s, 0x8912, struct.pack('iP', 400, room.buffer_info()[0])))
    names = [bytes(room[n:n + 16]).split(b'\\0')[0] for n in range(0, size, 40)]
    print(size, sorted(names), fcntl.ioctl(s, 0x8912, struct.pack('iP', 0, 0))[:4])
    for question in [0x8913, 0x8915, 0x8919, 0x891b, 0x8921]:
        for name in [b'eth0', b'lo', b'nothing']:
            try: print(hex(question), name, fcntl.ioctl(s, question, name.ljust(40, b'\\0'))[16:24])
            except OSError as error: print(hex(question), name, error.errno)";
    let text = alone(&[PYTHON, "-c", script]);
    assert!(text.contains("80 [b'eth0', b'lo']"), "{text}");
}

#[test]
fn a_listening_socket_that_is_shut_down_wakes_who_accepts() {
    let script = "\
import errno, select, socket, threading, time
def tell(what):
    try: return what()
    except OSError as error: return errno.errorcode[error.errno]
s = socket.create_server(('10.0.0.1', 9))
print(tell(lambda: s.shutdown(socket.SHUT_WR)))
c = socket.create_connection(('10.0.0.1', 9))
s.accept()[0].close()
told = []
waits = threading.Thread(target=lambda: told.append(tell(s.accept)))
waits.start()
while open('/proc/self/task/%d/stat' % waits.native_id).read().split()[2] != 'S': pass
print(tell(lambda: s.shutdown(socket.SHUT_RDWR)))
waits.join()
print(told, tell(s.accept), tell(lambda: socket.create_connection(('10.0.0.1', 9))))
s.close()
socket.create_server(('10.0.0.1', 9)).close()
for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
    print(tell(lambda: socket.socket(socket.AF_INET, kind).shutdown(socket.SHUT_WR)))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(('10.0.0.1', 9))
waits = threading.Thread(target=lambda: told.append(tell(lambda: u.recvfrom(9)[0])))
waits.start()
while open('/proc/self/task/%d/stat' % waits.native_id).read().split()[2] != 'S': pass
print(tell(lambda: u.shutdown(socket.SHUT_RD)))
waits.join()
print(told)";
    let text = alone(&[PYTHON, "-c", script]);
    let expected =
        "None\nNone\n['EINVAL'] EINVAL ECONNREFUSED\nENOTCONN\nENOTCONN\nENOTCONN\n['EINVAL', b'']\n";
    assert_eq!(text, expected);
}

#[test]
fn a_peer_is_no_user_and_urgent_data_is_refused() {
    let script = "\
import errno, socket, struct
s = socket.create_server(('10.0.0.1', 9))
c = socket.create_connection(('10.0.0.1', 9))
d, peer = s.accept()
for one in [s, c, d]:
    print(struct.unpack('iii', one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))
for what in [lambda: d.recv(9, socket.MSG_OOB), lambda: d.recvmsg(9, 0, socket.MSG_ERRQUEUE)]:
    try: what()
    except OSError as error: print(errno.errorcode[error.errno])";
    let text = alone(&[PYTHON, "-c", script]);
    assert_eq!(text, "(0, -1, -1)\n(0, -1, -1)\n(0, -1, -1)\nEINVAL\nEAGAIN\n");
    let urgent = "\
import errno, socket
s = socket.create_server(('10.0.0.1', 9))
c = socket.create_connection(('10.0.0.1', 9))
d, peer = s.accept()
for send in [lambda: c.send(b'x', socket.MSG_OOB), lambda: c.sendmsg([b'x'], [], socket.MSG_OOB)]:
    try: send()
    except OSError as error: print(errno.errorcode[error.errno])
c.sendall(b'after')
print(d.recv(9))";
    let (status, text) = Lab::new().start(1, "native", &[PYTHON, "-c", urgent]).end();
    assert_eq!((status, &*text), (Some(0), "ENOTSUP\nENOTSUP\nb'after'\n"));
}

#[test]
fn a_program_without_descriptors_accepts_later() {
    let script = "\
import errno, resource, select, socket
s = socket.create_server(('10.0.0.1', 9))
all = [socket.create_connection(('10.0.0.1', 9)) for _ in range(3)]
for number, c in enumerate(all): c.sendall(b'%d' % number * 100_000)
all[2].shutdown(socket.SHUT_WR)
was = resource.getrlimit(resource.RLIMIT_NOFILE)
poll = select.poll()
poll.register(s, select.POLLIN)
print(len(poll.poll(10_000)))
resource.setrlimit(resource.RLIMIT_NOFILE, (all[2].fileno() + 1, was[1]))
for _ in range(5):
    try: s.accept()
    except OSError as error: print(errno.errorcode[error.errno], len(poll.poll(10_000)))
resource.setrlimit(resource.RLIMIT_NOFILE, was)
got = []
for _ in all:
    c, peer = s.accept()
    data = b''
    while len(data) < 100_000: data += c.recv(100_000)
    got.append((data[:1], len(set(data)), c.recv(1) if data[:1] == b'2' else None))
print(sorted(got))";
    let text = alone(&[PYTHON, "-c", script]);
    let last = "[(b'0', 1, None), (b'1', 1, None), (b'2', 1, b'')]\n";
    assert_eq!(text, format!("1\n{}{last}", "EMFILE 1\n".repeat(5)));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_other_interfaces_of_the_kernel_reach_no_socket() {
    let folder = Folder::new("narrow");
    let source = r#"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
static long narrow(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}
int main(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    /* getpid, socket, connect, socketcall, ioctl of an interface's flags, and close */
    printf("%d ", narrow(20, 0, 0, 0) == getpid());
    printf("%ld %ld ", narrow(359, AF_INET, SOCK_STREAM, 0), narrow(362, s, 0, 0));
    printf("%ld %ld ", narrow(102, 1, 0, 0), narrow(54, s, 0x8913, 0));
    printf("%ld %ld\n", (long)syscall(0x40000000 | 42, s, 0, 0), narrow(6, s, 0, 0));
    printf("%d\n", errno);
}
"#;
    let Some(program) = folder.build(source) else { return };
    let (status, text) = Lab::new().start(1, "native", &[&program]).end();
    // A kernel without calls of 32 bits ends the program.
    if status == Some(0) {
        assert_eq!(text, "1 -38 -38 -38 -38 -1 0\n38\n");
    }
}

#[test]
fn a_program_gains_nothing_by_its_file() {
    if !geteuid().is_root() || !has("setpriv") {
        return;
    }
    let folder = Folder::new("suid");
    let program = folder.0.join("id");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&program, mode).unwrap();
    let cat = folder.0.join("cat");
    std::fs::copy("/bin/cat", &cat).unwrap();
    // Revision 2, effective: CAP_NET_RAW is permitted.
    let mut capability = vec![0; 20];
    capability[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
    let set = rustix::fs::setxattr(&cat, "security.capability", &capability, rustix::fs::XattrFlags::empty());
    let shown = |path: &Path| path.display().to_string();
    let script = format!(
        "{} -u; {} /proc/self/status | grep CapEff | grep -c [1-9a-f]$",
        shown(&program),
        shown(&cat)
    );
    let lab = || Lab { user: Some(NOBODY), ..Lab::new() };
    let mut outside = Command::new("setpriv");
    outside.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).arg("-u");
    // Where files have no such bit there is nothing to see.
    let works = outside.output().unwrap().stdout == b"0\n";
    for mode in ["kernel", "native"] {
        let (status, text) = lab().start(1, mode, &["sh", "-c", &script]).end();
        if status == Some(125) {
            eprintln!("not run: users may not create namespaces here");
            return;
        }
        assert_eq!(text, "65534\n0\n", "{mode}, where it works outside: {works} {set:?}");
    }
}

#[test]
fn a_programs_own_filter_holds_too() {
    let folder = Folder::new("filter");
    let source = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
int main(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, steps};
    int set = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    int bound = bind(s, (void *)&at, sizeof at), listens = listen(s, 1);
    int t = socket(AF_INET, SOCK_STREAM, 0), connected = connect(t, (void *)&at, sizeof at);
    printf("%d %d %d %d %d\n", set, bound, listens, connected, errno == EXDEV);
}
"#;
    let Some(program) = folder.build(source) else { return };
    // As root a filter may be set without giving up privileges; they have been given up in any case.
    let (_, native) = Lab::new().start(1, "native", &[&program]).end();
    assert_eq!(native, "0 0 0 -1 1\n");
    assert_eq!(alone(&[&program]), native);
}

#[test]
fn a_socket_that_another_thread_reads_is_replaced_and_closed() {
    let server = "\
import socket
s = socket.create_server(('', 9)); print('ready', flush=True)
while True:
    c, peer = s.accept()
    if c.recv(3) == b'end': c.close()";
    let client = "\
import os, socket, threading
def waits(s, told):
    thread = threading.Thread(target=lambda: told.append(s.recv(9)))
    thread.start()
    while open('/proc/self/task/%d/stat' % thread.native_id).read().split()[2] != 'S': pass
    return thread
for how in ['dup2', 'closerange']:
    told = []
    s = socket.create_connection(('10.0.0.1', 9))
    kept = s.dup()
    thread = waits(s, told)
    if how == 'dup2': os.dup2(os.open('/dev/null', os.O_RDWR), s.fileno())
    else: os.closerange(s.fileno(), s.fileno() + 1); s.detach()
    kept.sendall(b'end')
    thread.join()
    print(how, told)
    kept.close()";
    let (_, answer) = compare(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert_eq!(answer, "dup2 [b'']\ncloserange [b'']\n");
}

#[test]
fn addresses_in_use_are_those_of_linux() {
    let script = "\
import errno, itertools, socket
def made(options, address):
    s = socket.socket()
    for option in options: s.setsockopt(socket.SOL_SOCKET, option, 1)
    s.bind(address)
    return s
def tell(what):
    try: what()
    except OSError as error: return errno.errorcode[error.errno]
choices = [[], [socket.SO_REUSEADDR], [socket.SO_REUSEPORT]]
places = ['', '10.0.0.1', '127.0.0.1']
for one, two, where, listens in itertools.product(choices, choices, places, [False, True]):
    first = made(one, ('10.0.0.1', 77))
    if listens: first.listen()
    second = []
    bound = tell(lambda: second.append(made(two, (where, 77))))
    listening = tell(lambda: second[0].listen()) if second else '-'
    print(one, two, where, listens, bound, listening)
    first.close()
    for s in second: s.close()";
    alone(&[PYTHON, "-c", script]);
}

#[test]
fn a_socket_has_no_other_family_and_passes_no_descriptors() {
    let script = "\
import array, ctypes, errno, os, socket, struct
c = ctypes.CDLL(None, use_errno=True)
unix = struct.pack('=H', 1) + b'\\0ringway-nobody'
def called(name, *words):
    return (c[name](*words), errno.errorcode.get(ctypes.get_errno()))
for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
    s = socket.socket(socket.AF_INET, kind)
    for name in ['connect', 'bind']: print(name, called(name, s.fileno(), unix, len(unix)))
    if kind == socket.SOCK_DGRAM: print(called('sendto', s.fileno(), b'x', 1, 0, unix, len(unix)))
s = socket.create_server(('10.0.0.1', 9))
near = socket.create_connection(('10.0.0.1', 9))
far, peer = s.accept()
for _ in range(50):
    passed = array.array('i', [0, near.fileno(), far.fileno()])
    near.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
got = b''
while len(got) < 50:
    data, passed, flags, name = far.recvmsg(100, 1000)
    got += data
print(got == b'x' * 50, passed)";
    let text = alone(&[PYTHON, "-c", script]);
    assert!(text.ends_with("True []\n"), "{text}");
}

#[test]
fn thousands_of_connections_and_of_forked_processes_are_served() {
    let script = "\
import os, resource, select, socket
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
count = min(3000, most // 2 - 50)
s = socket.create_server(('10.0.0.1', 9), backlog=4096)
near, far = [], []
for number in range(count):
    near.append(socket.create_connection(('10.0.0.1', 9)))
    near[-1].sendall(b'%d' % number)
    far.append(s.accept()[0])
print(all(int(one.recv(9)) == number for number, one in enumerate(far)))
for one in far: one.sendall(b'back')
print(all(one.recv(9) == b'back' for one in near))
for number in range(150):
    if os.fork() == 0:
        c = socket.create_connection(('10.0.0.1', 9))
        c.sendall(b'child')
        os._exit(c.recv(9) != b'bye')
for number in range(150):
    c, peer = s.accept()
    print(c.recv(9) == b'child', end='')
    c.sendall(b'bye')
    c.close()
print(sum(os.wait()[1] for _ in range(150)))
for one in near + far: one.close()
print(s.getsockname())";
    let text = alone(&[PYTHON, "-c", script]);
    assert!(text.starts_with("True\nTrue\nTrueTrue") && text.ends_with("0\n('10.0.0.1', 9)\n"), "{text}");
}

#[test]
fn a_flood_of_sockets_ends_with_an_error_and_leaves_nothing() {
    let script = "\
import errno, resource, socket
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
    all, error = [], None
    for number in range(9000):
        try:
            all.append(socket.socket(socket.AF_INET, kind))
            if number == 0: all[0].bind(('10.0.0.1', 7))
        except OSError as failed:
            error = failed.errno
            break
    print(error in [None, errno.EMFILE, errno.ENFILE], len(all) > 100, flush=True)
    for s in all: s.close()
s = socket.create_server(('10.0.0.1', 7))
c = socket.create_connection(('10.0.0.1', 7))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('10.0.0.1', 7))
print('served')";
    assert_eq!(alone(&[PYTHON, "-c", script]), "True True\nTrue True\nserved\n");
}

#[test]
fn timeouts_of_waiting_calls_are_kept() {
    // Ten short ones are over before a long one, unless each is looked at seldom.
    let script = "\
import socket, struct, threading
told = []
def accepts(name, ms, times):
    s = socket.create_server(('10.0.0.1', 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', ms // 1000, ms % 1000 * 1000))
    for _ in range(times):
        try: s.accept()
        except BlockingIOError: pass
    told.append(name)
all = [threading.Thread(target=accepts, args=what) for what in [('long', 2000, 1), ('short', 10, 10)]]
for one in all: one.start()
for one in all: one.join()
print(told)";
    assert_eq!(alone(&[PYTHON, "-c", script]), "['short', 'long']\n");
}

#[test]
fn standard_error_that_nobody_reads_holds_up_nobody() {
    let script = "\
import os, socket
os.set_blocking(2, False)
try:
    while True: os.write(2, b'x' * 4096)
except BlockingIOError: pass
all = [socket.socket() for _ in range(400)]
os.set_blocking(2, True)
all += [socket.socket() for _ in range(400)]
s = socket.create_server(('10.0.0.1', 9))
c = socket.create_connection(('10.0.0.1', 9))
c.sendall(b'served')
print(s.accept()[0].recv(9), flush=True)";
    let lab = Lab::new();
    let mut command = lab.command(1, "native", &[PYTHON, "-c", script]);
    command.env("EXPLAIN", "1");
    assert_eq!(Running::of(command).end(), (Some(0), "b'served'\n".into()));
}

#[test]
fn a_program_within_a_program_is_refused_or_has_the_kernels_sockets() {
    let lab = Lab::new();
    let driver = env!("CARGO_BIN_EXE_exec-on-socket");
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&lab.ends[1]).to_string();
    rustix::io::fcntl_setfd(&lab.ends[1], rustix::io::FdFlags::empty()).unwrap();
    let inner = |mode| format!("{driver} {descriptor} {mode} 10.0.0.2/24 true 2>&1; echo $?");
    for mode in ["kernel", "native"] {
        let (_, text) = lab.start(1, "native", &["sh", "-c", &inner(mode)]).end();
        assert!(text.contains("run the outer one with --stack kernel") && text.ends_with("125\n"), "{text}");
    }
    for mode in ["kernel", "native"] {
        assert_eq!(lab.start(1, "kernel", &["sh", "-c", &inner(mode)]).end().1, "0\n");
    }
}

#[test]
fn a_stopped_agent_and_a_stopped_program_go_on() {
    let server = "\
import hashlib, os, socket
s = socket.create_server(('', 9)); print('ready', os.getpid(), flush=True)
c, peer = s.accept()
data = b''.join(iter(lambda: c.recv(65536), b''))
c.sendall(b'%d' % len(data))
c.close()
print(len(data))";
    let client = "\
import os, socket, sys
c = socket.create_connection(('10.0.0.1', 9))
c.sendall(bytes(1_000_000))
print(os.getpid(), flush=True)
sys.stdin.readline()
c.sendall(bytes(3_000_000))
c.shutdown(socket.SHUT_WR)
print(c.recv(100))";
    for modes in [MODES[1], MODES[2], MODES[3]] {
        let lab = Lab::new();
        let mut serving = lab.start(1, modes.0, &[PYTHON, "-c", server]);
        let ready = serving.line();
        let mut asking = lab.start(2, modes.1, &[PYTHON, "-c", client]);
        asking.line();
        let program = ready.strip_prefix("ready ").unwrap().parse().unwrap();
        let stopped = [
            Pid::from_child(&serving.child),
            Pid::from_child(&asking.child),
            Pid::from_raw(program).unwrap(),
        ];
        for process in stopped {
            kill_process(process, Signal::STOP).unwrap();
            if process == stopped[0] {
                asking.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            }
            // Some of the peer's retransmissions.
            std::thread::sleep(std::time::Duration::from_millis(700));
            kill_process(process, Signal::CONT).unwrap();
        }
        assert_eq!(asking.end(), (Some(0), "b'4000000'\n".into()), "{modes:?}");
        assert_eq!(serving.end(), (Some(0), "4000000\n".into()), "{modes:?}");
    }
}

#[test]
fn a_lost_device_is_told_and_the_program_goes_on() {
    if !geteuid().is_root() {
        return;
    }
    let name = format!("rwl{}", std::process::id());
    for mode in ["native", "kernel"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exec-on-socket"));
        command.args([&format!("tap:{name}"), mode, "10.0.0.1/24", "sh", "-c", "echo ready; read x; exit 5"]);
        let mut running = Running::of(command);
        assert_eq!(running.line(), "ready");
        let removed = Command::new("ip").args(["link", "del", &name]).status().unwrap();
        assert!(removed.success());
        let mut told = String::new();
        BufReader::new(running.child.stderr.as_mut().unwrap()).read_line(&mut told).unwrap();
        assert!(told.starts_with("ringway: the program's network ended: "), "{told}");
        running.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(running.child.wait().unwrap().code(), Some(5), "{mode}");
    }
}

/// What a program may try. Names would be asked from the host's network by a service of the host.
const TRIES: &str = "\
import fcntl, socket, struct
def tried(what):
    try: what()
    except OSError: pass
out = ('192.0.2.2', 80)
def connect(family=socket.AF_INET, address=out):
    s = socket.socket(family)
    s.settimeout(0.1)
    s.connect(address)
tried(connect)
tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', out))
echo = b'\\x08\\0\\xf7\\xff' + bytes(4)
tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(echo, out))
def link(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((name, 0))
    s.send(bytes(60))
for name in ['rwout', 'eth0']: tried(lambda: link(name))
for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
    s = socket.socket(socket.AF_INET, kind)
    # SIOCSIFMTU, SIOCSIFFLAGS, SIOCETHTOOL
    for number in [0x8922, 0x8914, 0x8946]:
        tried(lambda: fcntl.ioctl(s, number, struct.pack('16si20x', b'rwout', 0)))
for path in ['/run/nscd/socket', '/run/systemd/resolve/io.systemd.Resolve', '/run/avahi-daemon/socket']:
    tried(lambda: socket.socket(socket.AF_UNIX).connect(path))
tried(lambda: socket.socket(socket.AF_UNIX).connect('\\0ringway-host'))
tried(lambda: socket.getaddrinfo('nobody.example', 80))
print(sorted(name for _, name in socket.if_nameindex()))";

/// The host: an interface whose frames are counted, and name services that say when they are asked.
const COUNTING_HOST: &str = "\
import os, socket, subprocess, sys
asked = []
services = ['nscd/socket', 'systemd/resolve/io.systemd.Resolve', 'avahi-daemon/socket']
for path in ['/run/' + name for name in services] + ['\\0ringway-host']:
    if path[0] == '/': os.makedirs(os.path.dirname(path), exist_ok=True)
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen()
    s.setblocking(False)
    asked.append(s)
def state():
    with open('/sys/class/net/rwout/statistics/tx_packets') as sent, open('/sys/class/net/rwout/mtu') as mtu:
        return sent.read(), mtu.read()
before = state()
print(subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True).stdout, end='')
print(state() == before)
for s in asked:
    try: s.accept(); print('asked', s.getsockname())
    except BlockingIOError: pass
before = state()
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.2', 80))
print(state() != before)";

/// Prepares the host's interface, then runs it.
const COUNTED: &str = "\
mount -t tmpfs none /run && mount -t sysfs none /sys
ip link add rwout type veth peer name rwfar
for name in rwout rwfar; do echo 1 > /proc/sys/net/ipv6/conf/$name/disable_ipv6; ip link set $name up; done
ip addr add 192.0.2.1/24 dev rwout
ip neigh add 192.0.2.2 lladdr 2:0:0:0:0:2 dev rwout
ip route add default via 192.0.2.2
exec \"$@\"";

#[test]
fn nothing_leaves_by_an_interface_of_the_host() {
    if !geteuid().is_root() || !has("unshare") || !has("ip") {
        return;
    }
    for mode in ["kernel", "native"] {
        let lab = Lab::new();
        let inner = lab.command(1, mode, &[PYTHON, "-c", TRIES]);
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-ec", COUNTED, "sh", PYTHON, "-c", COUNTING_HOST]);
        command.arg(inner.get_program()).args(inner.get_args());
        // The host's sockets are in another namespace of networks than those that the test made before.
        let (status, text) = Running::of(command).end();
        assert_eq!((status, &*text), (Some(0), "['eth0', 'lo']\nTrue\nTrue\n"), "{mode}");
    }
}
