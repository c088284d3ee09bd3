//! A front-end and a back-end in one process, over a socket pair.

use super::{Backend, BackendError, Config, new};
use crate::Queue;
use crate::Silent;
use crate::SocketError;
use crate::State;
use proptest::prelude::*;
use ringway_frame::{Burst, CountersRef, Storage};
use ringway_host::listener::{Access, Listener, OpenError, Retry, connect};
use ringway_mem::Reader;
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{
    Frontend, FrontendError, MemoryRegion, Packet, Request, SharedRegion, Transport, Vring, VringAddr,
    VringFd, VringState,
};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SIZE: u64 = 1 << 20;
const USER: u64 = 0x7f00_0000_0000;
const MODERN: u64 = virtio::VERSION_1 | virtio::NET_MRG_RXBUF;
const ACK: u64 = protocol::REPLY_ACK | protocol::CONFIGURE_MEM_SLOTS | protocol::CONFIG;

/// A path on tmpfs that no other test uses.
fn path(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("/dev/shm/ringway-test-{}-{number}-{name}", std::process::id()))
}

pub(crate) fn shared_file(len: u64) -> File {
    let path = path("memory");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(len).unwrap();
    file
}

fn fd(file: &File) -> OwnedFd {
    file.as_fd().try_clone_to_owned().unwrap()
}

pub(crate) fn region(guest: u64, size: u64, offset: u64) -> MemoryRegion {
    MemoryRegion { guest, size, user: USER + guest, offset }
}

pub(crate) fn shared(file: &File, guest: u64, size: u64, offset: u64) -> SharedRegion {
    SharedRegion { region: region(guest, size, offset), fd: fd(file) }
}

/// A transport that passes each message to the back-end at once.
pub(crate) struct Wire<'a> {
    stream: UnixStream,
    backend: &'a mut Backend,
    end: Option<BackendError>,
}

impl<'a> Wire<'a> {
    pub(crate) fn new(backend: &'a mut Backend) -> Wire<'a> {
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        backend.connect(other.into()).unwrap();
        Wire { stream, backend, end: None }
    }

    pub(crate) fn state(&self) -> State {
        self.backend.state()
    }

    pub(crate) fn set_carrier(&mut self, carrier: bool) {
        self.backend.set_carrier(carrier);
    }

    /// The socket on which replies arrive, for a thread that reads them while the back-end still works.
    pub(crate) fn answers(&self) -> UnixStream {
        self.stream.try_clone().unwrap()
    }

    /// Lets the back-end process what is pending.
    pub(crate) fn process_pending(&mut self) -> Result<(), BackendError> {
        self.backend.readable()
    }

    /// Lets the back-end process what is pending, and records whether the session ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.end = self.end.take().or(self.backend.readable().err());
        self.end.is_some()
    }

    /// The reason why the session ended, if it did.
    pub(crate) fn take_end(&mut self) -> Option<BackendError> {
        self.end.take()
    }

    /// Lets unanswered misses be sent once more.
    pub(crate) fn wait_for_reminder(&mut self) {
        self.backend.remind(u64::MAX);
    }

    /// Lets unanswered misses be sent again until they are given up.
    pub(crate) fn wait_until_given_up(&mut self) {
        (0..10).rev().for_each(|left| self.backend.remind(u64::MAX - left * 2_000_000_000));
    }
}

impl Transport for Wire<'_> {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        let sent = ringway_host::send_with(self.stream.as_fd(), &packet.bytes, &fds);
        assert_eq!(sent.map_err(io::Error::other)?, packet.bytes.len());
        self.end = self.backend.readable().err().or(self.end.take());
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        Ok((self.stream.read(bytes)?, Vec::new()))
    }
}

pub(crate) fn port() -> (Backend, Vec<Queue>, CountersRef) {
    let counters = CountersRef::private();
    let config = Config { mac: Some([2, 0, 0, 0, 0, 1]), mtu: Some(9000), ..Config::default() };
    let (backend, queues) = new(config, vec![Arc::new(Silent)], vec![counters.clone()]);
    (backend, queues, counters)
}

pub(crate) fn agree(backend: &mut Backend) -> Frontend<Wire<'_>> {
    Frontend::negotiate(Wire::new(backend), MODERN, ACK).unwrap()
}

pub(crate) fn vring(index: u32, at: u64) -> Vring {
    let user = USER + at;
    let addresses = VringAddr {
        index,
        flags: 0,
        descriptors: user,
        available: user + 0x1000,
        used: user + 0x2000,
        log: 0,
    };
    Vring { size: 256, addresses, base: 0, kick: None, call: None }
}

#[test]
fn a_port_serves_one_front_end_after_another() {
    let (mut backend, _queues, counters) = port();
    let file = shared_file(SIZE);
    for _ in 0..3 {
        assert_eq!(backend.state(), State::Waiting);
        let mut front = agree(&mut backend);
        assert_eq!(front.config(0, 12).unwrap()[..6], [2, 0, 0, 0, 0, 1]);
        front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
        front.start(vring(0, 0)).unwrap();
        assert_eq!(front.transport().backend.state(), State::Attached, "one ring of two");
        front.start(vring(1, 0x4000)).unwrap();
        assert_eq!(front.transport().backend.state(), State::Up);
        assert_eq!((front.stop(0).unwrap(), front.stop(1).unwrap()), (0, 0));
        assert_eq!(front.transport().backend.state(), State::Attached);
        assert!(front.transport().end.is_none());
        drop(front);
        assert!(matches!(backend.readable(), Err(BackendError::Socket(SocketError::Closed))));
    }
    assert_eq!(counters.faults.load(Ordering::Relaxed), 0);
}

#[test]
fn an_invalid_memory_table_is_refused_and_the_old_one_stays() {
    let (mut backend, _queues, _) = port();
    let file = shared_file(SIZE);
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, SIZE / 2, 0)]).unwrap();
    front.start(vring(0, 0)).unwrap();
    let event = File::from(ringway_host::EventFd::new().unwrap().into_fd());
    let tables = [
        vec![shared(&file, 0, SIZE + 1, 0)],
        vec![shared(&file, 0, SIZE, 4096)],
        vec![shared(&file, 0, u64::MAX, 0)],
        vec![shared(&file, 0, 4096, u64::MAX)],
        vec![shared(&file, 0, 0, 0)],
        vec![shared(&file, u64::MAX - USER - 4095, 8192, 0)],
        vec![shared(&file, 0, 8192, 0), shared(&file, 4096, 8192, 8192)],
        vec![shared(&event, 0, 4096, 0)],
    ];
    for table in tables {
        let text = format!("{table:?}");
        let result = front.set_memory(table);
        assert!(matches!(result, Err(FrontendError::Refused { code: 1, .. })), "{text}");
        assert!(front.transport().backend.refused().is_some());
    }
    front.set(Request::AddMemReg(shared(&file, SIZE / 2, SIZE / 2, SIZE / 2))).unwrap();
    let overlap = front.set(Request::AddMemReg(shared(&file, 0, 4096, 0)));
    assert!(matches!(overlap, Err(FrontendError::Refused { .. })));
    front.start(vring(1, SIZE / 2)).unwrap();
    // Some front-ends send both once per queue pair.
    front.set(Request::AddMemReg(shared(&file, SIZE / 2, SIZE / 2, SIZE / 2))).unwrap();
    front.set(Request::RemMemReg(region(SIZE / 2, SIZE / 2, SIZE / 2))).unwrap();
    front.set(Request::RemMemReg(region(SIZE / 2, SIZE / 2, SIZE / 2))).unwrap();
    front.stop(1).unwrap();
}

/// A port whose front-ends may share no more than [`SIZE`] bytes.
fn small_port() -> (Backend, Vec<Queue>, CountersRef) {
    let counters = CountersRef::private();
    let config = Config { memory: SIZE, ..Config::default() };
    let (backend, queues) = new(config, vec![Arc::new(Silent)], vec![counters.clone()]);
    (backend, queues, counters)
}

#[test]
fn shared_memory_is_limited_by_the_ports_setting() {
    let (mut backend, _queues, _) = small_port();
    let file = shared_file(2 * SIZE);
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, SIZE / 2, 0)]).unwrap();
    assert!(front.set_memory(vec![shared(&file, 0, SIZE + 4096, 0)]).is_err());
    let why = front.transport().backend.refused().unwrap().to_string();
    assert!(why.contains("the port's `memory` is 1 MB"), "{why}");
    front.set(Request::AddMemReg(shared(&file, SIZE / 2, SIZE / 2, SIZE / 2))).unwrap();
    assert!(front.set(Request::AddMemReg(shared(&file, SIZE, 4096, SIZE))).is_err());
}

#[test]
fn growth_of_shared_files_is_counted_and_bounded() {
    let (mut backend, _queues, counters) = small_port();
    let read = || [&counters.memory_resident, &counters.memory_grown].map(|c| c.load(Ordering::Relaxed));
    let mut front = agree(&mut backend);
    let files = [(); 3].map(|()| shared_file(SIZE));
    let mut ends = Vec::new();
    for file in &files {
        front
            .set_memory(vec![shared(file, 0, SIZE / 2, 0), shared(file, SIZE / 2, SIZE / 2, SIZE / 2)])
            .unwrap();
        file.as_fd()
            .try_clone_to_owned()
            .map(File::from)
            .unwrap()
            .write_all(&vec![1; SIZE as usize])
            .unwrap();
        // A file that is shared again is not counted twice, and its size is checked again.
        front.set_memory(vec![shared(file, 0, SIZE / 2, 0)]).ok();
        ends.push(front.transport().take_end());
    }
    assert!(matches!(ends[..], [None, None, Some(BackendError::Grown)]), "{ends:?}");
    drop(front);
    assert_eq!(read(), [0, 3 * SIZE]);
    // Growth is charged to the front-end that shares the file; what the file held before is not counted.
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&files[0], 0, SIZE / 2, 0)]).unwrap();
    front.set_memory(vec![shared(&files[0], 0, SIZE / 2, 0)]).unwrap();
    assert!(front.transport().take_end().is_none());
    assert_eq!(read(), [SIZE / 2, 3 * SIZE]);
}

#[test]
fn rings_outside_memory_never_start() {
    let file = shared_file(SIZE);
    let (mut backend, _queues, counters) = port();
    let end = USER + SIZE;
    let outside = [
        (USER, USER + 0x1000, end),
        (USER, end - 515, USER + 0x2000),
        (end - 4080, USER + 0x1000, USER + 0x2000),
        (USER - 16, USER + 0x1000, USER + 0x2000),
        (u64::MAX - 15, USER + 0x1000, USER + 0x2000),
        (USER, u64::MAX - 1, USER + 0x2000),
        (USER, USER + 0x1000, u64::MAX - 3),
        (USER + 8, USER + 0x1000, USER + 0x2000),
        (USER, USER + 0x1001, USER + 0x2000),
        (USER, USER + 0x1000, USER + 0x2002),
    ];
    for (descriptors, available, used) in outside {
        let mut front = agree(&mut backend);
        front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
        let mut ring = vring(1, 0);
        ring.addresses = VringAddr { descriptors, available, used, ..ring.addresses };
        let result = front.start(ring);
        assert!(matches!(result, Err(FrontendError::Refused { request: 12, .. })), "{descriptors:#x}");
        assert_ne!(front.transport().backend.state(), State::Up);
    }
    // Without REPLY_ACK the session ends instead.
    let mut front = Frontend::negotiate(Wire::new(&mut backend), MODERN, 0).unwrap();
    assert!(front.start(vring(1, 0)).is_err());
    assert!(matches!(front.transport().end, Some(BackendError::Session(_))));
    assert_eq!(front.transport().backend.state(), State::Waiting);
    assert_eq!(counters.faults.load(Ordering::Relaxed), 1);
}

#[test]
fn a_ring_without_memory_pauses_until_memory_returns() {
    let file = shared_file(SIZE);
    let (mut backend, _queues, _) = port();
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
    front.start(vring(1, 0)).unwrap();
    front.set_memory(vec![shared(&file, 0x10_0000_0000, SIZE, 0)]).unwrap();
    front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
    assert_eq!(front.stop(1).unwrap(), 0);
}

#[test]
fn a_skipped_base_is_read_from_the_ring() {
    let file = shared_file(SIZE);
    let (mut backend, _queues, _) = port();
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &77u16.to_le_bytes(), 0x2002).unwrap();
    let ring = vring(1, 0);
    front.set(Request::SetVringNum(VringState { index: 1, num: 256 })).unwrap();
    front.set(Request::SetVringAddr(ring.addresses)).unwrap();
    front.set(Request::SetVringKick(VringFd { index: 1, fd: None })).unwrap();
    assert_eq!(front.stop(1).unwrap(), 77);
}

#[test]
fn surplus_descriptors_end_the_session_and_are_closed() {
    let (mut backend, _queues, counters) = port();
    let file = shared_file(4096);
    let inode = rustix::fs::fstat(&file).unwrap().st_ino;
    let is_ours = |entry: &std::io::Result<std::fs::DirEntry>| {
        let target = entry.as_ref().ok().and_then(|entry| std::fs::metadata(entry.path()).ok());
        target.is_some_and(|target| std::os::unix::fs::MetadataExt::ino(&target) == inode)
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().filter(is_ours).count();
    let (ours, theirs) = UnixStream::pair().unwrap();
    backend.connect(theirs.into()).unwrap();
    let bytes = Request::GetFeatures.encode(false).bytes;
    let message = |count: usize| {
        let fds = vec![file.as_fd(); count];
        ringway_host::send_with(ours.as_fd(), &bytes, &fds).unwrap();
    };
    message(3);
    assert!(matches!(backend.readable(), Err(BackendError::Session(_))));
    assert_eq!(counters.faults.load(Ordering::Relaxed), 1);
    for _ in 0..200 {
        let (ours, theirs) = UnixStream::pair().unwrap();
        backend.connect(theirs.into()).unwrap();
        let fds = vec![file.as_fd(); 30];
        ringway_host::send_with(ours.as_fd(), &bytes, &fds).unwrap();
        assert!(backend.readable().is_err());
    }
    assert_eq!(open(), 1);
}

#[test]
fn a_message_for_all_rings_waits_once() {
    let (mut backend, _queues, _) = port();
    let file = shared_file(SIZE);
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
    front.start(vring(0, 0)).unwrap();
    front.start(vring(1, 0x4000)).unwrap();
    let before = ringway_host::graces();
    front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
    assert_eq!(ringway_host::graces(), before + 1);
    assert_eq!(front.transport().backend.state(), State::Up);
}

#[test]
fn rings_stop_as_soon_as_their_memory_is_lost() {
    ringway_host::catch_sigbus().unwrap();
    let (mut backend, mut queues, _) = port();
    let file = shared_file(SIZE);
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
    front.start(vring(0, 0)).unwrap();
    front.start(vring(1, 0x4000)).unwrap();
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(1);
    assert!(queues[0].rx.caps(&turn).is_some());
    file.set_len(0).unwrap();
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    // The read that hits the missing page sees zeros.
    queues[0].tx.take(&turn, &mut burst);
    assert!(burst.is_empty() && queues[0].rx.caps(&turn).is_none());
    reader.rest();
    front.set(Request::NetSetMtu(1500)).unwrap_err();
    assert!(matches!(front.transport().end, Some(BackendError::Lost)));
}

#[test]
fn a_shrinking_memory_file_closes_the_port() {
    ringway_host::catch_sigbus().unwrap();
    let (mut backend, _queues, counters) = port();
    let file = shared_file(SIZE);
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, SIZE, 0)]).unwrap();
    file.set_len(0).unwrap();
    // The ring's index would be read from memory that is gone.
    let ring = vring(1, 0);
    front.set(Request::SetVringNum(VringState { index: 1, num: 256 })).unwrap();
    front.set(Request::SetVringAddr(ring.addresses)).unwrap();
    let _ = front.set(Request::SetVringKick(VringFd { index: 1, fd: None }));
    assert!(matches!(front.transport().end, Some(BackendError::Lost)));
    assert_eq!(backend.state(), State::Waiting);
    assert_eq!(counters.faults.load(Ordering::Relaxed), 1);
}

#[test]
fn a_front_end_that_dies_within_a_message_is_disconnected() {
    let (mut backend, _queues, _) = port();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    backend.connect(theirs.into()).unwrap();
    ours.write_all(&Request::SetVringAddr(vring(0, 0).addresses).encode(false).bytes[..20]).unwrap();
    assert!(backend.readable().is_ok());
    drop(ours);
    assert!(matches!(backend.readable(), Err(BackendError::Session(_))));
    assert_eq!(backend.state(), State::Waiting);
    assert!(backend.fd().is_none());
}

#[test]
fn a_front_end_that_never_reads_is_disconnected() {
    let (mut backend, _queues, _) = port();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    backend.connect(theirs.into()).unwrap();
    let bytes = Request::GetFeatures.encode(false).bytes;
    let end = (0..1_000_000).find_map(|_| {
        let _ = ours.write(&bytes);
        backend.readable().err()
    });
    assert!(matches!(end, Some(BackendError::Socket(SocketError::Deaf))));
}

#[test]
fn a_listener_replaces_only_stale_sockets() {
    let socket = path("socket");
    let first = Listener::bind(&socket, Access::default()).unwrap();
    assert!(matches!(Listener::bind(&socket, Access::default()), Err(OpenError::Alive { .. })));
    let probe = first.accept().unwrap();
    assert!(probe.is_some(), "the other's look whether anybody listens");
    let client = connect(&socket).unwrap();
    assert!(first.accept().unwrap().is_some());
    assert!(first.accept().unwrap().is_none());
    drop((first, client));
    assert!(!socket.exists());

    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(matches!(connect(&socket), Err(OpenError::WouldRetry { .. })));
    drop(Listener::bind(&socket, Access { mode: Some(0o660), ..Access::default() }).unwrap());
    assert!(matches!(connect(&socket), Err(OpenError::WouldRetry { .. })));

    std::fs::write(&socket, "precious").unwrap();
    assert!(matches!(Listener::bind(&socket, Access::default()), Err(OpenError::Taken { .. })));
    assert!(matches!(connect(&socket), Err(OpenError::Taken { .. })));
    assert_eq!(std::fs::read(&socket).unwrap(), b"precious");
    std::fs::remove_file(&socket).unwrap();

    let long = PathBuf::from(format!("/dev/shm/{}", "x".repeat(100)));
    let error = Listener::bind(&long, Access::default()).unwrap_err();
    assert!(error.to_string().contains("109 bytes"), "{error}");
}

#[test]
fn reconnect_attempts_back_off_to_one_second() {
    let mut retry = Retry::default();
    let waits: Vec<u128> = (0..8).map(|_| retry.wait().as_millis()).collect();
    assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
}

proptest! {
    #[test]
    fn garbage_only_ends_the_session(
        bytes in proptest::collection::vec(any::<u8>(), 1..1024),
        header in any::<bool>(),
        request in 0u32..44,
    ) {
        let (mut backend, _queues, _) = port();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        backend.connect(theirs.into()).unwrap();
        if header {
            let size = bytes.len().min(48) as u32;
            ours.write_all(&[request, 1, size].map(u32::to_ne_bytes).concat()).unwrap();
        }
        ours.write_all(&bytes).unwrap();
        drop(ours);
        let end = (0..100).find_map(|_| backend.readable().err());
        prop_assert!(end.is_some());
        prop_assert_eq!(backend.state(), State::Waiting);
        agree(&mut backend);
    }
}
