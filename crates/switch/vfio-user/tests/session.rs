//! Sessions as clients hold them, and as they shouldn't.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests fail the test.

mod common;

use common::{BAR, Memory, null, offer};
use proptest::prelude::*;
use ringway_vfio_user::*;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// A client's transport whose other end is a session.
struct Loop {
    session: Session,
    device: Memory,
    inbox: Inbox,
    /// Bytes of the next read are cut to this length.
    step: usize,
    replies: VecDeque<u8>,
    files: Vec<OwnedFd>,
    refused: Vec<String>,
}

impl Loop {
    fn new() -> Loop {
        Loop {
            session: Session::new(offer()),
            device: Memory::default(),
            inbox: Inbox::default(),
            step: usize::MAX,
            replies: VecDeque::new(),
            files: Vec::new(),
            refused: Vec::new(),
        }
    }
}

impl Transport for Loop {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let mut fds: Vec<OwnedFd> = packet.fds.iter().map(|_| null()).collect();
        let mut rest = &packet.bytes[..];
        while !rest.is_empty() {
            let space = self.inbox.space();
            let count = rest.len().min(space.len()).min(self.step);
            space[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            self.inbox.filled(count, std::mem::take(&mut fds)).map_err(io::Error::other)?;
            while let Some(message) = self.inbox.message().map_err(io::Error::other)? {
                let outcome = self.session.handle(message, &mut self.device).map_err(io::Error::other)?;
                let answer = outcome.answer.unwrap_or_default();
                self.replies.extend(answer.bytes);
                self.files.extend(answer.fds.iter().map(|_| null()));
                self.refused.extend(outcome.refused.map(|error| error.to_string()));
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let count = bytes.len().min(self.step).min(self.replies.len());
        self.replies.drain(..count).zip(bytes).for_each(|(from, to)| *to = from);
        Ok((count, std::mem::take(&mut self.files)))
    }
}

fn connect() -> Client<Loop> {
    Client::negotiate(Loop::new()).unwrap()
}

fn map(address: u64, size: u64) -> DmaMap {
    DmaMap { flags: DmaMap::READ | DmaMap::WRITE, address, size, ..DmaMap::default() }
}

fn unmap(address: u64, size: u64) -> DmaUnmap {
    DmaUnmap { address, size, ..DmaUnmap::default() }
}

/// The error number of a refused request.
fn errno<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
    match result {
        Err(ClientError::Refused { errno, .. }) => errno,
        other => panic!("{other:?}"),
    }
}

/// Passes a message without a client.
fn handle(
    session: &mut Session,
    header: Header,
    payload: &[u8],
    fds: Vec<OwnedFd>,
) -> Result<Outcome, SessionError> {
    session.handle(Message { header, payload, fds }, &mut Memory::default())
}

fn command(command: u16, size: usize) -> Header {
    Header { id: 9, command, kind: Kind::Command { no_reply: false }, size }
}

#[test]
fn a_client_learns_the_device() {
    let mut client = connect();
    let info = client.info().unwrap();
    assert_eq!((info.flags, info.regions, info.irqs), (DeviceInfo::RESET | DeviceInfo::PCI, 9, 5));
    let bar = client.region(pci::BAR0).unwrap();
    let flags = RegionInfo::READ | RegionInfo::WRITE | RegionInfo::MMAP | RegionInfo::CAPS;
    assert_eq!((bar.info.size, bar.info.flags), (BAR as u64, flags));
    assert_eq!(bar.areas, [Area { offset: 0x2000, size: 0x2000 }]);
    assert!(bar.file.is_some());
    let absent = client.region(1).unwrap();
    assert_eq!((absent.info.size, absent.info.flags, absent.file.is_none()), (0, 0, true));
    let doorbells = client.doorbells(pci::BAR0).unwrap();
    let found: Vec<_> = doorbells.iter().map(|doorbell| (doorbell.offset, doorbell.size)).collect();
    assert_eq!(found, [(0x40, 4)]);
    assert_eq!(client.doorbells(1).unwrap().len(), 0);
    assert_eq!(errno(client.doorbells(9)), errno::EINVAL);
    assert_eq!(client.irq(pci::MSIX).unwrap().count, 5);
    assert_eq!(errno(client.region(9)), errno::EINVAL);
    assert_eq!(errno(client.irq(u32::MAX)), errno::EINVAL);
    assert_eq!(client.server().max_dma_maps, 4);
}

#[test]
fn a_client_uses_the_device() {
    let mut client = connect();
    client.transport().step = 5;
    client.write(pci::BAR0, 0x10, &[1, 2, 3, 4]).unwrap();
    client.post(pci::BAR0, 0x12, &[9]).unwrap();
    let access = Access { offset: 0x13, region: pci::BAR0, count: 1 };
    client.post_multi(vec![Write { access, data: [8; 8] }]).unwrap();
    let mut bytes = [0; 6];
    client.read(pci::BAR0, 0xf, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 1, 2, 9, 8, 0]);
    let trigger = |data| SetIrqs { index: pci::MSIX, start: 1, count: 3, action: IrqAction::Trigger, data };
    client.set_irqs(trigger(IrqData::Eventfds(vec![null(), null(), null()]))).unwrap();
    client.set_irqs(trigger(IrqData::Some(&[1, 0, 2]))).unwrap();
    assert_eq!(client.transport().device.take(), ["Trigger 2.1", "Trigger 2.3"]);
    client.dma_map(map(0, 0x4000), Some(null())).unwrap();
    client.reset().unwrap();
    let Loop { session, device, refused, .. } = client.transport();
    assert_eq!((refused.len(), device.maps.len(), device.eventfds.len()), (0, 1, 3));
    session.end(device);
    assert!(device.maps.is_empty() && device.eventfds.is_empty());
}

#[test]
fn only_version_is_accepted_first_and_only_once() {
    for number in (0..20).filter(|number| *number != command::VERSION) {
        let result = handle(&mut Session::new(offer()), command(number, 0), &[], Vec::new());
        assert!(matches!(result, Err(SessionError::NoVersion { .. })), "{number}");
    }
    let mut session = Session::new(offer());
    let mut version = |payload: &[u8]| handle(&mut session, command(1, payload.len()), payload, Vec::new());
    // Malformed capabilities are refused, and can be corrected.
    assert!(version(b"\0\0\0\0{").unwrap().refused.is_some());
    assert!(matches!(version(&[1, 0, 0, 0]), Err(SessionError::Version { .. })));
    assert!(version(&[0, 0, 7, 0]).unwrap().refused.is_none());
    let second = version(&[0, 0, 0, 0]).unwrap();
    assert!(matches!(second.refused, Some(SessionError::Refused { .. })));
    assert_eq!(second.answer.unwrap().bytes[8..], [0x21, 0, 0, 0, errno::EINVAL as u8, 0, 0, 0]);
    let client = session.client().unwrap();
    assert_eq!(client, Capabilities::default());
}

#[test]
fn surplus_descriptors_are_closed_at_once() {
    let mut session = Session::new(offer());
    handle(&mut session, command(command::VERSION, 4), &[0; 4], Vec::new()).unwrap();
    for number in [command::DEVICE_RESET, command::DEVICE_SET_IRQS, command::DMA_MAP, 6, 99] {
        let (mut reader, writer) = io::pipe().unwrap();
        let fds = vec![null(), writer.into()];
        assert!(handle(&mut session, command(number, 0), &[], fds).unwrap().refused.is_some());
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0, "{}", name(number));
    }
}

#[test]
fn multiple_writes_need_negotiation() {
    let mut session = Session::new(offer());
    handle(&mut session, command(command::VERSION, 4), &[0; 4], Vec::new()).unwrap();
    let outcome = handle(&mut session, command(command::REGION_WRITE_MULTI, 8), &[0; 8], Vec::new()).unwrap();
    assert_eq!(outcome.answer.unwrap().bytes[12], errno::ENOTSUP as u8);
}

#[test]
fn invalid_ranges_are_not_mapped() {
    let mut client = connect();
    client.dma_map(map(0x4000, 0x2000), Some(null())).unwrap();
    for (address, size) in [(0x4000, 0x2000), (0x5000, 0x1000), (0x3000, 0x2000), (0, 1 << 63)] {
        assert_eq!(errno(client.dma_map(map(address, size), None)), errno::EEXIST, "{address:#x}");
    }
    for (address, size) in
        [(0, 0), (1, 0x1000), (0x1000, 1), (u64::MAX - 0xfff, 0x2000), (0x2000, 0u64.wrapping_sub(0x1000))]
    {
        assert_eq!(errno(client.dma_map(map(address, size), None)), errno::EINVAL, "{address:#x}");
    }
    let wraps = DmaMap { offset: u64::MAX - 0xfff, ..map(0, 0x1000) };
    assert_eq!(errno(client.dma_map(wraps, None)), errno::EINVAL);
    for flags in [0, 4, u32::MAX] {
        assert_eq!(errno(client.dma_map(DmaMap { flags, ..map(0, 0x1000) }, None)), errno::EINVAL);
    }
    client.transport().device.refuse = true;
    assert_eq!(errno(client.dma_map(map(0, 0x1000), None)), errno::EIO);
    client.transport().device.refuse = false;
    // The last page of all, and as many as were offered.
    client.dma_map(map(u64::MAX - 0xfff, 0x1000), None).unwrap();
    client.dma_map(map(0, 0x4000), None).unwrap();
    client.dma_map(map(0x6000, 0x1000), None).unwrap();
    assert_eq!(errno(client.dma_map(map(0x10000, 0x1000), None)), errno::ENOSPC);
}

#[test]
fn ranges_are_unmapped_whole() {
    let mut client = connect();
    for page in [1, 2, 4, 8] {
        client.dma_map(map(page << 12, 0x1000), None).unwrap();
    }
    client.transport().device.take();
    assert_eq!(errno(client.dma_unmap(unmap(0x3000, 0x1000))), errno::ENOENT);
    assert_eq!(errno(client.dma_unmap(unmap(0x1000, 0x1800))), errno::EINVAL);
    assert_eq!(errno(client.dma_unmap(unmap(0x1800, 0x800))), errno::EINVAL);
    assert_eq!(errno(client.dma_unmap(unmap(0x1000, 0))), errno::EINVAL);
    assert_eq!(errno(client.dma_unmap(DmaUnmap { flags: 1, ..unmap(0x1000, 0x1000) })), errno::EINVAL);
    assert_eq!(errno(client.dma_unmap(DmaUnmap { flags: DmaUnmap::ALL, ..unmap(0, 1) })), errno::EINVAL);
    assert!(client.transport().device.take().is_empty());
    // An IOMMU's invalidation covers several ranges and a hole.
    client.dma_unmap(unmap(0, 0x4000)).unwrap();
    assert_eq!(client.transport().device.take(), ["unmap 0x2000 0x1000", "unmap 0x1000 0x1000"]);
    client.dma_unmap(DmaUnmap { flags: DmaUnmap::ALL, ..unmap(0, 0) }).unwrap();
    assert_eq!(client.transport().device.take().len(), 2);
    client.dma_unmap(DmaUnmap { flags: DmaUnmap::ALL, ..unmap(0, 0) }).unwrap();
}

#[test]
fn accesses_beyond_a_region_are_refused() {
    let mut client = connect();
    let end = BAR as u64;
    for (region, offset, len) in [
        (pci::BAR0, end, 1),
        (pci::BAR0, end - 3, 4),
        (pci::BAR0, u64::MAX, 1),
        (pci::BAR0, u64::MAX - 3, 4),
        (pci::BAR0, 0, 0),
        (1, 0, 1),
        (pci::CONFIG, 0, 257),
        (9, 0, 1),
        (u32::MAX, 0, 1),
    ] {
        assert_eq!(errno(client.read(region, offset, &mut vec![0; len])), errno::EINVAL, "{offset:#x}");
        assert_eq!(errno(client.write(region, offset, &vec![0; len])), errno::EINVAL, "{offset:#x}");
    }
    client.read(pci::ROM, 0, &mut [0; 4]).unwrap();
    assert_eq!(errno(client.write(pci::ROM, 0, &[0; 4])), errno::EINVAL);
    client.read(pci::BAR0, 0, &mut [0; TRANSFER]).unwrap();
    assert!(matches!(client.read(pci::BAR0, 0, &mut [0; TRANSFER + 1]), Err(ClientError::Limit)));
    let long = Access { offset: 0, region: pci::BAR0, count: TRANSFER as u32 + 1 };
    let packet = Request::RegionRead(long).encode(9, false);
    client.transport().send(packet).unwrap();
    assert!(client.transport().refused.pop().unwrap().contains("too long"));
}

#[test]
fn refused_posted_writes_are_reported_without_a_reply() {
    let mut client = connect();
    client.post(pci::BAR0, BAR as u64, &[1]).unwrap();
    let write = |offset, count| Write { access: Access { offset, region: pci::BAR0, count }, data: [7; 8] };
    // The others of a message are done.
    client.post_multi(vec![write(0, 9), write(8, 8), write(BAR as u64, 1), write(16, 1)]).unwrap();
    let Loop { replies, refused, device, .. } = client.transport();
    assert!(replies.is_empty());
    assert_eq!(device.bytes.len(), 9);
    assert_eq!(
        refused[..],
        [
            "message REGION_WRITE: the access is not within the region",
            "message REGION_WRITE_MULTI: the write is too long"
        ]
    );
}

#[test]
fn interrupts_that_do_not_exist_are_refused() {
    let mut client = connect();
    let mut set = |index, start, count, action| {
        client.set_irqs(SetIrqs { index, start, count, action, data: IrqData::All })
    };
    for (index, start, count) in [
        (pci::INTX, 0, 2),
        (pci::INTX, 1, 1),
        (pci::MSIX, 1, 0),
        (pci::MSIX, 5, 1),
        (pci::MSIX, 4, u32::MAX),
        (pci::MSIX, u32::MAX, 1),
        (pci::ERR, 0, 1),
        (5, 0, 0),
        (u32::MAX, 0, 1),
    ] {
        assert_eq!(errno(set(index, start, count, IrqAction::Trigger)), errno::EINVAL, "{index} {start}");
    }
    assert_eq!(
        errno(set(pci::MSIX, 0, 1, IrqAction::Mask)),
        errno::EINVAL,
        "vectors are masked in their table"
    );
    assert_eq!(errno(set(pci::INTX, 0, 0, IrqAction::Unmask)), errno::EINVAL);
    set(pci::INTX, 0, 1, IrqAction::Mask).unwrap();
    set(pci::ERR, 0, 0, IrqAction::Trigger).unwrap();
}

#[test]
fn a_reply_to_nothing_ends_the_session() {
    let mut session = Session::new(offer());
    handle(&mut session, command(command::VERSION, 4), &[0; 4], Vec::new()).unwrap();
    let reply = Header { id: 1, command: command::DMA_READ, kind: Kind::Reply { error: None }, size: 0 };
    let error = handle(&mut session, reply, &[], Vec::new()).unwrap_err();
    assert_eq!(error, SessionError::Unasked { command: command::DMA_READ });
}

/// A server that sends the given bytes regardless of the requests.
struct Hostile(Vec<u8>);

impl Transport for Hostile {
    fn send(&mut self, _packet: Packet) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let count = bytes.len().min(self.0.len());
        self.0.drain(..count).zip(bytes).for_each(|(from, to)| *to = from);
        Ok((count, Vec::new()))
    }
}

/// A reply, mostly to the right request.
fn any_reply() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![Just(0u32), Just(16), Just(32), Just(64), 0u32..300, any::<u32>()];
    (0u16..3, 5u16..6, proptest::collection::vec(word, 8..40)).prop_map(|(id, command, words)| {
        let size = 16 + 4 * words.len() as u32;
        let head = [id.to_ne_bytes(), command.to_ne_bytes()].concat();
        let rest = [size, 1, 0].into_iter().chain(words);
        head.into_iter().chain(rest.flat_map(u32::to_ne_bytes)).collect()
    })
}

proptest! {
    #[test]
    fn a_client_survives_any_server(replies in proptest::collection::vec(any_reply(), 1..6)) {
        let ours = Request::Version(0, 0, Capabilities::default()).encode(0, false).bytes;
        let mut version = ours;
        version[8] = 1;
        let stream = [version, replies.concat()].concat();
        let mut client = Client::negotiate(Hostile(stream)).unwrap();
        while let Ok(region) = client.region(0) {
            prop_assert!(region.areas.len() < PAYLOAD / 16);
        }
    }

    #[test]
    fn both_ends_agree(
        step in 1usize..100,
        script in proptest::collection::vec((0u8..6, 0u64..0x6100, 1usize..40, any::<u8>()), 0..60),
    ) {
        let mut client = connect();
        client.transport().step = step;
        let mut model = vec![0; BAR];
        for (what, offset, len, value) in script {
            let fits = offset as usize + len <= BAR;
            let range = offset as usize..(offset as usize + len).min(BAR);
            match what {
                0 => {
                    let mut bytes = vec![0; len];
                    prop_assert_eq!(client.read(pci::BAR0, offset, &mut bytes).is_ok(), fits);
                    prop_assert!(!fits || bytes == model[range]);
                    continue;
                }
                1 => prop_assert_eq!(client.write(pci::BAR0, offset, &vec![value; len]).is_ok(), fits),
                2 => client.post(pci::BAR0, offset, &vec![value; len]).unwrap(),
                3 => {
                    client.reset().unwrap();
                    model.fill(0);
                    continue;
                }
                4 => {
                    let _ = client.dma_map(map(offset << 12, (len as u64) << 12), Some(null()));
                    continue;
                }
                _ => {
                    let _ = client.dma_unmap(unmap(offset << 12, (len as u64) << 16));
                    continue;
                }
            }
            if fits {
                model[range].fill(value);
            }
        }
    }
}

fn any_message() -> impl Strategy<Value = (u16, Vec<u8>, usize, bool)> {
    let word = prop_oneof![0u32..9, Just(16u32), Just(32), Just(0x1000), Just(0x2000), any::<u32>()];
    let payload = proptest::collection::vec(word, 0..16)
        .prop_map(|words| words.into_iter().flat_map(u32::to_ne_bytes).collect());
    (0u16..17, payload, prop_oneof![Just(0usize), 0usize..4], any::<bool>())
}

proptest! {
    #[test]
    fn no_order_of_messages_breaks_a_promise(script in proptest::collection::vec(any_message(), 0..200)) {
        let mut device = Memory::default();
        let mut session = Session::new(offer());
        let version = b"\0\0\0\0{\"capabilities\":{\"write_multiple\":true}}\0";
        handle(&mut session, command(command::VERSION, version.len()), version, Vec::new()).unwrap();
        for (command, payload, fds, no_reply) in script {
            let header = Header { id: 3, command, kind: Kind::Command { no_reply }, size: payload.len() };
            let fds = (0..fds).map(|_| null()).collect();
            if let Ok(outcome) = session.handle(Message { header, payload: &payload, fds }, &mut device) {
                prop_assert_eq!(outcome.answer.is_none(), no_reply);
                prop_assert!(outcome.answer.is_none_or(|answer| answer.bytes.len() <= HEADER + PAYLOAD));
            }
        }
        session.end(&mut device);
        prop_assert!(device.maps.is_empty() && device.eventfds.is_empty());
    }
}
