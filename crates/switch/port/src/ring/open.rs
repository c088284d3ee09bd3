//! The side of `control` for programs: listens, creates a ring for each, and passes it to the program. Nothing here
//! blocks.

use ringway_host::listener::{Access, Listener, OpenError};
use ringway_host::{
    BackgroundClose, EventFd, FdKind, HostError, Mapping, PageChoice, Pages, is_of_huge_pages, is_sealed,
    map_region, memfd_in, memfd_size, send_with, try_receive_with, wait_readable,
};
use ringway_mem::Region;
use ringway_ring::{
    BYTES_MAX, BufferPool, Geometry, HandshakeError, Hello, LayoutError, PortName, RingKind, RingMemory,
    Welcome,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Why a program gets no ring. The reason was sent to the program, if possible.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The program hung up.
    #[error("the program disconnected before it got a ring")]
    Gone,
    /// The program's request does not follow the protocol.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// A program on a switch's socket names no port.
    #[error("this is the socket of a switch, and the program names no port: it connects to SOCKET:PORT")]
    Unnamed,
    /// The requested ring can't be created.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The system refused.
    #[error("no ring could be made: {0}")]
    Host(#[from] HostError),
    /// The program can't be accepted.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl GreetError {
    /// Sends the reason to the program.
    pub(crate) fn tell(&self, socket: &UnixStream) {
        let text = self.to_string();
        let no = match self {
            // The same request is refused by any fabric.
            GreetError::Handshake(_) | GreetError::Unnamed | GreetError::Layout(_) => {
                Welcome::refused_always(&text)
            }
            GreetError::Gone | GreetError::Host(_) | GreetError::Open(_) => Welcome::refused(&text),
        };
        send(socket, &no);
    }
}

/// A socket on which programs request rings.
#[derive(Debug)]
pub struct RingListener {
    listener: Listener,
    closer: Arc<BackgroundClose>,
    freer: Arc<BackgroundClose>,
}

impl RingListener {
    /// Listens at `path`. A socket left there by an earlier run is replaced; nothing else is.
    pub fn bind(path: &Path, access: Access) -> Result<RingListener, OpenError> {
        Ok(RingListener::of(Listener::bind(path, access)?))
    }

    /// Requests come by this socket.
    pub fn of(listener: Listener) -> RingListener {
        RingListener { listener, closer: Arc::default(), freer: Arc::default() }
    }

    /// The next program, if one is waiting.
    pub fn accept(&self) -> Result<Option<Newcomer>, OpenError> {
        let Some(socket) = self.listener.accept()? else { return Ok(None) };
        let socket = UnixStream::from(socket);
        let system = |error| OpenError::System { path: self.path().into(), error };
        socket.set_nonblocking(true).map_err(system)?;
        let (closer, freer) = (self.closer.clone(), self.freer.clone());
        let pool = PendingPool { closer, freer, ..PendingPool::default() };
        Ok(Some(Newcomer { socket, bytes: [0; Hello::SIZE], filled: 0, pool }))
    }

    /// Waits for the next program and its request, each for `timeout` nanoseconds. For callers that do nothing else
    /// meanwhile.
    pub fn wait(&self, timeout: Option<u64>) -> Result<(Newcomer, Hello), GreetError> {
        wait_readable(&[self.as_fd()], timeout)?;
        let mut newcomer = self.accept()?.ok_or(GreetError::Gone)?;
        loop {
            if !wait_readable(&[newcomer.as_fd()], timeout)?[0] {
                return Err(GreetError::Gone);
            }
            if let Some(hello) = newcomer.hello()? {
                return Ok((newcomer, hello));
            }
        }
    }

    /// The next program that opens a port of a switch, if one is waiting.
    pub fn accept_opening(&self) -> Result<Option<Opening>, OpenError> {
        let newcomer = self.accept()?;
        Ok(newcomer.map(|newcomer| Opening { newcomer, bytes: [0; PortName::SIZE], filled: 0, name: None }))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.listener.path()
    }
}

impl AsFd for RingListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A program that opens a port of a switch. Attack: as [`Newcomer`].
#[derive(Debug)]
pub struct Opening {
    newcomer: Newcomer,
    bytes: [u8; PortName::SIZE],
    filled: usize,
    name: Option<PortName>,
}

impl Opening {
    /// The port's name and the program's request, once all of it has arrived. Call it when the socket is readable.
    pub fn hello(&mut self) -> Result<Option<(String, Hello)>, GreetError> {
        let name = match self.name {
            Some(name) => name,
            None => match self.port_name()? {
                Some(name) => *self.name.insert(name),
                None => return Ok(None),
            },
        };
        let Some(text) = name.text() else { return self.newcomer.fail(GreetError::Unnamed) };
        Ok(self.newcomer.hello()?.map(|hello| (text.into(), hello)))
    }

    fn port_name(&mut self) -> Result<Option<PortName>, GreetError> {
        while self.filled < PortName::SIZE {
            match try_receive_with(self.newcomer.as_fd(), &mut self.bytes[self.filled..], 0)? {
                None => return Ok(None),
                Some((0, _)) => return Err(GreetError::Gone),
                Some((count, _)) => self.filled += count,
            }
            if self.filled >= PortName::PREAMBLE && !PortName::is_begun_by(&self.bytes) {
                return self.newcomer.fail(GreetError::Unnamed);
            }
        }
        Ok(Some(PortName::from_bytes(&self.bytes)?))
    }

    /// The program, once its request has been read.
    pub fn into_newcomer(self) -> Newcomer {
        self.newcomer
    }
}

impl AsFd for Opening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.newcomer.as_fd()
    }
}

/// A program without a ring. Attack: a program that sends nothing; the caller drops it after a while.
#[derive(Debug)]
pub struct Newcomer {
    socket: UnixStream,
    bytes: [u8; Hello::SIZE],
    filled: usize,
    pool: PendingPool,
}

/// Where a program's buffers are, which it says behind its request.
#[derive(Debug, Default)]
struct PendingPool {
    bytes: [u8; BufferPool::SIZE],
    filled: usize,
    file: Option<ProgramsFile>,
    /// No descriptor was received.
    is_left_out: bool,
    /// One was received that is no memory.
    is_wrong: bool,
    /// The whole: the place, and the memory.
    pool: Option<(BufferPool, ProgramsFile)>,
    /// Closes what is no memory.
    closer: Arc<BackgroundClose>,
    /// Closes memory, which ends: nobody waits for it.
    freer: Arc<BackgroundClose>,
}

impl PendingPool {
    /// Receives it; `false`: it has not all arrived.
    fn receive(&mut self, socket: &UnixStream) -> Result<bool, GreetError> {
        while self.filled < BufferPool::SIZE {
            // Attack: descriptors whose closing blocks. While one of another program of this port is being closed, none
            // are received, and the program gets buffers in the ring's own memory.
            self.is_left_out |= !self.closer.is_done();
            let most = usize::from(self.file.is_none() && !self.is_left_out);
            let (count, files) = match try_receive_with(socket, &mut self.bytes[self.filled..], most)? {
                None => return Ok(false),
                Some((0, _)) => return Err(GreetError::Gone),
                Some(received) => received,
            };
            self.filled += count;
            let (files, others): (Vec<_>, Vec<_>) =
                files.into_iter().partition(|file| FdKind::of(file.as_fd()) == Some(FdKind::Memory));
            self.is_wrong |= !others.is_empty();
            self.closer.close(others);
            let files: Vec<_> = files.into_iter().map(|file| ProgramsFile::new(file, &self.freer)).collect();
            self.file = self.file.take().or(files.into_iter().next());
        }
        let place = BufferPool::from_bytes(&self.bytes)?;
        self.pool = match self.file.take() {
            Some(file) if file.file().is_some_and(is_safe) => Some((place, file)),
            None if self.is_left_out && !self.is_wrong => None,
            _ => return Err(HandshakeError::Pool.into()),
        };
        Ok(true)
    }
}

impl Newcomer {
    /// The program's request, once all of it has arrived. Call it when the socket is readable.
    pub fn hello(&mut self) -> Result<Option<Hello>, GreetError> {
        while self.filled < Hello::SIZE {
            // Attack: descriptors whose closing blocks. None are received.
            match try_receive_with(self.socket.as_fd(), &mut self.bytes[self.filled..], 0)? {
                None => return Ok(None),
                Some((0, _)) => return Err(GreetError::Gone),
                Some((count, _)) => self.filled += count,
            }
        }
        let hello = match Hello::from_bytes(&self.bytes) {
            Ok(hello) => hello,
            Err(error) => return self.fail(error.into()),
        };
        if hello.has_pool {
            match self.pool.receive(&self.socket) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return self.fail(error),
            }
        }
        Ok(Some(hello))
    }

    /// Creates the ring requested by `hello`, in ordinary pages, and passes it to the program.
    pub fn welcome(self, hello: &Hello, otherwise: &Geometry) -> Result<Program, GreetError> {
        self.welcome_in(PageChoice::Only(Pages::Base), hello, otherwise)
    }

    /// As `welcome`, in pages of the given kind.
    pub fn welcome_in(
        mut self,
        pages: PageChoice,
        hello: &Hello,
        otherwise: &Geometry,
    ) -> Result<Program, GreetError> {
        let (place, pool) = self.pool.pool.take().unzip();
        let geometry = Geometry { pool: place, ..hello.geometry(RingKind::Port, otherwise) };
        let made = match Made::with_pool(&geometry, pages, pool) {
            Ok(made) => made,
            Err(error) => return self.fail(error),
        };
        let (kick, call) = (EventFd::new()?, EventFd::new()?);
        hand_over(&self.socket, 0, &made, &kick, &call)?;
        Ok(Program { socket: self.socket, made, kick, call })
    }

    /// Refuses the program, with a reason.
    pub fn refuse(self, why: &str) {
        send(&self.socket, &Welcome::refused(why));
    }

    /// Refuses the program, with a reason for which the same request is always refused.
    pub fn refuse_always(self, why: &str) {
        send(&self.socket, &Welcome::refused_always(why));
    }

    /// Whether the program has hung up while it waits, after its request.
    pub fn is_gone(&self) -> bool {
        is_gone(&self.socket)
    }

    /// Its socket, once `hello` has been read.
    pub(crate) fn into_socket(self) -> UnixStream {
        self.socket
    }

    /// Refuses the program because of an error.
    pub(crate) fn fail<T>(&self, error: GreetError) -> Result<T, GreetError> {
        error.tell(&self.socket);
        Err(error)
    }
}

impl AsFd for Newcomer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A program that has its ring.
#[derive(Debug)]
pub struct Program {
    socket: UnixStream,
    made: Made,
    kick: EventFd,
    call: EventFd,
}

impl Program {
    /// Goes on with a program to which another process gave a ring: the connection to it, [`Program::descriptors`] and
    /// [`Program::pool`].
    pub fn adopt(socket: OwnedFd, mut descriptors: Vec<OwnedFd>) -> Result<Program, GreetError> {
        let pool = take_pool(&mut descriptors);
        let [file, kick, call] = descriptors.try_into().map_err(|_| GreetError::Gone)?;
        let memory = attach(&file, pool.as_ref())?;
        let socket = UnixStream::from(socket);
        let pool = pool.map(|pool| ProgramsFile::new(pool, &Arc::default()));
        let made = Made { file, memory, pool };
        Ok(Program { socket, made, kick: kick.into(), call: call.into() })
    }

    /// Descriptors for the data path: the memory, the eventfd that the program writes, the eventfd that we write.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.made.file.as_fd(), self.kick.as_fd(), self.call.as_fd()]
    }

    /// The memory of the program's buffers, if it has brought one: the data path gets it behind the others.
    pub fn pool(&self) -> Option<BorrowedFd<'_>> {
        self.made.pool.as_ref().and_then(ProgramsFile::file).map(AsFd::as_fd)
    }

    /// Whether the program has hung up. Call it when its socket is readable; data that it sends there is discarded.
    pub fn is_gone(&self) -> bool {
        is_gone(&self.socket)
    }
}

/// Its socket, which becomes readable when the program hangs up.
impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.made.memory.close();
        ringway_host::signal_once(self.call.as_fd());
    }
}

/// New memory for a ring.
#[derive(Debug)]
pub(crate) struct Made {
    pub file: OwnedFd,
    pub memory: RingMemory,
    /// The memory of the program's buffers.
    pool: Option<ProgramsFile>,
}

impl Made {
    pub fn new(geometry: &Geometry, pages: PageChoice) -> Result<Made, GreetError> {
        Made::with_pool(geometry, pages, None)
    }

    fn with_pool(
        geometry: &Geometry,
        pages: PageChoice,
        pool: Option<ProgramsFile>,
    ) -> Result<Made, GreetError> {
        let header = geometry.header()?;
        let file = memfd_in("ringway-ring", header.bytes as usize, pages)?;
        let region = Mapping::sealed(&file)?.region();
        let mapped = pooled(pool.as_ref().and_then(ProgramsFile::file))?;
        let memory = RingMemory::create_with(region, mapped, geometry)?;
        Ok(Made { file, memory, pool })
    }
}

/// A memory that a program has passed. Attack: one of many GB that only this descriptor holds, so that closing it takes
/// long: a thread of its own does that.
#[derive(Debug)]
struct ProgramsFile {
    file: Option<OwnedFd>,
    closer: Arc<BackgroundClose>,
}

impl ProgramsFile {
    fn new(file: OwnedFd, closer: &Arc<BackgroundClose>) -> ProgramsFile {
        ProgramsFile { file: Some(file), closer: closer.clone() }
    }

    fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }
}

impl Drop for ProgramsFile {
    fn drop(&mut self) {
        self.closer.close(self.file.take().into_iter().collect());
    }
}

/// Whether a memory stays as it is while it is mapped. Attack: a file that shrinks, and one of huge pages with a hole,
/// which the kernel can't fill again when there are no more of these.
fn is_safe(file: &OwnedFd) -> bool {
    is_sealed(file) && !is_of_huge_pages(file)
}

/// Maps the memory of a program's buffers, if it has brought one.
fn pooled(pool: Option<&OwnedFd>) -> Result<Option<Region>, GreetError> {
    let Some(pool) = pool else { return Ok(None) };
    if !is_safe(pool) {
        return Err(HandshakeError::Pool.into());
    }
    let len = memfd_size(pool)? as u64;
    // Attack: a sparse file that takes all addresses of this process.
    if len > BYTES_MAX {
        return Err(LayoutError::Bytes(len).into());
    }
    // As a peer's, it is unmapped by another thread: that frees its pages if nobody else has it.
    Ok(Some(map_region(pool, 0, len, 0, 0)?))
}

/// The ring of a memory that another process has made, and of the memory of its program's buffers.
pub(super) fn attach(file: &OwnedFd, pool: Option<&OwnedFd>) -> Result<RingMemory, GreetError> {
    Ok(RingMemory::attach_with(Mapping::sealed(file)?.region(), pooled(pool)?)?)
}

/// Removes the memory of a program's buffers from its descriptors, if it has brought one.
pub(super) fn take_pool(descriptors: &mut Vec<OwnedFd>) -> Option<OwnedFd> {
    if descriptors.len() > Welcome::DESCRIPTORS { descriptors.pop() } else { None }
}

/// Sends a ring. The socket's buffer has room for it unless the program doesn't read; then it gets none.
pub(crate) fn hand_over(
    socket: &UnixStream,
    end: u32,
    made: &Made,
    writes: &EventFd,
    reads: &EventFd,
) -> Result<(), GreetError> {
    let descriptors = [made.file.as_fd(), writes.as_fd(), reads.as_fd()];
    match send_with(socket.as_fd(), &Welcome::ring(end).to_bytes(), &descriptors) {
        Ok(Welcome::SIZE) => Ok(()),
        _ => Err(GreetError::Gone),
    }
}

fn send(socket: &UnixStream, no: &Welcome) {
    // A program that doesn't read the reason needs none.
    let _ = send_with(socket.as_fd(), &no.to_bytes(), &[]);
}

pub(crate) fn is_gone(socket: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    // Attack: a program that writes endlessly; each call reads a limited amount.
    for _ in 0..16 {
        match try_receive_with(socket.as_fd(), &mut bytes, 0) {
            Ok(None) => return false,
            Ok(Some((0, _))) | Err(_) => return true,
            Ok(Some(_)) => {}
        }
    }
    false
}
