//! Unmodified programs with the preloaded library: the calls that it serves, and those for which a connection leaves.

use crate::lab::{Lab, Running, compare_direct, has};

const PYTHON: &str = "/usr/bin/python3";

/// A server that returns what each of its connections sends, by an epoll set: `edge`, `level` or `once`.
const EPOLL: &str = "
import select, socket, sys
kind = {'edge': select.EPOLLET, 'level': 0, 'once': select.EPOLLONESHOT}[sys.argv[1]]
listener = socket.create_server(('', 9), backlog=200)
listener.setblocking(False)
print('ready', flush=True)
poll = select.epoll()
poll.register(listener, select.EPOLLIN)
all, out = {}, {}
def watch(fd, add=False):
    events = select.EPOLLIN | kind | (select.EPOLLOUT if out[fd] else 0)
    poll.register(fd, events) if add else poll.modify(fd, events)
while True:
    for fd, event in poll.poll():
        if fd == listener.fileno():
            try: s, _ = listener.accept()
            except BlockingIOError: continue
            s.setblocking(False); all[s.fileno()], out[s.fileno()] = s, b''
            watch(s.fileno(), True)
            continue
        ended = False
        while True:
            try: got = all[fd].recv(5000)
            except BlockingIOError: break
            ended |= not got
            out[fd] += got
            if not got or kind == 0: break
        while out[fd]:
            try: out[fd] = out[fd][all[fd].send(out[fd]):]
            except BlockingIOError: break
        if ended and not out[fd]: all.pop(fd).close(); del out[fd]
        elif ended: all[fd].setblocking(True); all[fd].sendall(out[fd]); all.pop(fd).close(); del out[fd]
        else: watch(fd)";

/// A client of many connections, each with parts of other sizes, and one that sends much.
const CLIENT: &str = "
import socket, threading
def one(number):
    s = socket.create_connection(('10.0.0.1', 9), 30)
    for part in range(40):
        data = bytes([number + part & 255]) * (1 + number * part * 7 % 3000)
        s.sendall(data)
        got = b''
        while len(got) < len(data): got += s.recv(len(data) - len(got))
        if got != data: wrong.append(number)
    if number == 0:
        data = bytes(at * 2654435761 >> 13 & 255 for at in range(1_000_000))
        sender = threading.Thread(target=lambda: s.sendall(data)); sender.start()
        got = bytearray()
        while len(got) < len(data): got += s.recv(65536)
        sender.join()
        if got != data: wrong.append('much')
    s.close()
wrong = []
threads = [threading.Thread(target=one, args=[number]) for number in range(70)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong)";

#[test]
fn sets_of_all_kinds_tell_of_direct_connections() {
    for kind in ["edge", "level", "once"] {
        let (_, answer) = compare_direct(&[PYTHON, "-c", EPOLL, kind], &[PYTHON, "-c", CLIENT]);
        assert_eq!(answer, "[]\n", "{kind}");
    }
}

/// A set with a direct connection and a pipe: the pipe is told of by calls that don't wait too, whatever came before.
const MIXED: &str = "
import os, select, socket
s = socket.create_connection(('10.0.0.1', 9), 30)
read, write = os.pipe()
poll = select.epoll()
for fd in s.fileno(), read: poll.register(fd, select.EPOLLIN)
for round in range(200):
    for _ in range(round % 9):
        s.sendall(b'x')
        told = poll.poll(30)
        assert told == [(s.fileno(), select.EPOLLIN)], told
        s.recv(1)
    os.write(write, b'y')
    told = poll.poll(0)
    assert told == [(read, select.EPOLLIN)], (round, told)
    os.read(read, 1)
    assert poll.poll(0) == []
print('all told')";

#[test]
fn a_set_tells_of_the_kernel_s_members_without_waiting() {
    let (_, answer) = compare_direct(&[PYTHON, "-c", EPOLL, "level"], &[PYTHON, "-c", MIXED]);
    assert_eq!(answer, "all told\n");
}

/// A program in direct mode, with the lines of `--explain`.
fn explained(lab: &Lab, number: usize, program: &[&str]) -> Running {
    let mut command = lab.command(number, "direct", program);
    command.env("EXPLAIN", "1");
    Running::of(command)
}

#[test]
fn connections_are_direct_on_both_sides_and_say_so() {
    let server = "
import socket
s = socket.create_server(('', 9)); print('ready', flush=True)
c, _ = s.accept()
while data := c.recv(65536): c.sendall(data)
c.close()";
    let client = "
import socket
s = socket.create_connection(('10.0.0.1', 9))
data = bytes(range(256)) * 4000
for _ in range(20):
    s.sendall(data[:70000]); got = b''
    while len(got) < 70000: got += s.recv(70000)
    assert got == data[:70000]
s.shutdown(socket.SHUT_WR)
print(s.recv(10))";
    let lab = Lab::new();
    let mut serving = explained(&lab, 1, &[PYTHON, "-c", server]);
    assert_eq!(serving.line(), "ready");
    let mut asking = explained(&lab, 2, &[PYTHON, "-c", client]);
    let ((status, answer), asked) = asking.end_with_errors();
    assert_eq!((status, answer.as_str()), (Some(0), "b''\n"), "{asked}");
    let ((status, _), served) = serving.end_with_errors();
    assert_eq!(status, Some(0), "{served}");
    assert!(asked.contains(": direct\n") && asked.contains("1 connections used the shared"), "{asked}");
    assert!(served.contains("1 connections were accepted in the shared"), "{served}");
    assert!(asked.contains("pumped again, for a call that direct mode does not serve"), "{asked}");
}

/// Calls on a connection that answers each line with the line; what they return.
const CALLS: &str = "
import array, errno, fcntl, os, select, signal, socket, struct, subprocess, tempfile, termios, time, threading
def connection():
    s = socket.create_connection(('10.0.0.1', 9))
    for _ in range(3):
        s.sendall(b'hello\\n'); assert s.recv(100) == b'hello\\n'
    return s
def wait(s, count):
    while fcntl.ioctl(s, termios.FIONREAD, struct.pack('i', 0)) != struct.pack('i', count): time.sleep(0.001)
def tell(what):
    try: return what()
    except OSError as error: return errno.errorcode[error.errno]
s = connection()
s.send(b'a line\\n'); wait(s, 7)
print(s.recv(3), s.recv(100), tell(lambda: s.recv(1, socket.MSG_DONTWAIT)))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.send(b'two\\n'); print(s.recv(4, socket.MSG_WAITALL), s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
s.send(b'all of it, '); s.send(b'in parts\\n')
print(s.recv(20, socket.MSG_WAITALL))
print(s.sendmsg([b'', b'some', b' pieces\\n']))
print(s.recvmsg(5)[0], s.recvmsg_into([bytearray(3), bytearray(4)])[0])
s.send(b'peek\\n'); print(s.recv(5, socket.MSG_PEEK | socket.MSG_WAITALL), s.recv(5, socket.MSG_WAITALL))
s = connection()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 50000))
print(tell(lambda: s.recv(1)), tell(lambda: s.recv(1)))
s = connection()
with tempfile.TemporaryFile() as file:
    file.write(b'x' * 99_999 + b'\\n'); file.flush()
    print(os.sendfile(s.fileno(), file.fileno(), 0, 100_000), os.lseek(file.fileno(), 0, os.SEEK_CUR))
    got = b''
    while len(got) < 100_000: got += s.recv(65536)
    print(got == b'x' * 99_999 + b'\\n')
print([len(part) for part in select.select([s], [s], [s], 0.01)])
s.send(b'select\\n'); print([len(part) for part in select.select([s], [], [])], s.recv(100))
r, w = os.pipe()
threading.Timer(0.05, lambda: os.write(w, b'p')).start()
print([fd == r for fd in select.select([s, r], [], [])[0]], os.read(r, 1))
p = select.poll(); p.register(s, select.POLLIN | select.POLLOUT); p.register(r, select.POLLIN)
print([event for _, event in p.poll(1000)])
s.send(b'poll\\n'); wait(s, 5); print([event for _, event in p.poll()], s.recv(100))
copy = s.dup(); s.send(b'dup\\n'); print(copy.recv(100)); copy.send(b'back\\n'); print(s.recv(100))
s = connection()
if os.fork() == 0:
    s.send(b'child\\n'); os._exit(0 if s.recv(100) == b'child\\n' else 1)
print(os.wait()[1]); s.send(b'parent\\n'); print(s.recv(100))
s = connection()
shell = ['sh', '-c', 'echo from a shell >&3; read line <&3; echo $line']
share = lambda: os.dup2(s.fileno(), 3)
print(subprocess.run(shell, close_fds=False, preexec_fn=share, stdout=subprocess.PIPE).stdout)
s = connection()
f = s.makefile('rwb'); f.write(b'a file\\n'); f.flush(); print(f.readline())
f = os.fdopen(os.dup(s.fileno()), 'r+b', 0); f.write(b'another\\n'); print(f.readline())
s = connection()
one, two = socket.socketpair()
socket.send_fds(one, [b'x'], [s.fileno()])
_, [fd], _, _ = socket.recv_fds(two, 1, 1)
os.write(fd, b'passed\\n'); print(os.read(fd, 100)); s.send(b'still\\n'); print(s.recv(100))
s = connection()
s.setblocking(False); print(tell(lambda: s.recv(1))); s.setblocking(True)
fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_NONBLOCK)
print(tell(lambda: os.read(s.fileno(), 1)))
fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) & ~os.O_NONBLOCK)
came = []
signal.signal(signal.SIGALRM, lambda *_: came.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.05)
threading.Timer(0.2, lambda: s.send(b'late\\n')).start()
print(s.recv(100), came)
signal.siginterrupt(signal.SIGALRM, False); signal.setitimer(signal.ITIMER_REAL, 0.05)
threading.Timer(0.2, lambda: s.send(b'later\\n')).start()
print(s.recv(100), len(came))
reader = []
thread = threading.Thread(target=lambda: reader.append(tell(lambda: s.recv(100)))); thread.start()
time.sleep(0.1); s.shutdown(socket.SHUT_WR); thread.join(); print(reader, tell(lambda: s.send(b'x')))
s = connection()
s.send(b'end\\n'); print(s.recv(100)); os.closerange(s.fileno(), s.fileno() + 20)
print(tell(lambda: s.send(b'x')))
signal.signal(signal.SIGPIPE, signal.SIG_DFL)";

/// Returns each line.
const LINES: &str = "
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile: self.wfile.write(line)
class Server(socketserver.ThreadingTCPServer): allow_reuse_address, daemon_threads = True, True
server = Server(('', 9), Handler)
print('ready', flush=True)
server.serve_forever()";

#[test]
fn calls_of_all_kinds_have_the_kernels_results() {
    let (_, answer) = compare_direct(&[PYTHON, "-c", LINES], &[PYTHON, "-c", CALLS]);
    assert!(answer.ends_with("b'end\\n'\nEBADF\n"), "{answer}");
}

/// Connections of threads that read and write at once, that others poll meanwhile, and that are closed at any time.
#[test]
fn threads_share_connections() {
    let client = "
import select, socket, threading
wrong = []
def pair(number):
    s = socket.create_connection(('10.0.0.1', 9))
    data = b''.join(b'%d %d\\n' % (number, at) for at in range(3000))
    def write():
        for at in range(0, len(data), 777): s.sendall(data[at:at + 777])
    writer = threading.Thread(target=write); writer.start()
    got = bytearray()
    while len(got) < len(data):
        if number % 2: select.select([s], [], [])
        got += s.recv(999)
    writer.join()
    if got != data: wrong.append(number)
threads = [threading.Thread(target=pair, args=[number]) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong)";
    let (_, answer) = compare_direct(&[PYTHON, "-c", LINES], &[PYTHON, "-c", client]);
    assert_eq!(answer, "[]\n");
}

/// Streams that are busy while options let them leave and they enter again.
#[test]
fn busy_connections_move_without_loss() {
    if !has("iperf3") {
        return;
    }
    for modes in [("direct", "kernel"), ("kernel", "direct")] {
        for more in [&["-n", "64M", "-P", "8"][..], &["-n", "64M", "-P", "8", "-R"]].repeat(3) {
            let lab = Lab::new();
            let mut serving = lab.start(1, modes.0, &["iperf3", "-s", "-1", "--forceflush"]);
            while !serving.line().contains("listening") {}
            let client = [&["iperf3", "-c", "10.0.0.1"][..], more].concat();
            let (status, text) = lab.start(2, modes.1, &client).end();
            assert!(status == Some(0) && text.contains("iperf Done"), "{modes:?} {more:?}: {text}");
        }
    }
}

/// What Debian's programs import of what the library serves.
#[test]
fn the_library_has_the_functions_that_programs_import() {
    if !has("nm") {
        return;
    }
    let lab = Lab::new();
    let show =
        "import subprocess; print(subprocess.run(['nm', '-D', '--defined-only', '/etc/ringway-preload.so'],
        capture_output=True, text=True).stdout)";
    let (status, text) = lab.start(1, "direct", &[PYTHON, "-c", show]).end();
    assert_eq!(status, Some(0));
    let has = |name: &str| text.lines().any(|line| line.split_whitespace().nth(2) == Some(name));
    let names = "read write readv writev recv send recvfrom sendto recvmsg sendmsg recvmmsg sendmmsg sendfile
        sendfile64 splice close dup dup2 dup3 shutdown poll ppoll select pselect epoll_create1 epoll_ctl
        epoll_wait epoll_pwait epoll_pwait2 fcntl fcntl64 ioctl accept accept4 socket setsockopt getsockopt
        close_range
        closefrom fdopen vfork _Fork clone posix_spawn posix_spawnp execve execl syscall prctl __read_chk
        __recv_chk __recvfrom_chk __poll_chk __ppoll_chk preadv2 pwritev2 sigaction signal pthread_cancel";
    for name in names.split_whitespace() {
        assert!(has(name), "{name}");
    }
}
