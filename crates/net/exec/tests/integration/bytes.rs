//! What programs send arrives, byte for byte.

use crate::lab::{Lab, MODES, NOBODY, compare, compare_all, has};

/// A server of Python whose first line is printed when it listens.
const HTTP: &str = "\
import http.server, sys, socketserver
body = bytes(i * 7 % 251 for i in range(3_000_000))
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        size = int(self.headers['Content-Length'])
        got = self.rfile.read(size)
        text = b'%d %d\\n' % (len(got), sum(got))
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *args): pass
server = socketserver.ThreadingTCPServer(('', 8000), Handler)
print('ready', flush=True)
server.serve_forever()
";

const PYTHON: &str = "/usr/bin/python3";

#[test]
fn curl_gets_and_posts_what_a_python_server_has() {
    if !has("curl") {
        return;
    }
    let script = "\
        curl -sS http://10.0.0.1:8000/ | md5sum
        head -c 2000000 /dev/zero | tr '\\0' a | curl -sS --data-binary @- http://10.0.0.1:8000/
        curl -sS http://10.0.0.1:8001/ || echo $?";
    let (_, answer) = compare_all(&[PYTHON, "-c", HTTP], &["sh", "-c", script]);
    assert!(answer.contains("2000000 194000000\n") && answer.ends_with("7\n"), "{answer}");
}

#[test]
fn coroutines_of_python_write_half_close_and_read() {
    let server = "\
import asyncio, hashlib
async def handle(reader, writer):
    data = await reader.read()
    writer.write(hashlib.md5(data).hexdigest().encode())
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(handle, '0.0.0.0', 7000)
    print('ready', flush=True)
    await server.serve_forever()
asyncio.run(main())";
    let client = "\
import asyncio, hashlib
async def one(number):
    reader, writer = await asyncio.open_connection('10.0.0.1', 7000)
    data = bytes([number]) * (200_000 + number)
    writer.write(data)
    writer.write_eof()
    got = await reader.read()
    writer.close()
    return got.decode() == hashlib.md5(data).hexdigest()
async def main():
    print(all(await asyncio.gather(*[one(number) for number in range(40)])))
asyncio.run(main())";
    assert_eq!(compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]).1, "True\n");
}

#[test]
fn datagrams_keep_their_limits_and_their_senders() {
    let server = "\
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 5000))
print('ready', flush=True)
while True:
    data, peer = s.recvfrom(65536)
    s.sendto(data[::-1], peer)";
    let client = "\
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
for size in [1, 2, 1000, 1472, 1473, 9000]:
    data = bytes(i % 251 for i in range(size))
    s.sendto(data, ('10.0.0.1', 5000))
    got, peer = s.recvfrom(65536)
    print(size, got == data[::-1], peer)
s.connect(('10.0.0.1', 5000))
s.send(b'connected')
print(s.recv(100), s.getpeername(), s.getsockname()[0])
s.send(b'cut')
print(s.recvmsg(2)[0])
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other.connect(('10.0.0.1', 5000))
other.send(b'last')
other.shutdown(socket.SHUT_WR)
print(other.recv(100))
s.setblocking(False)
try: s.recvfrom(1)
except BlockingIOError as error: print(error.errno)
try: s.sendto(bytes(65508), ('10.0.0.1', 5000))
except OSError as error: print(error.errno)";
    let (_, answer) = compare(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert!(answer.contains("9000 True ('10.0.0.1', 5000)"), "{answer}");
}

#[test]
fn options_and_names_are_linux_ones() {
    let server = "\
import socket
s = socket.create_server(('', 6000))
print('ready', s.getsockname(), s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), flush=True)
while True:
    c, peer = s.accept()
    c.sendall(repr((peer[0], c.getsockname(), c.getpeername() == peer)).encode())
    c.close()";
    let client = "\
import socket
def asked(s):
    names = ['SO_TYPE', 'SO_DOMAIN', 'SO_PROTOCOL', 'SO_ERROR', 'SO_ACCEPTCONN', 'SO_REUSEADDR']
    names += ['SO_KEEPALIVE']
    return [s.getsockopt(socket.SOL_SOCKET, getattr(socket, name)) for name in names]
s = socket.socket()
print(s.getsockname(), asked(s))
try: s.getpeername()
except OSError as error: print(error.errno)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
s.bind(('10.0.0.2', 4242))
other = socket.socket()
for address in [('10.0.0.2', 4242), ('10.9.9.9', 1)]:
    try: other.bind(address)
    except OSError as error: print(error.errno)
s.connect(('10.0.0.1', 6000))
print(asked(s), s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
print(s.getsockname(), s.getpeername(), s.makefile().read())
try: s.connect(('10.0.0.1', 6000))
except OSError as error: print(error.errno)
six = socket.socket(socket.AF_INET6)
six.connect(('::ffff:10.0.0.1', 6000))
print(six.getpeername()[0], six.recv(1000)[:20])
for kind in ['gaierror']:
    try: socket.create_connection(('nobody.example', 80))
    except OSError as error: print(type(error).__name__)";
    let (ready, answer) = compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert_eq!(ready, "ready ('0.0.0.0', 6000) 1");
    assert!(answer.contains("('10.0.0.2', 4242) ('10.0.0.1', 6000)"), "{answer}");
}

#[test]
fn a_socket_of_ipv6_alone_shares_its_port_with_one_of_ipv4() {
    let server = "\
import errno, select, socket
def bound(family, only):
    s = socket.socket(family)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    try: s.bind(('', 9))
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
    else: s.listen()
    return s
all = [bound(socket.AF_INET, 0), bound(socket.AF_INET6, 1), bound(socket.AF_INET6, 0)]
print('ready', flush=True)
while True:
    for s in select.select(all[:2], [], [])[0]:
        c, peer = s.accept(); c.sendall(b'%d' % s.family); c.close()";
    let client = "import socket; print(socket.create_connection(('10.0.0.1', 9)).recv(10))";
    let (ready, answer) = compare(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert_eq!((&*ready, &*answer), ("EADDRINUSE ready", "b'2'\n"));
}

#[test]
fn iperf3_measures_in_both_roles() {
    if !has("iperf3") {
        return;
    }
    for modes in MODES {
        let kinds = [
            &["-n", "8M"][..],
            &["-n", "8M", "-R"],
            &["-n", "16M", "-P", "8"],
            &["-n", "16M", "-P", "8", "-R"],
            &["-u", "-b", "20M", "-n", "1M"],
        ];
        for more in kinds {
            let lab = Lab::new();
            let mut serving = lab.start(1, modes.0, &["iperf3", "-s", "-1", "--forceflush"]);
            while !serving.line().contains("listening") {}
            let client = [&["iperf3", "-c", "10.0.0.1"][..], more].concat();
            let (status, text) = lab.start(2, modes.1, &client).end();
            assert_eq!(status, Some(0), "{modes:?} {more:?}: {text}");
            assert!(text.contains("iperf Done"), "{modes:?} {more:?}: {text}");
        }
    }
}

#[test]
fn users_without_rights_have_networks_too() {
    if !rustix::process::geteuid().is_root() || !has("setpriv") {
        return;
    }
    let server = "import socket; s = socket.create_server(('', 80)); print('ready', flush=True)
c, peer = s.accept(); print(c.recv(100)); c.sendall(b'bye')";
    let client = "import os, socket; s = socket.create_connection(('10.0.0.1', 80)); s.sendall(b'hello')
print(os.getuid(), s.recv(100), open('/etc/resolv.conf').read().count('nameserver'))";
    for modes in MODES {
        let lab = Lab { user: Some(NOBODY), ..Lab::new() };
        let mut serving = lab.start(1, modes.0, &[PYTHON, "-c", server]);
        let first = serving.line();
        if first.is_empty() {
            eprintln!("not run: users may not create namespaces here");
            return;
        }
        assert_eq!(
            lab.start(2, modes.1, &[PYTHON, "-c", client]).end(),
            (Some(0), "65534 b'bye' 0\n".into())
        );
        assert_eq!(serving.end(), (Some(0), "b'hello'\n".into()));
    }
}
