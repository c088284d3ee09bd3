//! Programs in C: the system calls of a C library, on this library's sockets, time and log.
//!
//! The C library is klibc: small, under BSD-like licences, in Debian and its descendants as `libklibc-dev`; and each of
//! its system calls jumps to one symbol, `__syscall_common`, which the image defines in place of klibc's own
//! (`ringway_tiny::image::c`). In musl and glibc, each call is an instruction of its own, which would have to be
//! emulated; dietlibc is under the GPL.
//!
//! There is one thread: the C program's. A call that has to wait takes turns until it need not
//! ([`Runtime::block_on`]); other calls take a turn now and then, so that a program that never waits does not starve
//! its connections. What a call sends leaves with it.
//!
//! [`Calls::call`] is where a call arrives; `abi` has its numbers, `ram` what its addresses mean, `pages` the memory
//! of `malloc`, `files` and `socket` what descriptors stand for; `net`, `options`, `ready` and `time` are the calls.
//!
//! Peers are bounded as those of any program are: by the number of streams, of sockets and of open files, and by the
//! bytes of each. `malloc` has a part of the memory that nothing else has, so that it returns NULL when that is used.

mod abi;
mod files;
#[cfg(target_os = "none")]
mod image;
mod memory;
mod net;
mod options;
mod pages;
mod ready;
mod socket;
#[cfg(test)]
mod tests;
mod time;

use crate::runtime::{End, Host, Runtime};
use crate::{Error, Network, Program};
use abi::{AT_NULL, AT_PAGESZ, Errno, control, number};
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use files::{File, Files, What, print_lines};
use memory::{Parts, ProgramMemory};
use pages::{PAGE, Pages};
use ringway_ring::Broken;
use ringway_tiny::{FunctionStart, Machine, Monitor};

/// A turn is due after so many nanoseconds without one.
const TURN: u64 = 20_000;
/// How long the program's last bytes may take when it has ended.
const DRAIN_TIME: Duration = Duration::from_secs(2);
const DRAIN_STEP: Duration = Duration::from_millis(1);
/// Bytes that are copied at once.
const PIECE: usize = 64 << 10;
/// Longest path.
const PATH: u64 = 256;
/// Signal numbers are less than this.
const SIGNALS: u64 = 65;

/// Why a call does not return a value.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    Errno(Errno),
    /// The program has ended.
    End(End),
}

type Reply = Result<u64, Stop>;

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Errno(errno)
    }
}

/// What a program in C has.
pub(crate) struct Calls<M> {
    runtime: Runtime<M>,
    program: Program,
    ram: ProgramMemory,
    pages: Pages,
    files: Files,
    network: Option<Network>,
    /// Random bits, if the processor has a source of them.
    random: fn() -> Option<u64>,
    /// When the last turn took place.
    turned: u64,
    /// Calls that do not exist, and were said.
    unknown: BTreeSet<u64>,
    /// What is copied.
    piece: Vec<u8>,
}

impl<M: Machine> Calls<M> {
    /// A program whose `malloc` has the memory from `heap[0]` to `heap[1]`.
    pub fn new(
        host: Host<M>,
        monitor: Monitor,
        start: FunctionStart,
        ram: ProgramMemory,
        heap: [u64; 2],
        random: fn() -> Option<u64>,
    ) -> Calls<M> {
        let runtime = Runtime::new(host, monitor, start);
        Calls {
            program: runtime.program(),
            runtime,
            ram,
            pages: Pages::new(heap[0], heap[1]),
            files: Files::new(),
            network: None,
            random,
            turned: 0,
            unknown: BTreeSet::new(),
            piece: vec![0; PIECE],
        }
    }

    /// What the C library's start expects on its stack: the arguments, after the program's name; the environment,
    /// from the function's parameters; and an auxiliary vector. `None`: there is no memory for it.
    pub fn arguments(&mut self) -> Option<Vec<u64>> {
        let own = self.program.clone();
        let name = own.shared.start.title.as_str();
        let arguments: Vec<&str> = core::iter::once(name).chain(own.arguments()).collect();
        let parameters = &own.shared.start.parameters;
        let environment: Vec<_> =
            parameters.iter().map(|(name, value)| alloc::format!("{name}={value}")).collect();
        let texts = || arguments.iter().copied().chain(environment.iter().map(|text| text.as_str()));
        let bytes: Vec<u8> = texts().flat_map(|text| text.bytes().chain([0])).collect();
        let mut at = self.pages.map(&self.ram, (bytes.len() as u64).max(1)).ok()?;
        self.ram.write(at, &bytes).ok()?;
        let mut words = Vec::from([arguments.len() as u64]);
        for (index, text) in texts().enumerate() {
            if index == arguments.len() {
                words.push(0);
            }
            words.push(at);
            at += text.len() as u64 + 1;
        }
        if environment.is_empty() {
            words.push(0);
        }
        words.extend([0, AT_PAGESZ, PAGE, AT_NULL, 0]);
        Some(words)
    }

    /// Takes a first turn, so that the monitor knows that the program runs.
    pub fn begin(&mut self) -> Result<(), End> {
        match self.turn() {
            Err(Stop::End(end)) => Err(end),
            Ok(()) | Err(Stop::Errno(_)) => Ok(()),
        }
    }

    /// A system call with the program's stack pointer: its value, or a negative error number. An error: the program
    /// has ended.
    pub fn call(&mut self, number: u64, arguments: [u64; 6], stack: u64) -> Result<i64, End> {
        self.ram.begin(stack);
        let due = self.now().saturating_sub(self.turned) >= TURN;
        let turned = if due { self.turn() } else { Ok(()) };
        match turned.and_then(|()| self.dispatch(number, arguments)) {
            Ok(value) => Ok(value as i64),
            Err(Stop::Errno(errno)) => Ok(-(errno as i64)),
            Err(Stop::End(end)) => Err(end),
        }
    }

    fn dispatch(&mut self, number: u64, arguments: [u64; 6]) -> Reply {
        let [a, b, c, d, e, _] = arguments;
        match number {
            number::READ => self.receive(a, Parts::one(b, c), 0, None),
            number::WRITE => self.send(a, Parts::one(b, c), 0, None),
            number::READV => self.receive(a, self.ram.parts(b, c)?, 0, None),
            number::WRITEV => self.send(a, self.ram.parts(b, c)?, 0, None),
            number::OPEN => self.open(a, b),
            number::OPENAT => self.open(b, c),
            number::CLOSE => self.close(a),
            number::LSEEK => Err(self.files.get(a).map_or_else(|errno| errno, |_| Errno::NoSeek).into()),
            number::DUP | number::DUP2 | number::DUP3 | number::FCNTL | number::IOCTL => {
                self.descriptor(number, a, b, c)
            }
            number::MMAP => self.map(b, d),
            number::MUNMAP => Ok(self.pages.unmap(a, b).map(|()| 0)?),
            number::MPROTECT => Ok(0),
            number::BRK => Ok(self.pages.brk(&self.ram, a)),
            number::POLL | number::PPOLL | number::PSELECT6 => self.ready(number, arguments),
            number::SOCKET..=number::GETPEERNAME
            | number::SETSOCKOPT
            | number::GETSOCKOPT
            | number::ACCEPT4 => self.net(number, arguments),
            number::NANOSLEEP
            | number::GETTIMEOFDAY
            | number::TIMES
            | number::TIME
            | number::CLOCK_GETTIME
            | number::CLOCK_NANOSLEEP => self.time(number, [a, b, c, d]),
            number::GETRANDOM => self.fill_random(Parts::one(a, b)),
            number::EXIT | number::EXIT_GROUP => self.exit(a as u32 & 0xff),
            number::UNAME => self.uname(a),
            _ => self.process(number, [a, b, c, d, e]),
        }
    }

    /// Calls about processes and signals, of which there are one and none.
    fn process(&mut self, number: u64, [_, signal, old, size, _]: [u64; 5]) -> Reply {
        match number {
            number::GETPID => Ok(1),
            number::GETPPID | number::GETUID | number::GETGID | number::GETEUID | number::GETEGID => Ok(0),
            number::UMASK => Ok(0o22),
            number::SCHED_YIELD => self.turn().map(|()| 0),
            // No signal comes: what is done about one may be chosen, and was the default before.
            number::RT_SIGACTION | number::RT_SIGPROCMASK => {
                if old != 0 {
                    // A `struct sigaction` is a handler, flags, a function and a mask; or there is a mask alone.
                    let whole = if number == number::RT_SIGACTION { 24 } else { 0 } + size.min(128);
                    self.ram.clear(old, whole)?;
                }
                Ok(0)
            }
            number::PAUSE | number::RT_SIGSUSPEND => self.block_on(core::future::pending()),
            // The process ID is ignored, since there is one process. Signal 0 asks whether it exists.
            number::KILL => match u64::from(signal as u32) {
                0 => Ok(0),
                signal if signal < SIGNALS => self.end(Err(Error::other(alloc::format!("signal {signal}")))),
                _ => Err(Errno::Invalid.into()),
            },
            _ => {
                if self.unknown.insert(number) {
                    let text = "does not exist here: it fails with ENOSYS";
                    self.program.log(format_args!("the system call with number {number} {text}"));
                }
                Err(Errno::NoCall.into())
            }
        }
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        self.program.shared.time.now()
    }

    /// Takes turns until a future is ready.
    fn block_on<F: Future>(&mut self, future: F) -> Result<F::Output, Stop> {
        let result = self.runtime.block_on(pin!(future));
        self.turned = self.now();
        result.map_err(|broken| match broken {
            Broken::Index | Broken::Buffer => Stop::End(End::Monitor),
        })
    }

    /// Takes a turn.
    fn turn(&mut self) -> Result<(), Stop> {
        let program = self.program.clone();
        self.block_on(program.pause())
    }

    /// Waits until an event has come for one of the files, for a time at most; whether one has.
    fn wait(&mut self, files: &[(Rc<File>, u16)], most: Option<Duration>) -> Result<bool, Stop> {
        let ready = poll_fn(|cx| {
            if files.iter().any(|(file, wanted)| file.events(*wanted) != 0) {
                return Poll::Ready(());
            }
            files.iter().for_each(|(file, wanted)| file.wait(*wanted, cx.waker()));
            Poll::Pending
        });
        let Some(most) = most else { return self.block_on(ready).map(|()| true) };
        let program = self.program.clone();
        Ok(self.block_on(program.timeout(most, ready))?.is_some())
    }

    /// Repeats what would block when one of the events has come, if the call waits, and up to its end at most. The
    /// end is the whole call's.
    ///
    /// Attack: others' datagrams to a socket that has a peer, each of which is an event that yields nothing: a time
    /// that began anew after each would never be over.
    fn until<T>(
        &mut self,
        file: &Rc<File>,
        wanted: u16,
        wait: Option<Option<Duration>>,
        mut attempt: impl FnMut(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Stop> {
        loop {
            match (attempt(self), wait) {
                (Err(Errno::Again), Some(end)) => {
                    let rest = end.map(|end| end.saturating_sub(self.program.now()));
                    if rest == Some(Duration::ZERO) || !self.wait(&[(file.clone(), wanted)], rest)? {
                        return Err(Errno::Again.into());
                    }
                }
                (result, _) => return Ok(result?),
            }
        }
    }

    fn open(&mut self, path: u64, flags: u64) -> Reply {
        let what = match &self.ram.text(path, PATH)?[..] {
            b"/dev/null" => What::Null,
            b"/dev/random" | b"/dev/urandom" if (self.random)().is_some() => What::Random,
            _ => return Err(Errno::NoEntry.into()),
        };
        Ok(self.files.open(File::new(what, flags & abi::O_NONBLOCK != 0), 0)?)
    }

    fn close(&mut self, descriptor: u64) -> Reply {
        self.files.close(descriptor)?;
        // The end of a stream leaves at once.
        self.runtime.put();
        Ok(0)
    }

    fn map(&mut self, len: u64, flags: u64) -> Reply {
        match flags {
            flags if flags & abi::MAP_ANONYMOUS == 0 => Err(Errno::NoDevice.into()),
            flags if flags & abi::MAP_FIXED != 0 => Err(Errno::Invalid.into()),
            _ => Ok(self.pages.map(&self.ram, len)?),
        }
    }

    /// `dup`, `fcntl` and `ioctl`.
    fn descriptor(&mut self, number: u64, descriptor: u64, command: u64, value: u64) -> Reply {
        let file = self.files.get(descriptor)?;
        let is_console = matches!(&*file.what.borrow(), What::Console(_));
        // An `int`, as descriptors are.
        match (number, u64::from(command as u32)) {
            (number::DUP, _) => Ok(self.files.open(file, 0)?),
            (number::DUP2, to) | (number::DUP3, to) => Ok(self.files.replace(file, to)?),
            (number::FCNTL, control::F_DUPFD | control::F_DUPFD_CLOEXEC) => {
                Ok(self.files.open(file, value)?)
            }
            (number::FCNTL, control::F_GETFD | control::F_SETFD) => Ok(0),
            (number::FCNTL, control::F_GETFL) => Ok(file.flags()),
            (number::FCNTL, control::F_SETFL) => {
                file.nonblocking.set(value & abi::O_NONBLOCK != 0);
                Ok(0)
            }
            (number::FCNTL, _) => Err(Errno::Invalid.into()),
            (_, control::FIONBIO) => {
                file.nonblocking.set(self.ram.word(value)? != 0);
                Ok(0)
            }
            (_, control::FIONREAD) => {
                let unread = file.socket(|socket| Ok(socket.unread()))?;
                let unread = i32::try_from(unread).unwrap_or(i32::MAX);
                Ok(self.ram.write(value, &unread.to_le_bytes()).map(|()| 0)?)
            }
            // By this, a C library knows a terminal, to which it writes line by line (`struct termios`).
            (_, control::TCGETS) if is_console => Ok(self.ram.clear(value, 36).map(|()| 0)?),
            _ => Err(Errno::NoTerminal.into()),
        }
    }

    fn uname(&self, at: u64) -> Reply {
        /// Bytes of each text, with its zero.
        const TEXT: usize = 65;
        let title = self.program.shared.start.title.as_str();
        let texts = ["Ringway", title, env!("CARGO_PKG_VERSION"), "", "x86_64", ""];
        let mut bytes = [[0; TEXT]; 6];
        for (text, out) in texts.iter().zip(&mut bytes) {
            let len = text.len().min(TEXT - 1);
            out[..len].copy_from_slice(&text.as_bytes()[..len]);
        }
        Ok(self.ram.write(at, bytes.as_flattened()).map(|()| 0)?)
    }

    /// Ends the program as `exit` does: what it wrote is sent before.
    fn exit(&mut self, status: u32) -> Reply {
        let result = match status {
            0 => Ok(()),
            status => Err(Error::other(format_args!("exit status {status}"))),
        };
        self.end(result)
    }

    fn end(&mut self, result: Result<(), Error>) -> Reply {
        let program = self.program.clone();
        self.files.close_all(&program);
        if let Some(network) = self.network.clone() {
            let drained = async {
                while !network.with(|network, _| network.stack.is_drained()) {
                    program.sleep(DRAIN_STEP).await;
                }
            };
            // What a peer does not take in time is lost.
            self.block_on(program.timeout(DRAIN_TIME, drained))?;
        }
        Err(Stop::End(self.runtime.end(result)))
    }

    /// Copies random bytes.
    fn fill_random(&mut self, parts: Parts) -> Reply {
        let len = parts.len().min(PIECE);
        let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
        while bytes.len() < len {
            let random = (self.random)().ok_or(Errno::NoCall)?;
            bytes.extend(random.to_le_bytes());
        }
        parts.scatter(&self.ram, 0, &bytes[..len])?;
        Ok(len as u64)
    }

    /// Writes to the console.
    fn print(&mut self, file: &Rc<File>, parts: &Parts) -> Reply {
        let mut done = 0;
        while done < parts.len() {
            let count = parts.gather(&self.ram, done, &mut self.piece)?;
            done += count;
            if let What::Console(line) = &mut *file.what.borrow_mut() {
                print_lines(&self.program, line, &self.piece[..count]);
            }
        }
        Ok(done as u64)
    }
}
