//! Many connections, processes and threads at once.

use crate::lab::{compare_all, has, is_long};

const PYTHON: &str = "/usr/bin/python3";

#[test]
fn thousands_of_connections_are_served_at_once() {
    // As many as this session's limit of descriptors permits.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let count = if is_long() { most.saturating_sub(500).min(20_000) } else { 1500 };
    let limits = "import resource, select, socket, sys
own = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (own, own))
";
    let server = format!(
        "{limits}
s = socket.create_server(('', 9), backlog=4096)
s.setblocking(False)
poll = select.epoll()
poll.register(s, select.EPOLLIN)
all = {{}}
print('ready', flush=True)
while True:
    for number, _ in poll.poll():
        if number == s.fileno():
            try:
                while True:
                    c, _ = s.accept()
                    all[c.fileno()] = c
                    poll.register(c, select.EPOLLIN)
            except BlockingIOError: continue
        c = all[number]
        data = c.recv(100)
        if data: c.sendall(data[::-1])
        else: poll.unregister(number); all.pop(number).close()"
    );
    // Each is asked again when all are open.
    let client = format!(
        "{limits}
import os
all = []
for number in range({count}):
    s = socket.create_connection(('10.0.0.1', 9))
    s.sendall(b'first %d' % number)
    all.append(s)
right = sum(s.recv(100)[::-1] == b'first %d' % number for number, s in enumerate(all))
for number, s in enumerate(all): s.sendall(b'again %d' % number)
right += sum(s.recv(100)[::-1] == b'again %d' % number for number, s in enumerate(all))
for s in all: s.shutdown(socket.SHUT_WR)
right += sum(s.recv(100) == b'' for s in all)
memory = [line for line in open('/proc/%d/status' % os.getppid()) if line.startswith('VmRSS')]
print('memory of who started it:', *memory, file=sys.stderr)
print(right)"
    );
    let (_, answer) = compare_all(&[PYTHON, "-c", &server], &[PYTHON, "-c", &client]);
    assert_eq!(answer, format!("{}\n", 3 * count));
}

#[test]
fn processes_and_threads_of_python_share_a_network() {
    if !has("curl") {
        return;
    }
    // A process for each connection, which starts another one.
    let server = "\
import http.server, socketserver, subprocess
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        data = self.rfile.read(int(self.headers['Content-Length']))
        text = subprocess.run(['md5sum'], input=data, stdout=subprocess.PIPE).stdout
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *args): pass
class Server(socketserver.ForkingMixIn, http.server.HTTPServer): request_queue_size = 64
server = Server(('', 8000), Handler)
print('ready', flush=True)
server.serve_forever()";
    let client = "\
import asyncio, hashlib, subprocess, urllib.request
def threaded(data):
    return urllib.request.urlopen('http://10.0.0.1:8000/', data).read()
async def started(data):
    command = ['curl', '-sS', '--data-binary', '@-', 'http://10.0.0.1:8000/']
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    return (await process.communicate(data))[0]
async def main():
    all = [bytes([n]) * (40_000 + n) for n in range(16)]
    answers = await asyncio.gather(*[started(data) if number % 2 else asyncio.to_thread(threaded, data)
        for number, data in enumerate(all)])
    print(sum(text[:32].decode() == hashlib.md5(data).hexdigest() for text, data in zip(answers, all)))
asyncio.run(main())";
    assert_eq!(compare_all(&[PYTHON, "-c", server], &[PYTHON, "-c", client]).1, "16\n");
}
