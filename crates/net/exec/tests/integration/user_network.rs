//! Programs whose network with the host is made of sockets, as a user without rights.

use crate::lab::{Lab, NOBODY, Running, has, is_root};
use ringway_host::children_of;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

const PYTHON: &str = "/usr/bin/python3";

/// Runs a script of a user without rights in a mode; what it printed.
fn run(mode: &str, script: &str) -> String {
    let lab = Lab { user: is_root().then_some(NOBODY), ..Lab::new() };
    let (status, text) = Running::of(lab.command_on("user", 2, mode, &[PYTHON, "-c", script])).end();
    assert_eq!(status, Some(0), "{mode}: {text}");
    text
}

/// The mode of a program in User-Mode Linux, if that is installed.
fn guest_mode() -> Option<&'static str> {
    has("linux.uml").then_some("linux")
}

/// Python that names the error of a call, and the host's address.
const TELL: &str = "\
import errno, socket
HOST = '10.0.0.254'
def tell(what):
    try: return what()
    except OSError as error: return errno.errorcode[error.errno]
";

#[test]
fn connections_and_datagrams_reach_the_host_and_errors_come_back() {
    for mode in ["kernel", "native", "direct"].into_iter().chain(guest_mode()) {
        let (listener, echo) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let ports = [listener.local_addr().unwrap().port(), echo.local_addr().unwrap().port()];
        // Nobody listens there any more.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            stream.write_all(&got).unwrap();
            drop(stream);
            let mut bytes = [0; 5000];
            let (len, from) = echo.recv_from(&mut bytes).unwrap();
            echo.send_to(&bytes[..len], from).unwrap();
        });
        let script = format!(
            "{TELL}
sent = bytes(range(250)) * 4000
s = socket.create_connection((HOST, {}))
peer = s.getpeername()
s.sendall(sent)
s.shutdown(socket.SHUT_WR)
got = b''
while data := s.recv(65536): got += data
print(got == sent, peer == (HOST, {}))
print(tell(lambda: socket.create_connection((HOST, {free}))))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(sent[:4000], (HOST, {}))
data, peer = u.recvfrom(5000)
print(data == sent[:4000], peer == (HOST, {}))",
            ports[0], ports[0], ports[1], ports[1]
        );
        assert_eq!(run(mode, &script), "True True\nECONNREFUSED\nTrue True\n", "{mode}");
        served.join().unwrap();
    }
}

#[test]
fn what_a_program_wrote_before_its_end_reaches_the_host() {
    for mode in ["kernel", "native"].into_iter().chain(guest_mode()) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got.len()
        });
        let script = format!("{TELL}socket.create_connection((HOST, {port})).sendall(bytes(3_000_000))");
        run(mode, &script);
        assert_eq!(served.join().unwrap(), 3_000_000, "{mode}");
    }
}

/// A program that loses its agent: its connection, a listening socket on which a thread waits, one that is polled, and
/// new connections.
const SURVIVES: &str = "
import select, threading
waited = socket.create_server(('10.0.0.2', 9))
polled = socket.create_server(('', 10), reuse_port=True)
poll = select.epoll()
poll.register(polled, select.EPOLLIN)
accepted = []
waits = threading.Thread(target=lambda: accepted.append(waited.accept()))
waits.start()
while open('/proc/self/task/%d/stat' % waits.native_id).read().split()[2] != 'S': pass
old = socket.create_connection((HOST, PORT))
print('ready', flush=True)
print(tell(lambda: old.recv(9)))
new = socket.create_connection((HOST, PORT))
new.sendall(b'again')
print(new.recv(9))
own = socket.create_connection(('10.0.0.2', 9))
waits.join()
print(accepted[0][1] == own.getsockname())
own.sendall(b'own')
print(accepted[0][0].recv(9))
second = socket.create_connection(('10.0.0.2', 10))
print(len(poll.poll(20)))
third, peer = polled.accept()
print(peer == second.getsockname(), polled.getsockname(), waited.getsockname())
second.close()
print(third.recv(9))
polled.close()
print(tell(lambda: socket.create_connection(('10.0.0.2', 10))))
";

#[test]
fn a_program_whose_agent_is_killed_gets_another_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (_first, _) = listener.accept().unwrap();
        let (mut second, _) = listener.accept().unwrap();
        let mut got = [0; 5];
        second.read_exact(&mut got).unwrap();
        second.write_all(&got).unwrap();
        second.read_to_end(&mut Vec::new()).unwrap();
    });
    let lab = Lab { user: is_root().then_some(NOBODY), ..Lab::new() };
    let script = format!("{TELL}PORT = {port}\n{SURVIVES}");
    let mut running = Running::of(lab.command_on("user", 2, "native", &[PYTHON, "-c", &script]));
    assert_eq!(running.line(), "ready");
    kill_process(Pid::from_child(&running.child), Signal::KILL).unwrap();
    let ((_, text), errors) = running.end_with_errors();
    let expected =
        "ECONNRESET\nb'again'\nTrue\nb'own'\n1\nTrue ('0.0.0.0', 10) ('10.0.0.2', 9)\nb''\nECONNREFUSED\n";
    assert_eq!(text, expected, "{errors}");
    assert_eq!(
        errors,
        "ringway: the agent was killed; another one serves new connections, and listening sockets\n"
    );
    served.join().unwrap();
}

/// Python that makes the calls of a program without a network, and those that need none, until it may.
const GOES_ON: &str = "
import os, sys
print('ready', flush=True)
for line in sys.stdin:
    print(tell(lambda: socket.socket().close()))
    u = socket.socket(socket.AF_UNIX)
    u.bind('\\0ringway-test-%d' % os.getpid())
    u.listen()
    c = socket.socket(socket.AF_UNIX)
    c.connect(u.getsockname())
    print(u.accept()[0].getsockname() == u.getsockname(), flush=True)
    u.close()
";

/// The process that is to be the next agent after another one, once it is there and knows its program.
fn next_agent(agent: Pid) -> Pid {
    let knows = |process: &i32| {
        let Ok(folder) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
        let mut links = folder.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.any(|link| link.to_string_lossy().contains("ringway-journal"))
    };
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(process) = children_of(agent).into_iter().find(knows) {
            return Pid::from_raw(process).unwrap();
        }
        assert!(Instant::now() < end, "no process waits");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn agents_that_end_again_and_again_are_replaced_twice_and_other_sockets_go_on() {
    let lab = Lab { user: is_root().then_some(NOBODY), ..Lab::new() };
    let script = format!("{TELL}{GOES_ON}");
    let mut running = Running::of(lab.command_on("user", 2, "native", &[PYTHON, "-c", &script]));
    assert_eq!(running.line(), "ready");
    let mut input = running.child.stdin.take().unwrap();
    let mut agent = Pid::from_child(&running.child);
    for (number, works) in [(1, "None"), (2, "None"), (3, "ENETDOWN")] {
        let next = next_agent(agent);
        kill_process(agent, Signal::KILL).unwrap();
        agent = next;
        writeln!(input, "{number}").unwrap();
        assert_eq!((running.line().as_str(), running.line().as_str()), (works, "True"), "{number}");
    }
    drop(input);
    let (_, errors) = running.end_with_errors();
    let lines: Vec<&str> = errors.lines().collect();
    assert!(lines.len() == 3 && lines[2].contains("three times within a minute"), "{errors}");
}
