//! Both ends of vfio-user, with a peer that sends anything.

use ringway_vfio_user::{
    Access, Capabilities, Client, Device, DeviceInfo, DmaMap, DmaRange, DmaUnmap, HEADER, Inbox, Irq,
    IrqAction, IrqData, IrqInfo, IrqType, Mapping, Offer, Packet, Refused, Region, RegionInfo, Request,
    Session, SetIrqs, Transport, Write, pci,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const REGION: u64 = 0x3000;
const VECTORS: u32 = 5;
const MAPS: u32 = 8;

/// A device that checks what a session promises.
#[derive(Default)]
struct Nothing {
    maps: BTreeMap<u64, u64>,
    eventfds: BTreeSet<(Irq, IrqAction)>,
}

impl Nothing {
    fn check(region: u32, offset: u64, len: usize) {
        assert!(region == pci::BAR0 && len > 0);
        assert!(offset.checked_add(len as u64).is_some_and(|end| end <= REGION));
    }
}

impl Device for Nothing {
    fn dma_map(&mut self, map: DmaMap, _file: Option<OwnedFd>) -> Result<(), Refused> {
        let last = |address: u64, size: u64| address.checked_add(size - 1).expect("a range wraps");
        let end = last(map.address, map.size);
        let apart = self.maps.iter().all(|(&at, &size)| last(at, size) < map.address || end < at);
        assert!(apart && self.maps.len() < MAPS as usize);
        self.maps.insert(map.address, map.size);
        Ok(())
    }

    fn dma_unmap(&mut self, ranges: &[DmaRange]) {
        ranges.iter().for_each(|range| assert_eq!(self.maps.remove(&range.address), Some(range.size)));
    }

    fn read(&mut self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Refused> {
        Nothing::check(region, offset, bytes.len());
        Ok(())
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        Nothing::check(region, offset, bytes.len());
        if offset == 0 { Err(Refused::invalid("no")) } else { Ok(()) }
    }

    fn set_eventfd(&mut self, irq: Irq, action: IrqAction, eventfd: Option<OwnedFd>) -> Result<(), Refused> {
        assert!(irq.index == pci::INTX && irq.vector < VECTORS);
        match eventfd {
            Some(_) => self.eventfds.insert((irq, action)),
            None => self.eventfds.remove(&(irq, action)),
        };
        Ok(())
    }

    fn act(&mut self, irq: Irq, _action: IrqAction) {
        assert!(irq.index == pci::INTX && irq.vector < VECTORS);
    }

    fn reset(&mut self) {}
}

fn null() -> Option<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from).ok()
}

fn offer() -> Offer {
    let mapping = null().map(|file| Mapping { file: Arc::new(file), offset: 0, areas: Vec::new() });
    let flags = RegionInfo::READ | RegionInfo::WRITE;
    let region = Region { size: REGION, flags, mapping, ..Region::default() };
    let irq = IrqType { count: VECTORS, flags: IrqType::EVENTFD | IrqType::MASKABLE };
    Offer { regions: vec![region, Region::default()], irqs: vec![irq, IrqType::default()], maps: MAPS }
}

/// The next part of a stream: a byte before it has its length and number of descriptors.
fn part(rest: &mut &[u8], space: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
    let (&first, behind) = rest.split_first()?;
    let count = space.len().min(usize::from(first & 0x3f) + 1).min(behind.len());
    space[..count].copy_from_slice(&behind[..count]);
    *rest = &behind[count..];
    Some((count, (0..first >> 6).filter_map(|_| null()).collect()))
}

/// A server that sends the data regardless of the requests.
struct Hostile<'a>(&'a [u8]);

impl Transport for Hostile<'_> {
    fn send(&mut self, _packet: Packet) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        Ok(part(&mut self.0, bytes).unwrap_or_default())
    }
}

/// Passes `data` to a session, and to a client.
pub fn run(data: &[u8]) {
    serve(data);
    if let Ok(mut client) = Client::negotiate(Hostile(data)) {
        while client.region(0).is_ok() && client.read(0, 0, &mut [0; 4]).is_ok() {}
    }
}

fn serve(data: &[u8]) {
    let (mut inbox, mut session, mut device) = (Inbox::default(), Session::new(offer()), Nothing::default());
    let mut rest = data;
    'stream: while let Some((count, fds)) = part(&mut rest, inbox.space()) {
        if inbox.filled(count, fds).is_err() {
            break;
        }
        while let Ok(message) = inbox.message() {
            let Some(message) = message else { continue 'stream };
            let Ok(outcome) = session.handle(message, &mut device) else { break 'stream };
            assert!(outcome.answer.is_none_or(|answer| answer.bytes.len() >= HEADER));
        }
        break;
    }
    session.end(&mut device);
    assert!(device.maps.is_empty() && device.eventfds.is_empty(), "something is left of a session");
}

/// A typical session, and a server's replies to a client.
pub fn seeds() -> Vec<Vec<u8>> {
    let map = DmaMap { flags: DmaMap::READ, address: 0x1000, size: 0x2000, ..DmaMap::default() };
    let access = Access { offset: 4, region: 0, count: 4 };
    let write = Write { access, data: [1; 8] };
    let irqs = |data| SetIrqs { index: 0, start: 1, count: 2, action: IrqAction::Trigger, data };
    let fds = [null(), null()].into_iter().flatten().collect();
    let requests = [
        Request::Version(0, 0, Capabilities { write_multiple: true, ..Default::default() }),
        Request::DmaMap(map, null()),
        Request::GetInfo(DeviceInfo { argsz: 16, ..Default::default() }),
        Request::GetRegionInfo(RegionInfo { argsz: 64, ..Default::default() }),
        Request::GetIrqInfo(IrqInfo { argsz: 16, ..Default::default() }),
        Request::SetIrqs(irqs(IrqData::Eventfds(fds))),
        Request::SetIrqs(irqs(IrqData::Some(&[1, 0]))),
        Request::SetIrqs(irqs(IrqData::All)),
        Request::RegionRead(access),
        Request::RegionWrite(access, &[1, 2, 3, 4]),
        Request::RegionWriteMulti(vec![write, write]),
        Request::DmaUnmap(DmaUnmap { argsz: 24, flags: DmaUnmap::ALL, ..Default::default() }),
        Request::Reset,
    ];
    let (mut session, mut device, mut inbox) = (Session::new(offer()), Nothing::default(), Inbox::default());
    let (mut stream, mut replies) = (Vec::new(), Vec::new());
    for (id, request) in (0..).zip(requests) {
        let packet = request.encode(id, false);
        add(&mut stream, &packet.bytes, packet.fds.len());
        inbox.space()[..packet.bytes.len()].copy_from_slice(&packet.bytes);
        let fds = packet.fds.iter().filter_map(|_| null()).collect();
        let message = inbox.filled(packet.bytes.len(), fds).and_then(|()| inbox.message());
        let Ok(Some(message)) = message else { continue };
        let outcome = session.handle(message, &mut device).unwrap_or_default();
        // A client numbers its requests: the version, a region, a read.
        let number = [0, 3, 8].iter().position(|asked| *asked == id);
        if let (Some(number), Some(mut answer)) = (number, outcome.answer) {
            answer.bytes[..2].copy_from_slice(&(number as u16).to_ne_bytes());
            add(&mut replies, &answer.bytes, answer.fds.len());
        }
    }
    vec![stream, replies]
}

/// Adds a message, in parts of at most 64 bytes.
fn add(stream: &mut Vec<u8>, bytes: &[u8], fds: usize) {
    for (index, part) in bytes.chunks(0x40).enumerate() {
        stream.push(if index == 0 { (fds as u8) << 6 } else { 0 } | (part.len() - 1) as u8);
        stream.extend_from_slice(part);
    }
}
