//! Listening sockets of programs with the preloaded library: what they accept is in the shared stack at once.

use crate::lab::{Lab, Running, compare_direct, is_root};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;

const PYTHON: &str = "/usr/bin/python3";

/// Asks a server again and again until it says that there is no more, and prints its answers. With a word, it asks once
/// more if the server has closed its listening socket.
const CLIENT: &str = "
import socket, sys
while True:
    try:
        s = socket.create_connection(('10.0.0.1', 9), 20)
        s.sendall(b'asked')
        said = b''.join(iter(lambda: s.recv(1000), b''))
    except ConnectionError:
        if sys.argv[1:] != ['closed']: raise
        continue
    s.close()
    if sys.argv[1:] == ['closed'] and not said: continue
    if said == b'over': break
    print(said.decode())";

/// What servers begin with: `answer` answers a connection with what it has seen.
const SERVER: &str = "
import array, os, select, socket, subprocess, sys, threading
s = socket.create_server(('', 9), backlog=50)
print('ready', flush=True)
def answer(way, accepted, text=b''):
    c, peer = accepted
    c.setblocking(True)
    data = c.recv(100)
    names = peer[0], c.getpeername() == peer, c.getsockname(), c.family == s.family
    c.sendall(text or repr((way, data, names)).encode())
    c.close()
def end(): answer('', s.accept(), b'over'); sys.exit()
";

/// Accepts in many ways.
const WAYS: &str = "
def epoll(way):
    e = select.epoll()
    e.register(s, select.EPOLLIN | (select.EPOLLET if way == 'edge' else 0))
    for _ in range(3):
        assert e.poll() == [(s.fileno(), select.EPOLLIN)]
        answer(way, s.accept())
    assert e.poll(0) == []
    e.close()
for way in 'blocking', 'poll', 'select', 'level', 'edge', 'late', 'threads', 'child':
    s.setblocking(way not in ('level', 'edge'))
    if way in ('level', 'edge'):
        try: s.accept()
        except BlockingIOError: epoll(way)
        continue
    if way == 'threads':
        all = [threading.Thread(target=lambda: answer(way, s.accept())) for _ in range(3)]
        for thread in all: thread.start()
        for thread in all: thread.join()
        continue
    if way == 'child':
        for _ in range(3):
            if os.fork() == 0: answer(way, s.accept()); os._exit(0)
            os.wait()
        continue
    for _ in range(3):
        if way == 'poll':
            p = select.poll(); p.register(s, select.POLLIN); assert p.poll() == [(s.fileno(), select.POLLIN)]
        if way == 'select': assert select.select([s], [], []) == ([s], [], [])
        answer(way, s.accept())
end()";

#[test]
fn connections_are_accepted_in_all_ways_and_have_their_names() {
    let (_, answer) = compare_direct(&[PYTHON, "-c", &format!("{SERVER}{WAYS}")], &[PYTHON, "-c", CLIENT]);
    assert_eq!(answer.lines().count(), 24, "{answer}");
    let first = "('blocking', b'asked', ('10.0.0.2', True, ('10.0.0.1', 9), True))";
    assert_eq!(answer.lines().next(), Some(first));
}

/// Does something with the listening socket, between connections of the usual kind.
const ASKED: &str = "
way = sys.argv[1]
for _ in range(3): answer('before', s.accept())
if way == 'own':
    answered = 0
    for address in '127.0.0.1', '10.0.0.1', '127.0.0.1':
        c = socket.create_connection((address, 9))
        # At most one connection of the client's is before it.
        while (a := s.accept())[1] != c.getsockname(): answer(way, a); answered += 1
        assert a[1] == c.getsockname() and a[0].getpeername() == c.getsockname()
        c.sendall(b'own'); assert a[0].recv(9) == b'own'
        a[0].close(); assert c.recv(9) == b''
    for _ in range(4 - answered): answer(way, s.accept())
if way == 'option':
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # This one may have begun before.
    answer(way, s.accept())
    a = s.accept()
    assert a[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    answer(way, a)
if way == 'asked':
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1 and s.getsockname() == ('0.0.0.0', 9)
    s.listen(20)
    answer(way, s.accept())
if way == 'dup':
    copy = s.dup(); answer(way, copy.accept()); copy.close()
if way == 'passed':
    one, two = socket.socketpair()
    if os.fork() == 0:
        _, [fd], _, _ = socket.recv_fds(two, 1, 1)
        answer(way, socket.socket(fileno=fd).accept()); os._exit(0)
    socket.send_fds(one, [b'x'], [s.fileno()])
    os.wait()
if way == 'inherited':
    code = 'import socket; c, _ = socket.socket(fileno=%d).accept(); c.sendall(c.recv(9)); c.close()'
    code %= s.fileno()
    subprocess.run([sys.executable, '-c', code], pass_fds=[s.fileno()])
if way == 'children':
    subprocess.run(['true']); os.system('true'); os.popen('true').close()
    answer(way, s.accept())
if way == 'rebound':
    c, peer = s.accept(); s.close(); d = c.dup(); c.close()
    s = socket.create_server(('', 9), backlog=50)
    answer(way, (d, peer))
if way == 'closed':
    for _ in range(5): s.close(); s = socket.create_server(('', 9), backlog=50); s.accept()[0].recv(1)
for _ in range(3): answer('after', s.accept())
end()";

#[test]
fn what_is_asked_of_a_listener_is_served_as_by_the_kernel() {
    let ways = ["own", "option", "asked", "dup", "passed", "inherited", "children", "closed", "rebound"];
    for way in ways {
        let (_, answer) =
            compare_direct(&[PYTHON, "-c", &format!("{SERVER}{ASKED}"), way], &[PYTHON, "-c", CLIENT, way]);
        let count = |word: &str| answer.lines().filter(|line| line.contains(word)).count();
        assert_eq!((count("before"), count("after")), (3, 3), "{way}: {answer}");
    }
}

/// Does something with an accepted connection.
const USED: &str = "
import ctypes, fcntl, struct, termios
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), '')
def shared(c): d = c.dup(); c.close(); return d
def passed(c):
    one, two = socket.socketpair()
    socket.send_fds(one, [b'x'], [c.fileno()]); c.close()
    return socket.socket(fileno=socket.recv_fds(two, 1, 1)[1][0])
def option(c): c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); return c
def queued(c): assert fcntl.ioctl(c, termios.TIOCOUTQ, struct.pack('i', 9)) == bytes(4); return c
def forked(c):
    if os.fork() == 0: answer('child', (c, c.getpeername())); os._exit(0)
    os.wait(); c.close()
def shut(c): c.recv(100); c.sendall(b'shut'); c.shutdown(socket.SHUT_WR); assert c.recv(9) == b''; c.close()
def stream(c):
    f = c.makefile('rwb'); c.close()
    f.write(f.read(5)); f.close()
def epoll(c):
    e = select.epoll()
    e.register(c, select.EPOLLIN | select.EPOLLOUT)
    try: e.register(c, 0)
    except FileExistsError: pass
    else: assert False
    e.modify(c, select.EPOLLIN)
    assert e.poll() == [(c.fileno(), select.EPOLLIN)]
    option(c)
    assert e.poll() == [(c.fileno(), select.EPOLLIN)]
    e.unregister(c)
    try: e.modify(c, 0)
    except FileNotFoundError: pass
    else: assert False
    return c
def leave(c):
    import signal, time
    child = os.fork()
    if child == 0:
        signal.pause()
    os.kill(child, 9); os.wait()
    return c
def refused(c):
    for call in (lambda: os.dup2(9999, c.fileno()), lambda: os.dup2(c.fileno(), 1 << 30),
                 lambda: check(libc.dup3(0, c.fileno(), 1)), lambda: check(libc.dup3(-1, c.fileno(), 0)),
                 lambda: check(libc.close_range(c.fileno(), c.fileno(), 1 << 20))):
        try: call()
        except OSError: pass
        else: assert False
    return c
for use in shared, passed, option, queued, forked, shut, stream, epoll, leave, refused:
    for _ in range(2):
        c = use(s.accept()[0])
        if c: answer(use.__name__, (c, c.getpeername()))
end()";

#[test]
fn accepted_connections_serve_all_that_others_serve() {
    let (_, answer) = compare_direct(&[PYTHON, "-c", &format!("{SERVER}{USED}")], &[PYTHON, "-c", CLIENT]);
    assert_eq!(answer.lines().count(), 20, "{answer}");
}

/// A request to adopt a connection, as a program may make it of anything: of addresses of different families, of none
/// of a host, of ports that are 0.
const ADOPTIONS: &str = "
import ctypes, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def address(ip, port):
    packed = socket.inet_pton(socket.AF_INET6 if ':' in ip else socket.AF_INET, ip)
    return bytes([6 if ':' in ip else 4]) + packed.ljust(16, b'\\0') + struct.pack('<H', port)
own = socket.socket(); own.bind(('', 8)); own.listen()
one, other = '10.0.0.1', '10.0.0.2'
for local, remote in [
    ((one, 8), ('fd00::2', 9)), (('fd00::1', 8), (other, 9)), ((one, 8), ('10.0.0.255', 9)),
    ((one, 0), (other, 9)), ((one, 8), (other, 0)), ((one, 8), (one, 9)), ((one, 8), ('224.0.0.1', 9)),
    ((one, 8), (other, 9)),
]:
    for name in (18, 19):
        s = socket.socket(socket.AF_UNIX)
        request = ctypes.create_string_buffer(struct.pack('<Q', 7) + address(*local) + address(*remote), 48)
        size = ctypes.c_uint(48)
        libc.getsockopt(s.fileno(), 0x5257, name, request, ctypes.byref(size))
        s.close()
print('served', own.getsockname()[1])";

#[test]
fn requests_to_adopt_anything_harm_nobody() {
    for mode in ["native", "direct"] {
        let lab = Lab::new();
        let ended = lab.start(1, mode, &[PYTHON, "-c", ADOPTIONS]).end();
        assert_eq!(ended, (Some(0), "served 8\n".into()), "{mode}");
    }
}

/// With as many descriptors as the library knows, and more.
#[test]
fn connections_with_large_descriptors_are_served() {
    let many = "
import resource
try: resource.setrlimit(resource.RLIMIT_NOFILE, (70000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
except (ValueError, OSError): print('not run: too few descriptors', file=sys.stderr)
answer('before', s.accept())
all = []
try:
    while not all or all[-1] < 65600: all.append(os.dup(0))
except OSError:
    for _ in range(50): os.close(all.pop())
for _ in range(2): answer('many', s.accept())
end()";
    let limits = getrlimit(Resource::Nofile);
    if is_root() && limits.maximum.is_some_and(|most| most < 70_000) {
        // Programs may have more if they ask for it. Where the kernel refuses, they have fewer.
        let _ = setrlimit(Resource::Nofile, Rlimit { maximum: Some(70_000), ..limits });
    }
    let (_, answer) = compare_direct(&[PYTHON, "-c", &format!("{SERVER}{many}")], &[PYTHON, "-c", CLIENT]);
    assert_eq!(answer.lines().count(), 3, "{answer}");
}

/// A server in direct mode, with the lines of `--explain`.
fn explained(lab: &Lab, server: &str) -> Running {
    let mut command = lab.command(1, "direct", &[PYTHON, "-c", server]);
    command.env("EXPLAIN", "1");
    let mut serving = Running::of(command);
    assert_eq!(serving.line(), "ready");
    serving
}

#[test]
fn the_agent_has_nothing_to_do_with_what_is_accepted() {
    let lab = Lab::new();
    let server = format!("{SERVER}\nfor _ in range(20): answer('one', s.accept())\nend()");
    let mut serving = explained(&lab, &server);
    let (status, answer) = lab.start(2, "kernel", &[PYTHON, "-c", CLIENT]).end();
    assert_eq!((status, answer.lines().count()), (Some(0), 20), "{answer}");
    let ((status, _), report) = serving.end_with_errors();
    assert_eq!(status, Some(0), "{report}");
    assert!(report.contains("listens in the shared stack; what it accepts is direct"), "{report}");
    assert!(
        report.contains("1 sockets pumped, 0 refused; 21 connections were accepted in the shared"),
        "{report}"
    );
}

#[test]
fn connections_of_a_killed_process_end_and_others_accept() {
    let server = format!(
        "{SERVER}
if os.fork() == 0:
    while True: answer('child', s.accept())
c, peer = s.accept()
c.recv(1)
os.kill(os.getpid(), 9)"
    );
    let held = "
import socket, time
all = []
def ask():
    s = socket.create_connection(('10.0.0.1', 9), 20)
    s.sendall(b'asked')
    try: return s.recv(100)[:8]
    except ConnectionResetError: return 'reset'
print(sorted(str(ask()) for _ in range(4)))";
    // Whichever process accepts: one connection is reset, since bytes were left unread; the others are answered.
    let lab = Lab::new();
    let script = format!("{PYTHON} -c \"$0\"; sleep 100");
    let mut serving = lab.start(1, "direct", &["sh", "-c", &script, &server]);
    assert_eq!(serving.line(), "ready");
    let (status, answer) = lab.start(2, "kernel", &[PYTHON, "-c", held]).end();
    assert_eq!(status, Some(0), "{answer}");
    let resets = answer.matches("reset").count();
    assert!(resets <= 1 && answer.matches("child").count() == 4 - resets, "{answer}");
}

#[test]
fn a_killed_agent_resets_what_was_accepted_in_the_shared_stack() {
    let lab = Lab::new();
    let server = format!(
        "{SERVER}
c, peer = s.accept()
print(c.recv(5), flush=True)
try: print(c.recv(5))
except ConnectionResetError: print('reset')"
    );
    let mut serving = explained(&lab, &server);
    let client = "
import socket
s = socket.create_connection(('10.0.0.1', 9), 20)
s.sendall(b'asked'); s.recv(1)";
    let mut asking = lab.start(2, "kernel", &[PYTHON, "-c", client]);
    assert_eq!(serving.line(), "b'asked'");
    kill_process(Pid::from_child(&serving.child), Signal::KILL).unwrap();
    assert_eq!(serving.line(), "reset");
    drop(serving);
    // Nobody answers the peer any more.
    kill_process(Pid::from_child(&asking.child), Signal::TERM).unwrap();
    asking.child.wait().unwrap();
}

/// The source port and the flags of a segment of TCP over IPv4, and the place of its frame in a datagram.
fn segment(datagram: &[u8]) -> Option<([u8; 2], u8, usize)> {
    // With or without a header for offloads.
    let is_ip = |at: &usize| datagram.get(at + 12..at + 15) == Some(&[8, 0, 0x45]);
    let at = [0, 10, 12].into_iter().find(is_ip)?;
    let tcp = datagram.get(at + 34..at + 54).filter(|_| datagram[at + 23] == 6)?;
    Some(([tcp[0], tcp[1]], tcp[13], at))
}

/// Passes frames between a server's network and a client's, until one of them is closed. The client's are padded, and
/// with each segment its connection's SYN comes again, as from an attacker who guesses the ports.
fn join_with_attacker([server, client]: [UnixDatagram; 2]) {
    let (mut frame, mut syns) = (vec![0; 70_000], HashMap::new());
    loop {
        let mut polled = [&server, &client].map(|end| PollFd::new(end, PollFlags::IN));
        poll(&mut polled, None).unwrap();
        for (from, to) in [(&server, &client), (&client, &server)] {
            let mut datagram = match from.recv(&mut frame) {
                Ok(len) => frame[..len].to_vec(),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(_) => return,
            };
            let mut again = None;
            if std::ptr::eq(from, &client)
                && let Some((port, flags, at)) = segment(&datagram)
            {
                datagram.resize(datagram.len().max(at + 60) + 6, 0xa5);
                match flags & 0x12 {
                    2 => _ = syns.insert(port, datagram.clone()),
                    _ => again = syns.get(&port),
                }
            }
            if [Some(&datagram), again].into_iter().flatten().any(|datagram| to.send(datagram).is_err()) {
                return;
            }
        }
    }
}

#[test]
fn repeated_syns_and_padded_frames_end_no_connection() {
    let server = format!(
        "{SERVER}
kept = []
for number in range(6):
    c, peer = s.accept()
    # The agent has every second one.
    if number % 2: d = c.dup(); c.close(); c = d
    assert c.recv(3) == b'one'
    c.sendall(b'yes')
    kept.append(c)
for c in kept: assert c.recv(3) == b'two'; c.sendall(b'end'); c.close()"
    );
    let client = "
import socket
all = [socket.create_connection(('10.0.0.1', 9), 20) for _ in range(6)]
for s in all: s.sendall(b'one'); assert s.recv(3) == b'yes'
for s in all: s.sendall(b'two'); assert s.recv(3) == b'end' and s.recv(3) == b''
print('served')";
    let (one, two) = (Lab::new(), Lab::new());
    let joined = [one.ends[1].try_clone().unwrap(), two.ends[0].try_clone().unwrap()];
    std::thread::spawn(move || join_with_attacker(joined));
    let mut serving = explained(&one, &server);
    let asked = two.start(2, "kernel", &[PYTHON, "-c", client]).end();
    assert_eq!(asked, (Some(0), "served\n".into()));
    let ((status, _), report) = serving.end_with_errors();
    assert_eq!(status, Some(0), "{report}");
    assert!(report.contains("connections were accepted in the shared"), "{report}");
}
