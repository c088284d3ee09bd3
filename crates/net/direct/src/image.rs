//! Mapping the image, and calling its function.

use ringway_direct_stack::abi::words::{ACCEPTED, LEAD, LOCK, WITHDRAWN};
use ringway_direct_stack::abi::{address_bytes, addresses_bytes};
use ringway_direct_stack::{AGENT_AT, Call, Flags, Operation, PORT_AT, result_of};
use ringway_host::{
    FixedAccess, FixedMapping, HostError, LockError, RobustGuard, RobustLock, constant_memfd, memfd,
};
use ringway_netstack::{Diverted, RepairError, Settings, SocketError, SocketId};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

/// The image's read-only segment, and its writable one.
static TEXT: &[u8] = include_bytes!(env!("DIRECT_TEXT"));
static DATA: &[u8] = include_bytes!(env!("DIRECT_DATA"));

/// Parses a number that the build script found.
const fn parse_number(text: &str) -> usize {
    let (mut value, mut at) = (0, 0);
    while at < text.len() {
        value = value * 10 + (text.as_bytes()[at] - b'0') as usize;
        at += 1;
    }
    value
}

const ENTRY: usize = parse_number(env!("DIRECT_ENTRY"));
const TEXT_AT: usize = parse_number(env!("DIRECT_TEXT_AT"));
const TEXT_END: usize = parse_number(env!("DIRECT_TEXT_END"));
const DATA_AT: usize = parse_number(env!("DIRECT_DATA_AT"));
const DATA_END: usize = parse_number(env!("DIRECT_DATA_END"));
/// Most memory for the heap.
const MAX_MEMORY: usize = 2 << 30;
const PAGE: usize = 4096;
/// Bytes of a connection's state that are copied by one call.
const STATE_CHUNK: usize = 1 << 20;

const _: () = assert!(TEXT_AT < ENTRY && ENTRY < TEXT_END && TEXT_END <= DATA_AT);
const _: () = assert!(DATA_END + MAX_MEMORY <= PORT_AT as usize);

/// Most memory that a connection needs besides what `tcp_mem` bounds: its state, and the buffers that each may have.
const SOCKET_MEMORY: usize = 12 << 10;

/// Settings by which connections fit into so much memory for the image. Attack: peers that connect until there is none
/// left, which would end the stack for all.
pub fn bounded_settings(settings: &Settings, memory: usize) -> Settings {
    let limits = [memory / 4, memory / 3, memory / 2];
    let mut tcp_mem = settings.tcp_mem;
    tcp_mem.iter_mut().zip(limits).for_each(|(own, limit)| *own = (*own).min(limit));
    let max_sockets = settings.max_sockets.min(memory / 8 * 3 / SOCKET_MEMORY);
    Settings { tcp_mem, max_sockets, ..settings.clone() }
}

/// Why the stack can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// A call of the operating system failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The lock can't be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The memory has no ring, or the stack has begun already or not yet.
    #[error(
        "the shared stack can't be set up: the memory has no ring, or the stack was begun already or not yet"
    )]
    Invalid,
}

/// The files that all processes map.
#[derive(Debug)]
pub struct Files {
    /// Code and constants, which nobody can change.
    pub text: OwnedFd,
    /// What the processes share.
    pub data: OwnedFd,
}

impl Files {
    /// New files, with `memory` bytes for connections, which are taken as they are needed.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn create(memory: usize) -> Result<Files, DirectError> {
        let mut bytes = TEXT.to_vec();
        bytes.resize(TEXT_END - TEXT_AT, 0);
        let text = constant_memfd("ringway-direct-text", &bytes)?;
        let len = DATA_END - DATA_AT + memory.clamp(PAGE, MAX_MEMORY).next_multiple_of(PAGE);
        let data = std::fs::File::from(memfd("ringway-direct-data", len)?);
        data.write_all_at(DATA, 0)?;
        Ok(Files { text, data: data.into() })
    }
}

impl Files {
    /// Marks the stack as lost for all processes, without reading it. The caller then notifies the processes.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn withdraw(data: &OwnedFd) -> Result<(), DirectError> {
        let data = std::fs::File::from(data.try_clone()?);
        Ok(data.write_all_at(&1_u32.to_ne_bytes(), WITHDRAWN as u64)?)
    }

    /// How many connections were accepted in the stack, as the processes say.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn accepted(data: &OwnedFd) -> Result<u64, DirectError> {
        let data = std::fs::File::from(data.try_clone()?);
        let mut count = [0; 8];
        data.read_exact_at(&mut count, ACCEPTED as u64)?;
        Ok(u64::from_ne_bytes(count))
    }
}

/// The peer of one of the stack's two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingPeer {
    /// The ring to the port.
    Port,
    /// The ring to the agent.
    Agent,
}

/// What is to be done after a call of the image, whatever its result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The port is to be notified.
    pub kick_port: bool,
    /// The agent is to be notified.
    pub kick_agent: bool,
    /// Connections became ready, of this process or of others: bits that several share.
    pub ready: u64,
    /// When the stack is to be run although nothing arrives.
    pub deadline: Option<u64>,
}

impl Turn {
    /// What is to be done after both calls of one turn, of which `later` is the second.
    pub fn merge(self, later: Turn) -> Turn {
        Turn {
            kick_port: self.kick_port | later.kick_port,
            kick_agent: self.kick_agent | later.kick_agent,
            ready: self.ready | later.ready,
            deadline: later.deadline,
        }
    }
}

/// What a connection is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The connection can be read: bytes, the end, or an error.
    pub read: bool,
    /// The connection can be written.
    pub write: bool,
    /// The connection has ended with an error.
    pub closed: bool,
}

/// The addresses of the image's function, code and data, with the length of the code, for processes that have not
/// linked this crate.
pub(crate) const IMAGE_ADDRESSES: [u64; 4] =
    [ENTRY as u64, TEXT_AT as u64, (TEXT_END - TEXT_AT) as u64, DATA_AT as u64];

/// The image in this process, which has at most one.
#[derive(Debug)]
pub struct Image {
    lock: RobustLock,
    /// Held by the thread that leads; see `waiting.rs`.
    pub(crate) lead: RobustLock,
    pub(crate) data: Arc<FixedMapping>,
    _text: FixedMapping,
    rings: Mutex<Vec<FixedMapping>>,
}

impl Image {
    /// Maps the files, which [`Files::create`] of the same program made.
    ///
    /// # Errors
    /// If something else is at the addresses, or the kernel refuses.
    pub fn map(files: &Files) -> Result<Image, DirectError> {
        let len = std::fs::File::from(files.data.try_clone()?).metadata()?.len() as usize;
        if len <= DATA_END - DATA_AT || len > DATA_END - DATA_AT + MAX_MEMORY {
            return Err(DirectError::Invalid);
        }
        let text = FixedMapping::new(&files.text, TEXT_AT, TEXT_END - TEXT_AT, FixedAccess::Code)?;
        let data = Arc::new(FixedMapping::new(&files.data, DATA_AT, len, FixedAccess::Data)?);
        let (lock, lead) = (RobustLock::attach(&data, LOCK)?, RobustLock::attach(&data, LEAD)?);
        Ok(Image { lock, lead, data, _text: text, rings: Mutex::default() })
    }

    /// Makes the stack, with the [configuration](ringway_netstack::Stack::configuration) of the agent's. One process
    /// does it, before others use the files.
    ///
    /// # Errors
    /// If it was made already, or the bytes are no configuration.
    pub fn begin(&self, configuration: &[u8], seed: [u64; 2]) -> Result<(), DirectError> {
        RobustLock::create(&self.data, LOCK)?;
        RobustLock::create(&self.data, LEAD)?;
        let end = (DATA_AT + self.data.len()) as u64;
        let call = Call { socket: end, input: input(configuration), numbers: seed, ..Call::default() };
        self.lock()?.call(Operation::Begin, call).0.map(drop).map_err(|_| DirectError::Invalid)
    }

    /// Maps a ring's memory, `len` bytes of `file`. Each process must before it uses the stack; one of them also
    /// [attaches](Locked::attach_ring) the ring.
    ///
    /// # Errors
    /// If the kernel refuses, or this process has mapped one there.
    pub fn map_ring(&self, peer: RingPeer, file: impl AsFd, len: usize) -> Result<(), DirectError> {
        let address = match peer {
            RingPeer::Port => PORT_AT,
            RingPeer::Agent => AGENT_AT,
        };
        let mapping = FixedMapping::new(file, address as usize, len, FixedAccess::Data)?;
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(mapping);
        Ok(())
    }

    /// Waits for this process's turn.
    ///
    /// # Errors
    /// If the stack is lost, or this thread has the turn already.
    pub fn lock(&self) -> Result<Locked<'_>, LockError> {
        Ok(Locked { _guard: self.lock.lock()? })
    }
}

/// The address and the length of bytes.
fn input(bytes: &[u8]) -> [u64; 2] {
    [bytes.as_ptr().addr() as u64, bytes.len() as u64]
}

fn output(bytes: &mut [u8]) -> [u64; 2] {
    [bytes.as_mut_ptr().addr() as u64, bytes.len() as u64]
}

/// A process's turn. Times are of one clock for all processes, such as CLOCK_MONOTONIC.
#[derive(Debug)]
pub struct Locked<'i> {
    _guard: RobustGuard<'i>,
}

/// The result of a call, and what is to be done in any case.
type Outcome<T, E = SocketError> = (Result<T, E>, Turn);

/// The error of a call on a socket.
fn socket_error(error: RepairError) -> SocketError {
    if let RepairError::Socket(error) = error { error } else { SocketError::BadSocket }
}

impl Locked<'_> {
    fn call(&mut self, operation: Operation, mut call: Call) -> (Result<u64, RepairError>, Flags, Turn) {
        call.operation = operation as u64;
        call.deadline = u64::MAX;
        let entry = std::ptr::with_exposed_provenance::<()>(ENTRY);
        // SAFETY: the image is mapped while its lock is, and has this function there.
        let entry: unsafe extern "C" fn(*mut Call) = unsafe { std::mem::transmute(entry) };
        // SAFETY: this thread has the lock; `call` names memory that the caller lends.
        unsafe { entry(&raw mut call) };
        let flags = Flags(call.flags);
        let turn = Turn {
            kick_port: flags.has(Flags::KICK_PORT),
            kick_agent: flags.has(Flags::KICK_AGENT),
            ready: call.ready,
            deadline: (call.deadline != u64::MAX).then_some(call.deadline),
        };
        (result_of(call.result), flags, turn)
    }

    /// Calls the image for a socket.
    fn call_socket(
        &mut self,
        operation: Operation,
        now: u64,
        socket: SocketId,
        with: Call,
    ) -> Outcome<usize> {
        let (result, _, turn) = self.call(operation, Call { now, socket: socket.to_bits(), ..with });
        (result.map(|value| value as usize).map_err(socket_error), turn)
    }

    /// Gives the stack a ring whose memory is mapped; `is_second`: as the second end of a pipe.
    ///
    /// # Errors
    /// If the memory has no ring.
    pub fn attach_ring(&mut self, peer: RingPeer, len: usize, is_second: bool) -> Result<(), DirectError> {
        let operation = match peer {
            RingPeer::Port => Operation::Port,
            RingPeer::Agent => Operation::Agent,
        };
        let call = Call { numbers: [len as u64, is_second.into()], ..Call::default() };
        self.call(operation, call).0.map(drop).map_err(|_| DirectError::Invalid)
    }

    /// Takes a connection that left the agent's stack. As [`Stack::attach`](ringway_netstack::Stack::attach).
    pub fn attach(&mut self, now: u64, bytes: &[u8]) -> Outcome<SocketId, RepairError> {
        let call = Call { now, input: input(bytes), ..Call::default() };
        let (result, _, turn) = self.call(Operation::Attach, call);
        (result.map(SocketId::from_bits), turn)
    }

    /// Lets a connection go back. As [`Stack::detach`](ringway_netstack::Stack::detach).
    pub fn detach(&mut self, now: u64, socket: SocketId) -> Outcome<Vec<u8>, RepairError> {
        let call = Call { now, socket: socket.to_bits(), ..Call::default() };
        let (result, _, turn) = self.call(Operation::Detach, call);
        (result.and_then(|len| self.read_saved_state(now, len as usize)), turn)
    }

    /// Reads the state of the connection that left, in chunks.
    fn read_saved_state(&mut self, now: u64, len: usize) -> Result<Vec<u8>, RepairError> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let from = bytes.len();
            bytes.resize(from + STATE_CHUNK.min(len - from), 0);
            let call = Call { now, numbers: [from as u64, 0], ..Call::default() };
            let call = Call { output: output(&mut bytes[from..]), ..call };
            if self.call(Operation::Saved, call).0? != (bytes.len() - from) as u64 {
                return Err(RepairError::Invalid);
            }
        }
        Ok(bytes)
    }

    /// Reads bytes of a connection, as [`Stack::recv`](ringway_netstack::Stack::recv); 0: the end of the stream.
    pub fn recv(&mut self, now: u64, socket: SocketId, out: &mut [u8]) -> Outcome<usize> {
        self.call_socket(Operation::Receive, now, socket, Call { output: output(out), ..Call::default() })
    }

    /// Sends bytes of a connection; how many. As [`Stack::send`](ringway_netstack::Stack::send).
    pub fn send(&mut self, now: u64, socket: SocketId, bytes: &[u8]) -> Outcome<usize> {
        self.call_socket(Operation::Send, now, socket, Call { input: input(bytes), ..Call::default() })
    }

    /// Ends the stream after the bytes that were sent.
    pub fn shutdown(&mut self, now: u64, socket: SocketId) -> Outcome<()> {
        let (result, turn) = self.call_socket(Operation::Shutdown, now, socket, Call::default());
        (result.map(drop), turn)
    }

    /// Gives a connection up. What was sent is still delivered.
    pub fn close(&mut self, now: u64, socket: SocketId) -> Outcome<()> {
        let (result, turn) = self.call_socket(Operation::Close, now, socket, Call::default());
        (result.map(drop), turn)
    }

    /// What a connection is ready for.
    pub fn ready(&mut self, now: u64, socket: SocketId) -> Outcome<Ready> {
        let call = Call { now, socket: socket.to_bits(), ..Call::default() };
        let (result, flags, turn) = self.call(Operation::Readiness, call);
        let [read, write, closed] =
            [Flags::READABLE, Flags::WRITABLE, Flags::CLOSED].map(|flag| flags.has(flag));
        (result.map(|_| Ready { read, write, closed }).map_err(socket_error), turn)
    }

    /// Listens at an address. As [`Stack::listen`](ringway_netstack::Stack::listen).
    pub fn listen(&mut self, now: u64, address: SocketAddr, backlog: usize) -> Outcome<SocketId> {
        let bytes = address_bytes(address);
        let call = Call { now, input: input(&bytes), numbers: [backlog as u64, 0], ..Call::default() };
        let (result, _, turn) = self.call(Operation::Listen, call);
        (result.map(SocketId::from_bits).map_err(socket_error), turn)
    }

    /// Takes a connection of a listener for the process with a number; 0: for none. As
    /// [`Stack::accept`](ringway_netstack::Stack::accept).
    pub fn accept(&mut self, now: u64, listener: SocketId, process: u64) -> Outcome<SocketId> {
        let call = Call { numbers: [process, 0], ..Call::default() };
        let (result, turn) = self.call_socket(Operation::Accept, now, listener, call);
        (result.map(|handle| SocketId::from_bits(handle as u64)), turn)
    }

    /// Leaves connections that begin from now on to the agent's listener. How many have begun, and may still be
    /// established. For the processes, the handle is no listener's any more.
    pub fn stop_listening(&mut self, now: u64, listener: SocketId) -> Outcome<usize> {
        self.call_socket(Operation::StopListening, now, listener, Call::default())
    }

    /// Closes what a process has accepted and left open.
    pub fn end_process(&mut self, now: u64, process: u64) -> Turn {
        self.call(Operation::EndProcess, Call { now, numbers: [process, 0], ..Call::default() }).2
    }

    /// 0 if peers have acknowledged all that was sent; otherwise a number that changes when they answer.
    pub fn undrained(&mut self, now: u64) -> (u64, Turn) {
        let (result, _, turn) = self.call(Operation::Drained, Call { now, ..Call::default() });
        (result.unwrap_or(0), turn)
    }

    /// The agent has a connection with these addresses: its segments are for none of the listeners. As
    /// [`Stack::reserve`](ringway_netstack::Stack::reserve).
    pub fn reserve(&mut self, now: u64, (local, remote): (SocketAddr, SocketAddr)) -> Outcome<()> {
        let bytes = addresses_bytes(local, remote);
        let call = Call { now, input: input(&bytes), ..Call::default() };
        let (result, _, turn) = self.call(Operation::Reserve, call);
        (result.map(drop).map_err(socket_error), turn)
    }

    /// The agent has no connection with these addresses any more that [was here](Locked::detach), or was
    /// [reserved](Locked::reserve).
    pub fn unreserve(&mut self, now: u64, (local, remote): (SocketAddr, SocketAddr)) -> Turn {
        let bytes = addresses_bytes(local, remote);
        self.call(Operation::Unreserve, Call { now, input: input(&bytes), ..Call::default() }).2
    }

    /// Receives what the agent's stack received for a connection that has moved here, or for
    /// [none](Diverted::is_stray) of the agent's; whether it is here.
    pub fn receive_diverted(&mut self, now: u64, diverted: &Diverted) -> (bool, Turn) {
        let bytes = diverted.to_bytes();
        let numbers = [diverted.is_stray().into(), 0];
        let call = Call { now, input: input(&bytes), numbers, ..Call::default() };
        let (result, _, turn) = self.call(Operation::Diverted, call);
        (result.is_ok_and(|found| found != 0), turn)
    }

    /// Receives, sends, and handles the deadlines that have passed.
    pub fn run(&mut self, now: u64) -> Turn {
        self.call(Operation::Run, Call { now, ..Call::default() }).2
    }

    /// Prepares to sleep until the port or the agent notifies. `false`: there is work already.
    pub fn arm(&mut self, now: u64) -> bool {
        self.call(Operation::Arm, Call { now, ..Call::default() }).0.is_ok_and(|armed| armed != 0)
    }
}
