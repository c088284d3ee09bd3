//! Programs that get signals while they make calls on sockets.

use crate::lab::{Folder, Lab, has};
use rustix::event::{PollFd, PollFlags, poll};
use std::os::unix::net::UnixDatagram;
use std::process::Command;

/// Makes calls and checks what they do, until 10,000 signals have come. A call that fails with EINTR, which it may if
/// the handler has no `SA_RESTART`, is made again. Of the datagrams, the bytes that sendto with an address writes and
/// the errors that SO_ERROR gives once, one of a hundred may be lost or come twice: the kernel accepts a result for a
/// call that a signal ends at this moment.
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned count;
static void handle(int number) { count++; }

#define AGAIN(call) ({ long made; do made = (call); while (made < 0 && errno == EINTR); made; })
#define CHECK(what) do { if (!(what)) { \
    printf("line %d: %s (errno %d, round %u)\n", __LINE__, #what, errno, round); fflush(stdout); \
    kill(sender, SIGKILL); exit(1); } } while (0)

static struct sockaddr_in own(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "10.0.0.1", &at.sin_addr);
    return at;
}
static int same(struct sockaddr_in *one, struct sockaddr_in *two) {
    return one->sin_port == two->sin_port && one->sin_addr.s_addr == two->sin_addr.s_addr;
}

int main(int words, char **word) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = atoi(word[1]) ? SA_RESTART : 0};
    sigaction(SIGUSR1, &action, 0);
    /* After a signal, a call begins again with its whole timeout:
       the sender pauses if the round does not end. */
    volatile unsigned *seen = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int parent = getpid(), sender = fork();
    unsigned round = 0, last = 0, still = 0;
    if (sender == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct timespec pause = {0, 20000};
        while (kill(parent, SIGUSR1) == 0) {
            nanosleep(&pause, 0);
            still = *seen == last ? still + 1 : 0;
            last = *seen;
            if (still == 10000) sleep(2), still = 0;
        }
        return 0;
    }
    int u = AGAIN(socket(AF_INET, SOCK_DGRAM, 0)), v = AGAIN(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in at = own(0), from, to;
    CHECK(u >= 0 && v >= 0 && AGAIN(bind(u, (void *)&at, sizeof at)) == 0);
    CHECK(AGAIN(bind(v, (void *)&at, sizeof at)) == 0);
    struct timeval limit = {1, 0};
    CHECK(AGAIN(setsockopt(u, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit)) == 0);
    unsigned lost = 0, twice = 0;
    socklen_t len = sizeof to;
    CHECK(AGAIN(getsockname(u, (void *)&to, &len)) == 0 && to.sin_port != 0);
    while (count < 10000 || round < 100) {
        *seen = ++round;
        int s = AGAIN(socket(AF_INET, SOCK_STREAM, 0)), c = AGAIN(socket(AF_INET, SOCK_STREAM, 0));
        int one = 1, value = 0;
        struct sockaddr_in listening, peer, name;
        CHECK(s >= 0 && c >= 0 && s != c);
        CHECK(AGAIN(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one)) == 0);
        len = sizeof value;
        CHECK(AGAIN(getsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, &len)) == 0 && value == 1);
        at = own(0);
        CHECK(AGAIN(bind(s, (void *)&at, sizeof at)) == 0);
        CHECK(AGAIN(listen(s, 4)) == 0);
        len = sizeof listening;
        CHECK(AGAIN(getsockname(s, (void *)&listening, &len)) == 0 && listening.sin_port != 0);
        CHECK(AGAIN(connect(c, (void *)&listening, sizeof listening)) == 0);
        len = sizeof peer;
        int d = AGAIN(accept4(s, (void *)&peer, &len, SOCK_CLOEXEC));
        CHECK(d >= 0);
        len = sizeof name;
        CHECK(AGAIN(getsockname(c, (void *)&name, &len)) == 0 && same(&name, &peer));
        len = sizeof name;
        CHECK(AGAIN(getpeername(c, (void *)&name, &len)) == 0 && same(&name, &listening));
        unsigned got = 0;
        int len_of = sizeof listening;
        CHECK(AGAIN(sendto(c, &round, sizeof round, 0, (void *)&listening, len_of)) == sizeof round);
        len = sizeof name;
        CHECK(AGAIN(recvfrom(d, &got, sizeof got, MSG_WAITALL, (void *)&name, &len)) == sizeof got);
        CHECK(got == round);
        CHECK(AGAIN(shutdown(c, SHUT_WR)) == 0);
        long more = AGAIN(recv(d, &got, sizeof got, 0));
        if (more == sizeof got && got == round) {
            twice++;
            more = AGAIN(recv(d, &got, sizeof got, 0));
        }
        CHECK(more == 0);
        /* Datagrams: each arrives once, from its sender. */
        CHECK(AGAIN(sendto(v, &round, sizeof round, 0, (void *)&to, sizeof to)) == sizeof round);
        struct iovec piece = {&got, sizeof got};
        struct msghdr message = {&from, sizeof from, &piece, 1};
        long received;
        for (got = 0; ; twice++) {
            if (round % 2) {
                len = sizeof from;
                received = AGAIN(recvfrom(u, &got, sizeof got, 0, (void *)&from, &len));
            } else {
                message.msg_namelen = sizeof from;
                received = AGAIN(recvmsg(u, &message, 0));
            }
            if (received < 0 || got == round) break;
            CHECK(received == sizeof got && got == round - 1);
        }
        if (received < 0) {
            CHECK(errno == EAGAIN);
            lost++;
        } else {
            len = sizeof name;
            CHECK(AGAIN(getsockname(v, (void *)&name, &len)) == 0 && same(&name, &from));
        }
        /* The error of an attempt is told once. */
        int refused = AGAIN(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        at = own(9);
        CHECK(AGAIN(connect(refused, (void *)&at, sizeof at)) < 0);
        if (errno == EINPROGRESS || errno == EALREADY) {
            struct pollfd polled = {refused, POLLOUT, 0};
            CHECK(AGAIN(poll(&polled, 1, 20000)) == 1);
            len = sizeof value;
            CHECK(AGAIN(getsockopt(refused, SOL_SOCKET, SO_ERROR, &value, &len)) == 0);
            CHECK(value == ECONNREFUSED || value == 0);
            lost += value == 0;
        } else CHECK(errno == ECONNREFUSED);
        len = sizeof value;
        CHECK(AGAIN(getsockopt(refused, SOL_SOCKET, SO_ERROR, &value, &len)) == 0 && value == 0);
        CHECK(close(s) == 0 && close(c) == 0 && close(d) == 0 && close(refused) == 0);
    }
    struct pollfd polled = {u, POLLIN, 0};
    twice += AGAIN(poll(&polled, 1, 0));
    CHECK(100 * (lost + twice) <= round + 100);
    kill(sender, SIGKILL);
    puts("nothing lost");
}
"#;

#[test]
fn ten_thousand_signals_lose_and_double_nothing() {
    if !has("cc") {
        return;
    }
    let folder = Folder::new("signals");
    let (file, program) = (folder.write("main.c", CALLS), folder.0.join("main"));
    let built = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(file).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let program = program.display().to_string();
    for mode in ["kernel", "native"] {
        for restarts in ["1", "0"] {
            let ended = Lab::new().start(1, mode, &[&program, restarts]).end();
            assert_eq!(ended, (Some(0), "nothing lost\n".into()), "{mode}, SA_RESTART {restarts}");
        }
    }
}

/// Passes frames between two sockets until one of them is closed.
fn join(ends: [UnixDatagram; 2]) {
    let mut frame = vec![0; 70_000];
    loop {
        let mut polled = ends.each_ref().map(|end| PollFd::new(end, PollFlags::IN));
        poll(&mut polled, None).unwrap();
        for (from, to) in [(0, 1), (1, 0)] {
            match ends[from].recv(&mut frame) {
                Ok(len) if ends[to].send(&frame[..len]).is_err() => return,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }
}

/// As Python, whose handlers have no `SA_RESTART`: it polls a socket whose blocking `connect` was interrupted, and asks
/// for its error.
#[test]
fn an_interrupted_connect_goes_on() {
    let client = "import os, signal, socket
def handle(*_):
    global told
    if not told: os.write(1, b'interrupted\\n')
    told = True
told = False
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
s = socket.socket(); s.connect(('10.0.0.2', 9)); s.sendall(b'x'); print(s.recv(9), s.getpeername())
signal.setitimer(signal.ITIMER_REAL, 0)";
    let server = "import socket; s = socket.create_server(('', 9)); print('ready', flush=True)
c, peer = s.accept(); c.sendall(c.recv(9) * 3)";
    for mode in ["kernel", "native"] {
        let (one, two) = (Lab::new(), Lab::new());
        let mut serving = two.start(2, "kernel", &["/usr/bin/python3", "-c", server]);
        assert_eq!(serving.line(), "ready");
        let mut asking = one.start(1, mode, &["/usr/bin/python3", "-c", client]);
        assert_eq!(asking.line(), "interrupted");
        // Until now its segments have reached nobody.
        let joined = [one.ends[1].try_clone().unwrap(), two.ends[0].try_clone().unwrap()];
        std::thread::spawn(move || join(joined));
        assert_eq!(asking.end(), (Some(0), "b'xxx' ('10.0.0.2', 9)\n".into()), "{mode}");
        serving.end();
    }
}

/// What poll announces is what FIONREAD counts, and both are what can be read.
#[test]
fn bytes_that_are_counted_can_be_read() {
    let server = "import socket; s = socket.create_server(('', 9)); print('ready', flush=True)
c, peer = s.accept(); sent = 0
while sent < 3_000_000:
    size = sent * 31 % 9000 + 1
    c.sendall(bytes((sent + n) % 251 for n in range(size))); sent += size
c.close()";
    let client = "import fcntl, select, socket, struct
s = socket.create_connection(('10.0.0.1', 9)); p = select.poll(); p.register(s, select.POLLIN)
counted = lambda: struct.unpack('i', fcntl.ioctl(s, 0x541b, bytes(4)))[0]
got = rounds = 0
while True:
    p.poll()
    before = counted()
    data = s.recv(before if before and rounds % 3 else 777, socket.MSG_DONTWAIT)
    rounds += 1
    if not data: break
    # More may have come meanwhile, but what was counted is there.
    assert before > 0 and len(data) >= min(before, 777), (before, len(data))
    assert rounds % 3 == 1 or len(data) == before, (before, len(data))
    assert data == bytes((got + n) % 251 for n in range(len(data))), got
    got += len(data)
    after = counted()
    assert after >= before - len(data), (before, len(data), after)
assert before == 0, before
print(got >= 3_000_000)";
    let (_, answer) =
        crate::lab::compare(&["/usr/bin/python3", "-c", server], &["/usr/bin/python3", "-c", client]);
    assert_eq!(answer, "True\n");
}
