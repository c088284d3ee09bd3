//! A vhost-user session served by a confined process. Runs without a test harness, whose threads and files would be
//! confined too.

#![allow(clippy::expect_used)] // What is expected here fails the test.

use ringway_frame::{Burst, CountersRef, Storage};
use ringway_host::{
    Clock, EventFd, catch_sigbus, confine_data, memfd, receive_with, send_with, wait_readable,
};
use ringway_mem::{Hint, Memory, Reader};
use ringway_port::vhost_user::{BackendError, Config, new};
use ringway_port::{Doorbell, Silent, SocketError, State};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{
    BackendRequest, Frontend, Iotlb, MemoryRegion, Packet, Request, SharedRegion, Transport, Vring, VringAddr,
};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

const SIZE: u64 = 1 << 20;
const DATA: u64 = 0x8_0000;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("confined") {
        return serve();
    }
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new(program);
    let mut child = command
        .arg("confined")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .expect("the test runs itself");
    // Only the child keeps its end of the socket.
    drop(command);
    front(ours);
    let status = child.wait().expect("the child ends");
    assert!(status.success(), "{status}");
}

/// The port, confined like the data process.
fn serve() {
    let socket = io::stdin().as_fd().try_clone_to_owned().expect("a socket");
    let counters = CountersRef::private();
    let config = Config { mac: Some([2, 0, 0, 0, 0, 1]), mtu: Some(9000), ..Config::default() };
    let doorbells: Vec<Arc<dyn Doorbell>> = vec![Arc::new(Silent)];
    let (mut backend, mut queues) = new(config, doorbells, vec![counters]);
    catch_sigbus().expect("a handler");
    confine_data().expect("this kernel has seccomp");
    backend.connect(socket).expect("a session");
    let mut reader = Reader::register().expect("a place among the readers");
    let clock = Clock::new();
    let (mut storage, mut taken, mut was_up) = (Storage::default(), 0, false);
    let end = loop {
        let Some(fd) = backend.fd() else { break None };
        wait_readable(&[fd], Some(10_000_000)).expect("waiting");
        if let Err(error) = backend.readable() {
            break Some(error);
        }
        if let Some(refused) = backend.refused() {
            eprintln!("refused: {refused}");
        }
        was_up |= backend.state() == State::Up;
        let turn = reader.turn(clock.now());
        let mut burst = Burst::begin(&mut storage);
        queues[0].tx.take(&turn, &mut burst);
        taken += burst.len();
        queues[0].tx.release(&turn, burst.len());
        reader.rest();
    };
    assert!(matches!(end, Some(BackendError::Socket(SocketError::Closed))), "{end:?}");
    assert!(was_up);
    assert_eq!(taken, 3, "the guest's frames, and the one that announces it");
}

struct Wire(UnixStream);

impl Transport for Wire {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        let sent = send_with(self.0.as_fd(), &packet.bytes, &fds).map_err(io::Error::other)?;
        if sent == packet.bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive_with(self.0.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

fn vring(index: u32, kick: &EventFd, call: &EventFd) -> Vring {
    let at = 0x4000 * u64::from(index);
    let (available, used) = (at + 0x1000, at + 0x2000);
    let addresses = VringAddr { index, flags: 0, descriptors: at, available, used, log: 0 };
    Vring { size: 256, addresses, base: 0, kick: Some(copy(kick)), call: Some(copy(call)) }
}

fn copy(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().expect("a descriptor")
}

/// Waits until the port used a buffer; returns its id.
fn used(driver: &mut Driver<'_>, call: &EventFd) -> u32 {
    loop {
        if let Some((_, len)) = driver.take_used().expect("a ring that works") {
            return len;
        }
        assert_eq!(wait_readable(&[call.as_fd()], Some(10_000_000_000)).expect("waiting"), [true]);
        call.clear();
    }
}

/// An IOTLB message of the guest's IOMMU; addresses are equal in all address spaces.
fn translation(kind: u8, iova: u64, size: u64) -> Request {
    Request::IotlbMsg(Iotlb { iova, size, user: iova, permissions: 3, kind })
}

/// Revokes a page, waits for the miss, and grants it again.
fn ask_again(
    front: &mut Frontend<Wire>,
    tx: &mut Driver<'_>,
    (kick, call): (&EventFd, &EventFd),
    misses: &mut impl Read,
) {
    front.set(translation(Iotlb::INVALIDATE, DATA, 4096)).expect("an invalidation");
    tx.add(&[Buffer { address: DATA, len: 100, write: false }], None).expect("room");
    tx.publish();
    kick.signal();
    let mut miss = [0; 44];
    misses.read_exact(&mut miss).expect("a question");
    let miss = BackendRequest::decode(1, &miss[12..], Vec::new()).expect("a question");
    assert!(matches!(miss, BackendRequest::Iotlb(Iotlb { iova: DATA, kind: Iotlb::MISS, .. })), "{miss:?}");
    front.set(translation(Iotlb::UPDATE, DATA, 4096)).expect("an answer");
    assert_eq!(used(tx, call), 0);
}

/// The front-end and its guest.
fn front(socket: UnixStream) {
    let features = virtio::VERSION_1
        | virtio::ACCESS_PLATFORM
        | virtio::NET_CTRL_VQ
        | virtio::NET_STATUS
        | virtio::NET_GUEST_ANNOUNCE;
    let agreed = protocol::REPLY_ACK
        | protocol::CONFIG
        | protocol::BACKEND_REQ
        | protocol::RARP
        | protocol::MTU
        | protocol::CONFIGURE_MEM_SLOTS;
    let mut front = Frontend::negotiate(Wire(socket), features, agreed).expect("an agreement");
    assert_eq!(front.protocol(), agreed);
    let (mut misses, channel) = io::pipe().expect("a pipe");
    front.set(Request::SetBackendReqFd(channel.into())).expect("a channel");
    let file = memfd("guest", SIZE as usize).expect("a memfd");
    let region = MemoryRegion { guest: 0, size: SIZE, user: 0, offset: 0 };
    let share = || SharedRegion { region, fd: copy(&file) };
    front.set_memory(vec![share()]).expect("memory");
    front.set(Request::RemMemReg(region)).expect("memory goes");
    front.set(Request::AddMemReg(share())).expect("memory comes");
    front.set(translation(Iotlb::UPDATE, 0, SIZE)).expect("a translation of all memory");
    front.set(Request::NetSetMtu(1500)).expect("an MTU");
    assert_eq!(front.config(0, 8).expect("a configuration")[..8], [2, 0, 0, 0, 0, 1, 1, 0]);

    let mapped = ringway_host::map_region(&file, 0, SIZE, 0, 0).expect("a mapping");
    let memory = Memory::new(vec![mapped]).expect("one region");
    let span = |at, len| memory.span_mut(at, len, &mut Hint::default()).expect("within the memory");
    let layout = Layout { packed: false, size: 256, event_idx: false, indirect: false };
    let lengths = layout.lengths().expect("a size");
    let driver = |index: u64| {
        let at = 0x4000 * index;
        let (driver, device) = (span(at + 0x1000, lengths.driver), span(at + 0x2000, lengths.device));
        Driver::new(&layout, Areas { descriptors: span(at, lengths.descriptors), driver, device })
            .expect("a ring")
    };
    let (mut tx, mut control) = (driver(1), driver(2));
    let kicks = [(); 3].map(|()| EventFd::new().expect("an eventfd"));
    let calls = [(); 3].map(|()| EventFd::new().expect("an eventfd"));
    (0..3_usize).for_each(|ring| {
        front.start(vring(ring as u32, &kicks[ring], &calls[ring])).expect("a ring that starts")
    });

    tx.add(&[Buffer { address: DATA, len: 100, write: false }], None).expect("room");
    tx.publish();
    kicks[1].signal();
    assert_eq!(used(&mut tx, &calls[1]), 0);
    ask_again(&mut front, &mut tx, (&kicks[1], &calls[1]), &mut misses);
    front.set(Request::SendRarp([2, 0, 0, 0, 0, 1])).expect("an announcement");
    let mut message = [0; 64];
    assert_eq!(misses.read(&mut message).expect("a message on the channel"), 12);
    let status = front.config(6, 2).expect("a configuration");
    assert_eq!(status, [3, 0], "the driver shall announce itself");
    span(DATA, 2).write(&[3, 0]);
    let command = Buffer { address: DATA, len: 2, write: false };
    control.add(&[command, Buffer { address: DATA + 8, len: 1, write: true }], None).expect("room");
    control.publish();
    kicks[2].signal();
    assert_eq!(used(&mut control, &calls[2]), 1);
    assert_eq!(front.config(6, 2).expect("a configuration"), [1, 0]);
    for (ring, position) in [(0, 0), (1, 2), (2, 1)] {
        assert_eq!(front.stop(ring).expect("where it stood"), position);
    }
}
