//! Names and addresses: resolvers of three C libraries and languages, IPv6, echoes, netcat.

use crate::lab::{DIRECT, Folder, LINUX, Lab, MODES, compare, compare_in, has, is_root, succeeds};
use std::process::Command;

const PYTHON: &str = "/usr/bin/python3";

/// A name server that knows `www.lab.example`, and `big.lab.example`, whose answer is too long for a datagram.
const DNS: &str = "\
import ipaddress, socket, struct, threading
known = {b'www': {1: ['10.0.0.77'], 28: ['fd00::77']}, b'big': {1: ['10.1.0.%d' % n for n in range(60)]}}
def answer(query, over_tcp):
    end = query.index(0, 12) + 5
    label = query[13:13 + query[12]]
    kind = query[end - 3]
    addresses = known.get(label, {}).get(kind, [])
    flags = 0x8180 | (0 if label in known else 3)
    if len(addresses) > 20 and not over_tcp: flags, addresses = flags | 0x200, []
    records = b''
    for address in addresses:
        data = ipaddress.ip_address(address).packed
        records += b'\\xc0\\x0c' + struct.pack('!HHIH', kind, 1, 60, len(data)) + data
    return query[:2] + struct.pack('!HHHHH', flags, 1, len(addresses), 0, 0) + query[12:end] + records
def stream(c):
    while head := c.recv(2, socket.MSG_WAITALL):
        reply = answer(c.recv(struct.unpack('!H', head)[0], socket.MSG_WAITALL), True)
        c.sendall(struct.pack('!H', len(reply)) + reply)
    c.close()
def streams(s):
    while True: threading.Thread(target=stream, args=[s.accept()[0]]).start()
threading.Thread(target=streams, args=[socket.create_server(('', 53))]).start()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 53))
print('ready', flush=True)
while True:
    query, peer = s.recvfrom(512)
    s.sendto(answer(query, False), peer)";

fn with_names() -> Lab {
    Lab { names: true, ..Lab::new() }
}

#[test]
fn glibc_asks_for_names() {
    let script = "\
        getent ahosts www.lab.example
        getent ahostsv4 big.lab.example | grep -c STREAM
        getent hosts nobody.lab.example || echo $?";
    let (_, answer) = compare_in(with_names, &[PYTHON, "-c", DNS], &["sh", "-c", script]);
    assert!(answer.contains("10.0.0.77") && answer.contains("fd00::77"), "{answer}");
    assert!(answer.ends_with("60\n2\n"), "{answer}");
}

#[test]
fn go_asks_for_names() {
    if !has("go") {
        return;
    }
    let folder = Folder::new("go-names");
    let source = "\
package main

import (\"fmt\"; \"net\"; \"os\"; \"sort\")

func main() {
	for _, name := range os.Args[1:] {
		addresses, err := net.LookupHost(name)
		sort.Strings(addresses)
		if len(addresses) > 2 { addresses = addresses[58:] }
		fmt.Println(addresses, err != nil && err.(*net.DNSError).IsNotFound)
	}
}
";
    folder.write("main.go", source);
    let (program, source) = (folder.0.join("main"), folder.0.join("main.go"));
    let mut build = Command::new("go");
    build.args(["build", "-o"]).args([&program, &source]);
    build.envs([("CGO_ENABLED", "0"), ("GO111MODULE", "off"), ("GOTELEMETRY", "off")]);
    if !succeeds(&mut build) {
        return;
    }
    let program = program.display().to_string();
    let client = [&*program, "www.lab.example", "big.lab.example", "nobody.lab.example"];
    let (_, answer) = compare_in(with_names, &[PYTHON, "-c", DNS], &client);
    assert_eq!(answer, "[10.0.0.77 fd00::77] false\n[10.1.0.8 10.1.0.9] false\n[] true\n");
}

/// A client and a server in C; both check what they receive.
const C: &str = r#"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static char bytes[500000], got[500000];
static size_t all(int s, char *to) {
    size_t count = 0;
    for (ssize_t n; count < sizeof bytes && (n = read(s, to + count, sizeof bytes - count)) > 0;) count += n;
    return count;
}
static void print(const char *name) {
    struct addrinfo *found = 0, hints = { .ai_socktype = SOCK_STREAM };
    int error = getaddrinfo(name, 0, &hints, &found);
    printf("%s:", error ? gai_strerror(error) : name);
    for (; found; found = found->ai_next) {
        char text[100];
        getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST);
        printf(" %s", text);
    }
    puts("");
}
int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i * 7 % 251;
    if (!strcmp(argv[1], "names")) { for (int i = 2; i < argc; i++) print(argv[i]); return 0; }
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = { AF_INET, htons(7000) };
    if (!strcmp(argv[1], "serve")) {
        if (bind(s, (void *)&at, sizeof at) || listen(s, 5)) { perror("listen"); return 1; }
        puts("ready"); fflush(stdout);
        for (;;) {
            struct sockaddr_in peer; socklen_t len = sizeof peer;
            int c = accept(s, (void *)&peer, &len);
            int right = all(c, got) == sizeof got && !memcmp(got, bytes, sizeof got);
            if (right && peer.sin_addr.s_addr == inet_addr("10.0.0.2")) write(c, bytes, sizeof bytes);
            close(c);
        }
    }
    at.sin_addr.s_addr = inet_addr("10.0.0.1");
    if (connect(s, (void *)&at, sizeof at)) { perror("connect"); return 1; }
    for (size_t at = 0; at < sizeof bytes;) at += write(s, bytes + at, sizeof bytes - at);
    shutdown(s, SHUT_WR);
    puts(all(s, got) == sizeof got && !memcmp(got, bytes, sizeof got) ? "right" : "wrong");
}
"#;

/// Compiles it with musl; `None` if that is not installed.
fn musl(folder: &Folder, name: &str, more: &[&str]) -> Option<String> {
    let source = folder.write("main.c", C);
    let program = folder.0.join(name).display().to_string();
    let mut command = Command::new("musl-gcc");
    has("musl-gcc")
        .then(|| succeeds(command.args(["-O1", "-o", &program, &source]).args(more)))?
        .then_some(program)
}

#[test]
fn musl_serves_and_asks() {
    let folder = Folder::new("musl");
    let Some(shared) = musl(&folder, "shared", &[]) else { return };
    let Some(fixed) = musl(&folder, "static", &["-static"]) else { return };
    assert_eq!(compare(&[&shared, "serve"], &[&fixed, "ask"]).1, "right\n");
    let names = [&*shared, "names", "www.lab.example", "nobody.lab.example"];
    let (_, answer) = compare_in(with_names, &[PYTHON, "-c", DNS], &names);
    assert_eq!(answer, "www.lab.example: 10.0.0.77 fd00::77\nName does not resolve:\n");
}

#[test]
fn streams_and_datagrams_have_addresses_of_ipv6() {
    let server = "\
import socket, threading
s = socket.create_server(('fd00::1', 9), family=socket.AF_INET6)
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
u.bind(('::', 9))
def answer():
    while True:
        data, peer = u.recvfrom(65536)
        u.sendto(data[::-1], peer)
threading.Thread(target=answer, daemon=True).start()
print('ready', s.getsockname(), u.getsockname(), flush=True)
while True:
    c, peer = s.accept()
    c.sendall(repr((peer[0], c.getsockname()[:2])).encode() + c.recv(200_000, socket.MSG_WAITALL))
    c.close()";
    let client = "\
import socket
data = bytes(i % 251 for i in range(200_000))
s = socket.create_connection(('fd00::1', 9))
s.sendall(data)
got = b''.join(iter(lambda: s.recv(65536), b''))
print(got[:-200_000], got[-200_000:] == data, s.getsockname()[0], s.getpeername())
try: socket.create_connection(('fd00::1', 10))
except OSError as error: print(error.errno)
try: socket.create_connection(('2001:db8::1', 10))
except OSError as error: print(error.errno)
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for size in [1, 1452, 5000]:
    u.sendto(data[:size], ('fd00::1', 9))
    got, peer = u.recvfrom(65536)
    print(got == data[:size][::-1], peer)
u.sendto(b'four', ('::ffff:10.0.0.1', 9))
print(u.recvfrom(100))
print(sorted(line.split()[0] for line in open('/proc/net/if_inet6') if line.startswith('fd')))";
    let (_, answer) = compare(&[PYTHON, "-c", server], &[PYTHON, "-c", client]);
    assert!(
        answer.contains("(b\"('fd00::2', ('fd00::1', 9))\", True") || answer.contains("True fd00::2"),
        "{answer}"
    );
    assert!(answer.contains("(b'ruof', ('::ffff:10.0.0.1', 9, 0, 0))"), "{answer}");
}

#[test]
fn both_stacks_answer_echoes() {
    if !is_root() || !has("ping") {
        return;
    }
    for mode in ["kernel", "native"] {
        let lab = Lab::new();
        let mut serving = lab.start(1, mode, &["sh", "-c", "echo ready; exec sleep 100"]);
        assert_eq!(serving.line(), "ready");
        for address in ["10.0.0.1", "fd00::1"] {
            // Fragments that wait for a neighbour's answer are sent at once, and the lab's queue is short: so one
            // echo goes first.
            let asked = "ping -q -c 1 -W 20 $0 >&2; exec ping -q -c 20 -i 0.01 -s 3000 $0";
            let (status, text) = lab.start(2, "kernel", &["sh", "-c", asked, address]).end();
            assert!(status == Some(0) && text.contains("20 received"), "{mode} {address}: {text}");
        }
    }
}

#[test]
fn netcat_serves_and_asks() {
    if !has("nc") {
        return;
    }
    let folder = Folder::new("nc");
    let bytes = folder.write("bytes", (0..1_000_000_u32).map(|at| (at * 7 % 251) as u8).collect::<Vec<u8>>());
    let sum = Command::new("md5sum").arg(&bytes).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap()[..32].to_string();
    // One that listens ends when its peer has sent all, so each direction has a turn. Datagrams come first.
    let server = format!(
        "cd {0}; (nc -u -l 9000 | head -c 9 > told) & echo ready; nc -l 9000 | md5sum; nc -l -N 9001 < bytes
        nc -l 9002; cat told",
        folder.0.display()
    );
    let client = format!(
        "until nc -N 10.0.0.1 9000 < {bytes}; do sleep 0.02; done
        until nc -d 10.0.0.1 9001 | cmp - {bytes} 2>&1; do sleep 0.02; done
        nc -z -w 5 10.0.0.1 9003 || echo refused; printf datagram+ | nc -u -w 1 10.0.0.1 9000
        until echo | nc -N 10.0.0.1 9002; do sleep 0.02; done"
    );
    let guests = if has("linux.uml") { &LINUX[1..] } else { &[] };
    for modes in MODES.iter().chain(&DIRECT[1..]).chain(guests) {
        let lab = Lab { shared: Some(folder.0.display().to_string()), ..Lab::new() };
        let mut serving = lab.start(1, modes.0, &["sh", "-c", &server]);
        assert_eq!(serving.line(), "ready");
        let (status, answer) = lab.start(2, modes.1, &["sh", "-c", &client]).end();
        assert_eq!(status, Some(0), "{modes:?}: {answer}");
        assert!(answer.ends_with("refused\n"), "{modes:?}: {answer}");
        let (_, text) = serving.end();
        assert!(text.ends_with("datagram+") && text.starts_with(&sum), "{modes:?}: {text}");
    }
}
