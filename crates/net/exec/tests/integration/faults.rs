//! Refusals, resets, and the ends of programs and agents.

use crate::lab::{DIRECT, Lab, MODES, compare_all, has};
use rustix::process::{Pid, Signal, kill_process};

const PYTHON: &str = "/usr/bin/python3";

#[test]
fn a_connection_that_is_not_awaited_becomes_writable_when_it_is_there() {
    let server = "import socket, time; s = socket.create_server(('', 9)); print('ready', flush=True)
while True:
    c, peer = s.accept(); c.sendall(c.recv(100)); c.close()";
    let client = "\
import errno, select, socket
for port in [9, 10]:
    s = socket.socket()
    s.setblocking(False)
    e = select.epoll()
    print(errno.errorcode[s.connect_ex(('10.0.0.1', port))])
    e.register(s, select.EPOLLOUT | select.EPOLLET)
    print(len(e.poll(10)), errno.errorcode.get(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))
    if port == 9:
        print(s.connect_ex(('10.0.0.1', port)) in [0, errno.EISCONN])
        s.setblocking(True)
        s.sendall(b'echo')
        print(s.recv(100), s.recv(100))";
    let (_, answer) = compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert_eq!(answer, "EINPROGRESS\n1 None\nTrue\nb'echo' b''\nEINPROGRESS\n1 ECONNREFUSED\n");
}

#[test]
fn refusals_resets_and_ends_have_their_errors() {
    let server = "\
import socket, struct
s = socket.create_server(('', 9)); print('ready', flush=True)
c, peer = s.accept()
c.recv(1)
c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
c.close()
c, peer = s.accept()
c.recv(1)
c.close()
while True: s.accept()";
    let client = "\
import errno, socket
def tell(what):
    try: return what()
    except OSError as error: return errno.errorcode[error.errno]
s = socket.socket()
print(tell(lambda: s.connect(('10.0.0.1', 77))))
s = socket.create_connection(('10.0.0.1', 9))
s.sendall(b'x')
print(tell(lambda: s.recv(10)))
s = socket.create_connection(('10.0.0.1', 9))
s.sendall(b'x')
print(tell(lambda: s.recv(10)))
s.shutdown(socket.SHUT_WR)
print(tell(lambda: s.send(b'y')))
s = socket.socket()
s.settimeout(0.2)
print(tell(lambda: s.bind(('10.0.0.2', 0))), s.getsockname()[1] > 0, tell(lambda: s.accept()))";
    let (_, answer) = compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert_eq!(answer, "ECONNREFUSED\nECONNRESET\nb''\nEPIPE\nNone True EINVAL\n");
}

#[test]
fn a_killed_program_leaves_its_peer_an_end_and_its_address_free() {
    let server = "import os, socket; s = socket.create_server(('', 9)); print('ready', flush=True)
c, peer = s.accept()
if os.fork() == 0: os._exit(0)
c.recv(1); os.kill(os.getpid(), 9)";
    let client = "import socket; s = socket.create_connection(('10.0.0.1', 9)); s.sendall(b'x' * 100)
try: print(s.recv(10))
except ConnectionResetError: print('reset')";
    for modes in MODES.iter().chain(&DIRECT[1..]) {
        let lab = Lab::new();
        let script = format!("{PYTHON} -c \"$0\"; {PYTHON} -c \"$1\"");
        let again = "import socket; socket.create_server(('', 9)); print('free', flush=True)";
        let mut serving = lab.start(1, modes.0, &["sh", "-c", &script, server, again]);
        assert_eq!(serving.line(), "ready");
        let (status, text) = lab.start(2, modes.1, &[PYTHON, "-c", client]).end();
        // It had bytes that it did not read.
        assert_eq!((status, text.as_str()), (Some(0), "reset\n"), "{modes:?}");
        assert_eq!(serving.line(), "free", "{modes:?}");
    }
}

#[test]
fn connections_ignore_addresses_that_are_sent_to() {
    let server = "import socket; s = socket.create_server(('', 9)); print('ready', flush=True)
while True:
    c, peer = s.accept(); count = 0
    while data := c.recv(65536): count += len(data)
    c.sendall(b'%d' % count); c.close()";
    // More than there is room for at once, so that the call waits.
    let client = "import errno, socket
s = socket.socket()
try: s.sendto(b'x', ('10.0.0.1', 9))
except OSError as error: print(errno.errorcode[error.errno])
s.connect(('10.0.0.1', 9))
left = 3_000_000
while left > 0: left -= s.sendto(bytes(min(left, 500_000)), ('10.0.0.9', 99))
s.sendmsg([b'more', b'parts'], [], 0, ('10.0.0.9', 99))
s.shutdown(socket.SHUT_WR); print(s.recv(100))";
    let (_, answer) = compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert_eq!(answer, "EPIPE\nb'3000009'\n");
}

#[test]
fn what_a_program_wrote_before_its_end_arrives() {
    let server = "import socket, time; s = socket.create_server(('', 9))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('', 9)); print('ready', flush=True)
c, peer = s.accept(); c.recv(1)
# Until the writer has ended, and no room was left.
time.sleep(0.3)
count = 1
while data := c.recv(65536): count += len(data)
print(count)
u.settimeout(5)
print([u.recv(10) for _ in range(100)] == [b'%d' % n for n in range(100)])";
    let client = "import os, socket, time
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('10.0.0.1', 9))
s = socket.create_connection(('10.0.0.1', 9)); s.setblocking(False)
count, end = 0, time.monotonic() + 0.2
while time.monotonic() < end:
    try: count += s.send(bytes(65536))
    except BlockingIOError: time.sleep(0.01)
for n in range(100): u.send(b'%d' % n)
print(count, flush=True); os.kill(os.getpid(), 9)";
    for modes in MODES {
        let lab = Lab::new();
        let mut serving = lab.start(1, modes.0, &[PYTHON, "-c", server]);
        assert_eq!(serving.line(), "ready");
        let mut asking = lab.start(2, modes.1, &[PYTHON, "-c", client]);
        let written = asking.line();
        assert_eq!(serving.end(), (Some(0), format!("{written}\nTrue\n")), "{modes:?}");
    }
}

#[test]
fn a_killed_agent_resets_its_programs_connections() {
    let client = "import os, socket; s = socket.create_connection(('10.0.0.1', 9)); s.sendall(b'x')
print(os.getpid(), flush=True)
try: print(s.recv(10))
except ConnectionResetError: print('reset')
os._exit(0)";
    let server = "import socket; s = socket.create_server(('', 9)); print('ready', flush=True)
c, peer = s.accept(); c.recv(1); c.recv(1)";
    let lab = Lab::new();
    let mut serving = lab.start(1, "kernel", &[PYTHON, "-c", server]);
    assert_eq!(serving.line(), "ready");
    let mut asking = lab.start(2, "native", &[PYTHON, "-c", client]);
    assert!(asking.line().parse::<u32>().is_ok());
    let agent = Pid::from_child(&asking.child);
    kill_process(agent, Signal::KILL).unwrap();
    assert_eq!(asking.end().1, "reset\n");
}

#[test]
fn status_and_signals_pass() {
    for mode in ["kernel", "native"] {
        let lab = Lab::new();
        assert_eq!(lab.start(1, mode, &["sh", "-c", "exit 7"]).end().0, Some(7));
        let mut own = lab.start(1, mode, &["sh", "-c", "trap 'echo term; exit 3' TERM; echo ready; read x"]);
        assert_eq!(own.line(), "ready");
        kill_process(Pid::from_child(&own.child), Signal::TERM).unwrap();
        assert_eq!(own.end(), (Some(3), "term\n".into()));
        let mut killed = lab.start(1, mode, &["sh", "-c", "kill -USR1 $$"]);
        let status = killed.child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(10));
        let missing = lab.start(1, mode, &["no-such-program"]).end();
        assert_eq!(missing.0, Some(125));
        // In a process group of its own.
        assert_eq!(lab.start(1, mode, &["timeout", "20", "sh", "-c", "exit 5"]).end().0, Some(5));
        // What it leaves running ends with it, also in a session of its own.
        for sleeping in ["sleep 1000", "setsid sleep 1000"] {
            let mut left = lab.start(1, mode, &["sh", "-c", &format!("{sleeping} & echo $!")]);
            let sleeper = left.line();
            assert_eq!(left.end().0, Some(0));
            assert!(!std::path::Path::new(&format!("/proc/{sleeper}")).exists(), "{mode}: {sleeping}");
        }
    }
}

#[test]
fn a_port_is_free_as_soon_as_its_socket_is_closed() {
    let server = "import socket
for _ in range(50):
    s = socket.create_server(('', 9)); s.close()
    for number in range(2):
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('', 9)); u.close()
s = socket.create_server(('', 9)); print('ready', flush=True)
while True:
    c, peer = s.accept(); s.close()
    # As iperf3: a listener in the place of one that has accepted a connection.
    s = socket.create_server(('', 9)); c.sendall(b'again'); c.close()";
    let client = "import socket
print(all(socket.create_connection(('10.0.0.1', 9)).recv(10) == b'again' for _ in range(20)))";
    let (_, answer) = compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert_eq!(answer, "True\n");
}

#[test]
fn a_program_s_successor_has_its_link_layer_address() {
    if !has("ip") {
        return;
    }
    let lab = Lab::new();
    let own = |number, mode| {
        let (status, text) = lab.start(number, mode, &["ip", "-o", "link", "show", "eth0"]).end();
        let mac = text.split_once("ether ").and_then(|(_, rest)| rest.split(' ').next().map(str::to_string));
        assert!(status == Some(0) && mac.is_some(), "{text}");
        mac
    };
    let one = own(1, "kernel");
    assert_eq!([own(1, "native"), own(1, "kernel")], [one.clone(), one.clone()]);
    assert_ne!(own(2, "native"), one);
}

#[test]
fn a_program_has_no_interface_of_the_host() {
    for mode in ["kernel", "native"] {
        let script =
            "sed 1,2d /proc/net/dev | cut -d: -f1 | sort; ls /var/run/nscd/socket -l 2>/dev/null | cut -c1";
        let (status, text) = Lab::new().start(1, mode, &["sh", "-c", script]).end();
        let mut names: Vec<&str> = text.split_whitespace().collect();
        names.sort_unstable();
        assert_eq!((status, names), (Some(0), vec!["eth0", "lo"]), "{mode}");
    }
}
