//! The trapped system calls: which socket each is about, and what answers it.

use super::journal::Record;
use super::table::{Key, Kind};
use super::{Agent, address, listening, local};
use ringway_host::{Call, numbers as sys};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_timeout};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// `SOCK_STREAM`, `SOCK_DGRAM`, and the flags of `socket` and `accept4`.
const STREAM: u64 = 1;
const DATAGRAM: u64 = 2;
const TYPE: u64 = 0xf;
pub const NONBLOCK: u64 = 0x800;
pub const CLOEXEC: u64 = 0x8_0000;
const TCP: u64 = 6;
const UDP: u64 = 17;
const MPTCP: u64 = 262;
/// `MSG_DONTWAIT`, `MSG_OOB`, `MSG_ERRQUEUE`.
pub const DONTWAIT: u64 = 0x40;
const OOB: u64 = 1;
const ERRQUEUE: u64 = 0x2000;

/// How a call is answered.
#[derive(Debug)]
pub enum Reply {
    Value(i64),
    /// The kernel executes the call.
    Resume,
    /// The call was answered already.
    Done,
    /// The call waits until something happens to its socket.
    Wait(Key),
    /// As `Wait`, for at most [`BRIEF_WAIT`].
    WaitBriefly(Key),
    /// As `Wait`, until the connection has moved to another stack.
    WaitForMove(Key),
}

/// A call that waits for something to happen to its socket.
#[derive(Debug)]
pub struct Parked {
    pub call: Call,
    /// What the next agent knows of it.
    pub record: Option<Record>,
    pub key: Key,
    /// When its socket's timeout ends it.
    pub until: Option<u64>,
}

/// A result that did not reach its call, since a signal came between. The kernel makes such a call again.
///
/// With `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` no signal would come between, but neither would one reach a program
/// that waits in `accept`, `connect` or `recvfrom`: handlers of SIGTERM and of timers would not run. The flag is of all
/// calls of a filter, and a process has one filter that notifies.
#[derive(Debug)]
pub struct UndeliveredResult {
    call: Call,
    key: Key,
    result: Result<i64, Errno>,
    until: u64,
}

impl UndeliveredResult {
    /// Whether this is the result of the same call, made before.
    fn is_of(&self, call: &Call) -> bool {
        let own = &self.call;
        // The other registers hold anything.
        let used = if BIND_CONNECT.contains(&call.number) { 3 } else { call.arguments.len() };
        (own.thread, own.number) == (call.thread, call.number)
            && own.arguments[..used] == call.arguments[..used]
    }
}

/// Calls that fail when they are made a second time.
const BIND_CONNECT: [i64; 2] = [sys::BIND, sys::CONNECT];
/// Calls that do the same when they are made a second time, so that a result which the kernel drops is no loss.
const REPEATABLE: [i64; 4] = [sys::GETSOCKNAME, sys::GETPEERNAME, sys::SETSOCKOPT, sys::LISTEN];
/// How long a result is kept, and the most that are. The caller may have to wait for a processor.
const RESULT_LIFETIME: u64 = 2 * ringway_netstack::SECOND;
const MAX_UNDELIVERED: usize = 64;
/// How long a thread that a signal has woken may take to leave its call.
const LEAVE_CALL_TIMEOUT: Duration = Duration::from_millis(5);
/// How long [`Reply::WaitBriefly`] waits at most.
const BRIEF_WAIT: u64 = 2 * ringway_netstack::MS;

impl Agent {
    /// Answers a call, or parks it. If this process ends by it, the next agent does not serve it.
    pub(super) fn serve(&mut self, call: Call, record: Option<Record>, until: Option<u64>) {
        // One call may wake others.
        let before = self.journal.begin_call(call.id);
        self.serve_call(call, record, until);
        self.journal.begin_call(before);
    }

    fn serve_call(&mut self, call: Call, record: Option<Record>, until: Option<u64>) {
        self.received.clear();
        let delivered = self.last_delivered.take_if(|delivered| delivered.call.thread == call.thread);
        // Any other call shows that the thread has its result.
        self.undelivered.extend(delivered.filter(|delivered| delivered.is_of(&call)));
        let (key, reply) = match self.find(&call) {
            Ok(Some((key, socket))) => (Some(key), self.answer(&call, key, &socket)),
            Ok(None) if call.number == sys::SOCKET => (None, self.open(&call)),
            Ok(None) if listening::is_adoption(&call) => (None, self.adopt(&call)),
            Ok(None) => (None, Ok(Reply::Resume)),
            Err(error) => (None, Err(error)),
        };
        let result = match reply {
            Ok(Reply::Value(value)) => Ok(value),
            Ok(Reply::Resume) => return self.trap.resume(call.id),
            Ok(Reply::Done) => return,
            Ok(Reply::WaitForMove(key)) => {
                return self.parked.push(Parked { call, record, key, until: None });
            }
            Ok(reply @ (Reply::Wait(key) | Reply::WaitBriefly(key))) => {
                let now = self.host.now();
                let is_brief = matches!(reply, Reply::WaitBriefly(_));
                let mut most = || if is_brief { Some(BRIEF_WAIT) } else { self.timeout(&call) };
                let until = until.or_else(|| most().map(|time| now.saturating_add(time)));
                if until.is_none_or(|until| until > now) {
                    return self.parked.push(Parked { call, record, key, until });
                }
                Err(if call.number == sys::CONNECT { Errno::INPROGRESS } else { Errno::AGAIN })
            }
            Err(error) => Err(error),
        };
        let is_delivered = self.deliver(&call, result);
        let now = self.host.now();
        if !is_delivered {
            self.signals_until = now + RESULT_LIFETIME;
        }
        let Some(key) = key else { return };
        let kept = UndeliveredResult { call, key, result, until: now + RESULT_LIFETIME };
        let is_once = result.is_ok() && BIND_CONNECT.contains(&call.number);
        match is_delivered {
            true if is_once && self.signals_until > now => self.last_delivered = Some(kept),
            true => {}
            false if self.received.is_empty() => self.keep_result(kept),
            false => self.requeue_datagrams(key),
        }
    }

    /// Gives a call its result; whether the call took it. A thread that a signal has woken leaves its call without
    /// the result; until then the kernel accepts one and drops it, so that a datagram would be lost, or an operation
    /// done twice. So only a thread that sleeps is given a result. A signal in the microsecond between that look and
    /// the answer remains: the results of `bind` and `connect`, which fail when they are made again, are kept while
    /// signals come; a datagram, bytes that `sendto` with an address writes to a stream, and an error that SO_ERROR
    /// gives once may be lost or come twice.
    fn deliver(&mut self, call: &Call, result: Result<i64, Errno>) -> bool {
        let begin = Instant::now();
        while !REPEATABLE.contains(&call.number) && self.threads.is_awake(call.thread) {
            if !self.trap.is_waiting(call.id) {
                return false;
            }
            // Attack: a program that seems to run for ever, while others wait.
            if begin.elapsed() > LEAVE_CALL_TIMEOUT {
                break;
            }
            std::thread::yield_now();
        }
        self.trap.answer(call.id, result)
    }

    /// Keeps a result for the call that is made again.
    fn keep_result(&mut self, kept: UndeliveredResult) {
        // A call that was gone before anything was done for it, or whose connection waits to be accepted again.
        let is_undone = kept.result == Err(Errno::INTR);
        if is_undone || [sys::ACCEPT, sys::ACCEPT4].contains(&kept.call.number) {
            return;
        }
        // Attack: a program that interrupts all its calls.
        if self.undelivered.len() >= MAX_UNDELIVERED {
            self.undelivered.remove(0);
        }
        self.undelivered.push(kept);
    }

    /// The result of this call that did not reach it before.
    fn take_undelivered(&mut self, call: &Call, key: Key) -> Option<Result<i64, Errno>> {
        if self.undelivered.is_empty() {
            return None;
        }
        let now = self.host.now();
        self.undelivered.retain(|kept| kept.until > now);
        let same = |kept: &UndeliveredResult| kept.key == key && kept.is_of(call);
        let at = self.undelivered.iter().position(same)?;
        Some(self.undelivered.remove(at).result)
    }

    /// How long the program lets such a call block, in nanoseconds.
    fn timeout(&mut self, call: &Call) -> Option<u64> {
        let socket = self.threads.descriptor(call.thread, call.arguments[0]).ok()?;
        let which = if call.number == sys::CONNECT { Timeout::Send } else { Timeout::Recv };
        socket_timeout(&socket, which).ok()?.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The socket that a call is about; `None`: it is none of ours.
    pub(super) fn find(&mut self, call: &Call) -> Result<Option<(Key, OwnedFd)>, Errno> {
        if call.number == sys::SOCKET {
            return Ok(None);
        }
        let socket = match self.threads.descriptor(call.thread, call.arguments[0]) {
            // The descriptor may be one of ours, whose UNIX socket the kernel must not be asked about.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => return Err(Errno::NOBUFS),
            // The kernel says what is wrong with it.
            Err(_) => return Ok(None),
            Ok(socket) => socket,
        };
        let cookie = local::cookie(socket.as_fd());
        let key = cookie.and_then(|cookie| {
            self.table.find_by_cookie(cookie).or_else(|| self.find_adopted(cookie, socket.as_fd()))
        });
        let Some(key) = key else { return Ok(None) };
        self.trap.check_waiting(call.id)?;
        Ok(Some((key, socket)))
    }

    fn answer(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        if let Some(result) = self.take_undelivered(call, key) {
            return result.map(Reply::Value);
        }
        let flags = match call.number {
            sys::SENDTO | sys::RECVFROM | sys::SENDMMSG | sys::RECVMMSG => call.arguments[3],
            sys::SENDMSG | sys::RECVMSG => call.arguments[2],
            _ => 0,
        };
        if let Some(reply) = self.answer_shared(call, key, socket) {
            return reply;
        }
        match call.number {
            // The UNIX socket has urgent data of its own, and no queue of errors.
            sys::SENDTO | sys::SENDMSG | sys::SENDMMSG if flags & OOB != 0 => Err(Errno::OPNOTSUPP),
            sys::RECVFROM | sys::RECVMSG | sys::RECVMMSG if flags & ERRQUEUE != 0 => Err(Errno::AGAIN),
            _ => self.answer_of(call, key, socket),
        }
    }

    fn answer_of(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let is_udp = self.table.datagrams(key).is_some();
        match call.number {
            sys::BIND => self.bind(call, key),
            sys::CONNECT if is_udp => self.connect_datagrams(call, key),
            sys::CONNECT => self.connect(call, key, socket),
            sys::LISTEN if is_udp => Err(Errno::OPNOTSUPP),
            sys::LISTEN => self.listen(call, key, socket),
            sys::ACCEPT | sys::ACCEPT4 if is_udp => Err(Errno::OPNOTSUPP),
            sys::ACCEPT | sys::ACCEPT4 => self.accept(call, key, socket),
            sys::GETSOCKNAME => self.name(call, key, false),
            sys::GETPEERNAME => self.name(call, key, true),
            sys::SETSOCKOPT => self.set_option(call, key),
            sys::GETSOCKOPT => self.option(call, key, socket),
            sys::SHUTDOWN => self.shut_down(call, key, socket),
            sys::IOCTL => self.control(call, key),
            sys::SENDTO if is_udp => self.send_datagram(call, key),
            sys::SENDMSG if is_udp => self.send_message(call, key),
            sys::SENDTO => self.send_named(call, key, socket),
            sys::SENDMSG => self.send_message_named(call, key, socket),
            sys::SENDMMSG if is_udp => self.send_messages(call, key),
            sys::RECVFROM if is_udp => self.receive_from(call, key, socket),
            sys::RECVMSG if is_udp => self.receive_message(call, key, socket),
            sys::RECVMMSG if is_udp => self.receive_messages(call, key, socket),
            // Receiving from a stream too: neither TCP nor a UNIX socket gives an address.
            _ => Ok(Reply::Resume),
        }
    }

    /// `socket`.
    fn open(&mut self, call: &Call) -> Result<Reply, Errno> {
        let [family, kind, protocol, ..] = call.arguments;
        let v6 = family as u16 == address::INET6;
        let (nonblocking, cloexec) = (kind & NONBLOCK != 0, kind & CLOEXEC != 0);
        let (socket, key) = match (kind & TYPE, protocol & 0xffff_ffff) {
            (STREAM, 0 | TCP) => self.open_stream(v6, nonblocking)?,
            (DATAGRAM, 0 | UDP) => self.open_datagrams(v6, nonblocking)?,
            // What Linux says when MPTCP is switched off.
            (STREAM, MPTCP) => return Err(Errno::PROTONOSUPPORT),
            _ => {
                self.report.refused(call.thread, kind & TYPE, protocol);
                return Ok(Reply::Resume);
            }
        };
        match self.trap.give(call.id, socket.as_fd(), cloexec) {
            Ok(number) => {
                self.report.pumped(call.thread, number, kind & TYPE == STREAM);
                Ok(Reply::Done)
            }
            Err(error) => {
                drop(socket);
                self.close(key);
                // The call is gone, or the program may have no more descriptors.
                Err(error)
            }
        }
    }

    /// `getsockname` and `getpeername`.
    fn name(&mut self, call: &Call, key: Key, of_peer: bool) -> Result<Reply, Errno> {
        let socket = self.table.get(key).ok_or(Errno::BADF)?;
        let any = |v6: bool| if v6 { "[::]:0" } else { "0.0.0.0:0" }.parse().map_err(|_| Errno::INVAL);
        let own = socket.local;
        let address = match (&socket.kind, of_peer) {
            (Kind::Stream(stream), true) if stream.is_established => stream.peer,
            (Kind::Datagrams(datagrams), true) => datagrams.peer.ok_or(Errno::NOTCONN)?,
            (_, true) => return Err(Errno::NOTCONN),
            (Kind::Stream(stream), false) => stream.local,
            (Kind::Ended { local, .. }, false) => *local,
            (Kind::Datagrams(datagrams), false) if own.is_some_and(|own| own.ip().is_unspecified()) => {
                let own = own.map_or_else(|| any(socket.v6), Ok)?;
                datagrams.source.map_or(own, |source| SocketAddr::new(source, own.port()))
            }
            (_, false) => own.map_or_else(|| any(socket.v6), Ok)?,
        };
        self.trap.check_waiting(call.id)?;
        let [_, at, len_at, ..] = call.arguments;
        address::write(call.thread, at, len_at, &address::encode(address, socket.v6))?;
        Ok(Reply::Value(0))
    }

    /// `bind`.
    fn bind(&mut self, call: &Call, key: Key) -> Result<Reply, Errno> {
        let v6 = self.table.get(key).ok_or(Errno::BADF)?.v6;
        let address = match address::read(call.thread, call.arguments[1], call.arguments[2], v6)? {
            address::Destination::Address(address) => address,
            // As Linux reads an address without a family.
            address::Destination::Unspecified => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        self.trap.check_waiting(call.id)?;
        self.bind_to(key, address)?;
        Ok(Reply::Value(0))
    }
}
