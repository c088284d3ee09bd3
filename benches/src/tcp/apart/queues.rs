//! A stack in a process of its own: the bytes of each connection pass by two queues in shared memory.

use super::transport::{Places, Transport, establish};
use super::{BULK, CONNECTIONS};
use crate::Failure;
use ringway_host::{Epoll, EventFd, Mapping, memfd, receive_with, send_with};
use ringway_mem::{Hint, Memory};
use ringway_netstack::SocketId;
use ringway_sockets::Host;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

/// Bytes of a queue.
const SIZE: usize = 256 << 10;
/// Numbers and words before the queues' bytes; each queue's are in lines of their own.
const WORDS: usize = 512;
const QUEUE_WORDS: usize = 24;
const CONTROL: usize = 32 << 10;
const TOTAL: usize = CONTROL + 2 * CONNECTIONS * SIZE;
/// Of which side the program is, and the stack.
const PROGRAM: usize = 0;
const STACK: usize = 1;
/// The keys of the stack's descriptors.
const HOST: u64 = 0;
const CALL: u64 = 1;

/// What program and stack share. Queue `2 * connection` has bytes to the stack, the next one bytes to the program.
struct Shared {
    words: Arc<Mapping>,
    memory: Memory,
    /// Wake the program, and the stack.
    calls: [OwnedFd; 2],
}

impl Shared {
    fn new(file: &OwnedFd, calls: [OwnedFd; 2]) -> Result<Shared, Failure> {
        let words = Mapping::sealed(file)?;
        let memory = Memory::new(vec![words.clone().region_at(0, 0)]).map_err(|error| error.to_string())?;
        Ok(Shared { words, memory, calls })
    }

    /// Whether a side sleeps.
    fn sleeps(&self, side: usize) -> &AtomicU64 {
        &self.words.words()[8 * side]
    }

    /// The connections at which a side is to look, a bit each.
    fn marked(&self, side: usize) -> &AtomicU64 {
        &self.words.words()[16 + 8 * side]
    }

    /// Bytes taken and bytes added since the beginning, and whether the one who adds waits for room.
    fn state(&self, queue: usize) -> [&AtomicU64; 3] {
        let first = WORDS + queue * QUEUE_WORDS;
        [0, 8, 16].map(|word| &self.words.words()[first + word])
    }

    /// Calls `each` with the two parts of `count` bytes from `at`: offsets in the memory, and in the bytes.
    fn parts(queue: usize, at: u64, count: usize, mut each: impl FnMut(u64, usize, usize)) {
        let at = at as usize % SIZE;
        let first = count.min(SIZE - at);
        let base = CONTROL + queue * SIZE;
        each((base + at) as u64, 0, first);
        each(base as u64, first, count);
    }

    fn push(&self, queue: usize, bytes: &[u8]) -> usize {
        let [taken, added, _] = self.state(queue);
        let end = added.load(Relaxed);
        let count = bytes.len().min(SIZE - (end - taken.load(Acquire)) as usize);
        Shared::parts(queue, end, count, |to, from, until| {
            let len = (until - from) as u32;
            if let Some(span) = self.memory.span_mut(to, len, &mut Hint::default()) {
                span.write(&bytes[from..until]);
            }
        });
        added.store(end + count as u64, Release);
        count
    }

    /// As [`Shared::push`]; what finds no room is asked for.
    fn push_or_wait(&self, queue: usize, bytes: &[u8]) -> usize {
        let count = self.push(queue, bytes);
        if count == bytes.len() {
            return count;
        }
        self.state(queue)[2].store(1, SeqCst);
        count + self.push(queue, &bytes[count..])
    }

    /// The bytes taken, and whether the other side waits for their room.
    fn pop(&self, queue: usize, bytes: &mut [u8]) -> (usize, bool) {
        let [taken, added, waits] = self.state(queue);
        let begin = taken.load(Relaxed);
        let count = bytes.len().min((added.load(Acquire) - begin) as usize);
        Shared::parts(queue, begin, count, |from, to, until| {
            if let Some(span) = self.memory.span(from, (until - to) as u32, &mut Hint::default()) {
                span.read(&mut bytes[to..until]);
            }
        });
        taken.store(begin + count as u64, SeqCst);
        (count, count > 0 && waits.load(SeqCst) == 1 && waits.swap(0, SeqCst) == 1)
    }

    fn mark(&self, side: usize, at: usize) {
        self.marked(side).fetch_or(1 << at, SeqCst);
    }

    fn wake(&self, side: usize) -> Result<(), Failure> {
        if self.sleeps(side).load(SeqCst) == 1 && self.sleeps(side).swap(0, SeqCst) == 1 {
            rustix::io::write(&self.calls[side], &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Whether a side may sleep: the other one will wake it.
    fn may_sleep(&self, side: usize) -> bool {
        self.sleeps(side).store(1, SeqCst);
        let may = self.marked(side).load(SeqCst) == 0;
        if !may {
            self.sleeps(side).store(0, SeqCst);
        }
        may
    }
}

/// The program's side.
pub struct Queues {
    shared: Shared,
    epoll: Epoll,
}

impl Queues {
    /// Asks the stack at `path` for its connections.
    pub fn open(path: &Path, connects: bool) -> Result<Queues, Failure> {
        let socket = connected(path)?;
        let (_, descriptors) = receive_with(socket.as_fd(), &mut [0], 3)?;
        let [file, program, stack]: [OwnedFd; 3] = descriptors.try_into().map_err(|_| "no descriptors")?;
        let epoll = Epoll::new()?;
        // The descriptor is never read.
        epoll.add_edge(program.as_fd(), CALL)?;
        let mut queues = Queues { shared: Shared::new(&file, [program, stack])?, epoll };
        let (mut seen, mut ready) = ([false; CONNECTIONS], Vec::new());
        while connects && seen.contains(&false) {
            queues.wait(&mut ready)?;
            ready.drain(..).for_each(|at| seen[at] = true);
        }
        Ok(queues)
    }
}

/// The stack may be starting.
fn connected(path: &Path) -> Result<UnixStream, Failure> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match UnixStream::connect(path) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            socket => return Ok(socket?),
        }
    }
}

/// The numbers of the bits that are set.
fn numbers(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (at < u64::BITS).then_some(at as usize)
    })
}

impl Transport for Queues {
    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), Failure> {
        loop {
            let marked = self.shared.marked(PROGRAM).swap(0, SeqCst);
            ready.extend(numbers(marked));
            if marked != 0 {
                return Ok(());
            }
            if self.shared.may_sleep(PROGRAM) {
                self.epoll.wait(None, |_| {});
                self.shared.sleeps(PROGRAM).store(0, SeqCst);
            }
        }
    }

    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<usize, Failure> {
        let (count, waits) = self.shared.pop(2 * at + 1, bytes);
        if waits {
            self.shared.mark(STACK, at);
            self.shared.wake(STACK)?;
        }
        Ok(count)
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<usize, Failure> {
        let count = self.shared.push_or_wait(2 * at, bytes);
        if count > 0 {
            self.shared.mark(STACK, at);
            self.shared.wake(STACK)?;
        }
        Ok(count)
    }
}

/// The stack's side.
pub struct Stack {
    host: Host,
    shared: Shared,
    places: Places,
    listener: Option<SocketId>,
    buffer: Vec<u8>,
}

impl Stack {
    /// Serves a program, which asks at `path`.
    pub fn run(mut host: Host, path: &Path, address: SocketAddr, listens: bool) -> Result<(), Failure> {
        let clients = UnixListener::bind(path)?;
        let listener = if listens { Some(host.stack().listen(address, CONNECTIONS)?) } else { None };
        let (socket, _) = clients.accept()?;
        let file = memfd("queues", TOTAL)?;
        let calls = [EventFd::new()?.into_fd(), EventFd::new()?.into_fd()];
        send_with(socket.as_fd(), &[0], &[file.as_fd(), calls[0].as_fd(), calls[1].as_fd()])?;
        let shared = Shared::new(&file, calls)?;
        let (places, buffer) = (Places::default(), vec![0; 256 << 10]);
        let mut stack = Stack { host, shared, places, listener, buffer };
        if !listens {
            stack.connect(address)?;
        }
        stack.serve()
    }

    fn connect(&mut self, address: SocketAddr) -> Result<(), Failure> {
        for at in 0..CONNECTIONS {
            let now = self.host.now();
            let socket = self.host.stack().connect(now, address)?;
            self.places.add(&mut self.host, socket)?;
            establish(&mut self.host, socket)?;
            self.shared.mark(PROGRAM, at);
        }
        self.shared.wake(PROGRAM)
    }

    fn serve(&mut self) -> Result<(), Failure> {
        let epoll = Epoll::new()?;
        epoll.add_level(self.host.as_fd(), HOST)?;
        epoll.add_edge(self.shared.calls[STACK].as_fd(), CALL)?;
        loop {
            let busy = self.host.poll()?;
            let mut marked = self.shared.marked(STACK).swap(0, SeqCst);
            while let Some((socket, _)) = self.host.stack().next_event() {
                if Some(socket) == self.listener {
                    while let Ok(accepted) = self.host.stack().accept(socket) {
                        self.places.add(&mut self.host, accepted.socket)?;
                    }
                } else if let Some(at) = self.places.of(socket) {
                    marked |= 1 << at;
                }
            }
            for at in numbers(marked) {
                self.pump(at)?;
            }
            if marked != 0 {
                self.host.poll()?;
                self.shared.wake(PROGRAM)?;
            } else if !busy && self.shared.may_sleep(STACK) {
                if let Some(most) = self.host.arm()? {
                    epoll.wait(Some(most.as_nanos().min(3_600_000_000_000) as u64), |_| {});
                }
                self.shared.sleeps(STACK).store(0, SeqCst);
                self.host.wait(Some(Duration::ZERO))?;
            }
        }
    }

    /// Moves bytes in both directions.
    fn pump(&mut self, at: usize) -> Result<(), Failure> {
        let socket = self.places.sockets[at];
        let now = self.host.now();
        let stack = self.host.stack();
        loop {
            let room = stack.send_room(socket)?.min(self.buffer.len());
            let (count, waits) = self.shared.pop(2 * at, &mut self.buffer[..room]);
            if waits {
                self.shared.mark(PROGRAM, at);
            }
            if count == 0 {
                break;
            }
            stack.send(now, socket, &self.buffer[..count])?;
        }
        loop {
            let [bytes, _] = stack.received(socket)?;
            if bytes.is_empty() {
                return Ok(());
            }
            let count = self.shared.push_or_wait(2 * at + 1, bytes);
            if count == 0 {
                return Ok(());
            }
            self.shared.mark(PROGRAM, at);
            stack.consume(now, socket, count)?;
        }
    }
}

const _: () = assert!(CONNECTIONS <= 64 && BULK < CONNECTIONS && TOTAL.is_multiple_of(4096));
const _: () = assert!(8 * (WORDS + 2 * CONNECTIONS * QUEUE_WORDS) <= CONTROL);

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let file = memfd("queues-test", TOTAL).unwrap();
        Shared::new(&file, [EventFd::new().unwrap().into_fd(), EventFd::new().unwrap().into_fd()]).unwrap()
    }

    #[test]
    fn bytes_pass_in_order_and_room_is_asked_for() {
        let (shared, queue) = (shared(), 2 * CONNECTIONS - 1);
        let bytes: Vec<u8> = (0..SIZE + 1000).map(|at| (at % 251) as u8).collect();
        let mut out = vec![0; SIZE];
        assert_eq!(shared.push(queue, &bytes[..1000]), 1000);
        assert_eq!(shared.pop(queue, &mut out[..600]), (600, false));
        // Around the end, until it is full.
        assert_eq!(shared.push_or_wait(queue, &bytes[1000..]), SIZE - 400);
        assert_eq!(shared.pop(queue, &mut out), (SIZE, true));
        assert!(out == bytes[600..SIZE + 600]);
        assert_eq!(shared.pop(queue, &mut out), (0, false));
    }

    #[test]
    fn a_side_sleeps_only_if_nothing_is_marked() {
        let shared = shared();
        assert!(shared.may_sleep(PROGRAM));
        shared.mark(PROGRAM, 3);
        shared.mark(PROGRAM, 50);
        shared.wake(PROGRAM).unwrap();
        assert_eq!(shared.sleeps(PROGRAM).load(SeqCst), 0);
        assert!(!shared.may_sleep(PROGRAM) && shared.may_sleep(STACK));
        assert_eq!(numbers(shared.marked(PROGRAM).swap(0, SeqCst)).collect::<Vec<_>>(), [3, 50]);
    }
}
