//! The driver with devices of this process, honest and hostile.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::{
    ConfigSpace, DeviceError, Found, Function, Mmio, Net, NetMemory, PciError, Place, Registers, Transport,
    Width, functions,
};
use crate::device::Pushed;
use crate::link::LinkError;
use ringway_mem::{Hint, Memory, Region, Span};
use ringway_virtq::QueueError;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::vec::Vec;

/// Descriptors of the device's queues.
const SIZE: u16 = 16;
const HEADER: usize = 12;
const GOOD: u64 = 1 << 32 | 1 << 5;

/// A device with split rings.
struct Device {
    offered: u64,
    largest: u16,
    status: Cell<u8>,
    accepted: Cell<u64>,
    kicks: Cell<u32>,
    queues: [Option<(Place, Memory)>; 2],
    /// The next entry of the available ring, and of the used ring.
    next: [u16; 2],
    used: [u16; 2],
    /// Number of looks at the status until a reset has ended.
    slow: Cell<u32>,
    refuses: bool,
}

impl Device {
    fn new() -> Rc<RefCell<Device>> {
        Rc::new(RefCell::new(Device {
            offered: GOOD,
            largest: SIZE,
            status: Cell::new(0x7f),
            accepted: Cell::new(0),
            kicks: Cell::new(0),
            queues: [None, None],
            next: [0; 2],
            used: [0; 2],
            slow: Cell::new(3),
            refuses: false,
        }))
    }

    fn read<const N: usize>(&self, queue: usize, at: u64) -> [u8; N] {
        let (_, memory) = self.queues[queue].as_ref().unwrap();
        memory.span(at, N as u32, &mut Hint::default()).unwrap().read_array().unwrap()
    }

    fn write(&self, queue: usize, at: u64, bytes: &[u8]) {
        let (_, memory) = self.queues[queue].as_ref().unwrap();
        memory.span_mut(at, bytes.len() as u32, &mut Hint::default()).unwrap().write(bytes);
    }

    fn half(&self, queue: usize, at: u64) -> u16 {
        u16::from_le_bytes(self.read(queue, at))
    }

    /// The next available buffer: id, address, bytes.
    fn take(&mut self, queue: usize) -> Option<(u16, u64, u32)> {
        let place = self.queues[queue].as_ref().unwrap().0;
        if self.half(queue, place.driver + 2) == self.next[queue] {
            return None;
        }
        let id = self.half(queue, place.driver + 4 + 2 * u64::from(self.next[queue] % place.size));
        self.next[queue] = self.next[queue].wrapping_add(1);
        let at = place.descriptors + 16 * u64::from(id);
        Some((id, u64::from_le_bytes(self.read(queue, at)), u32::from_le_bytes(self.read(queue, at + 8))))
    }

    fn put(&mut self, queue: usize, id: u32, len: u32) {
        let place = self.queues[queue].as_ref().unwrap().0;
        let at = place.device + 4 + 8 * u64::from(self.used[queue] % place.size);
        self.write(queue, at, &id.to_le_bytes());
        self.write(queue, at + 4, &len.to_le_bytes());
        self.used[queue] = self.used[queue].wrapping_add(1);
        self.write(queue, place.device + 2, &self.used[queue].to_le_bytes());
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        let Some((id, address, len)) = self.take(0) else { return false };
        assert!(len as usize >= HEADER + frame.len());
        self.write(0, address, &[0; HEADER]);
        self.write(0, address + HEADER as u64, frame);
        self.put(0, id.into(), (HEADER + frame.len()) as u32);
        true
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let (id, address, len) = self.take(1)?;
        assert_eq!(self.read::<HEADER>(1, address), [0; HEADER]);
        let bytes = (HEADER as u64..len.into()).map(|at| self.read::<1>(1, address + at)[0]).collect();
        self.put(1, id.into(), 0);
        Some(bytes)
    }
}

struct Shared(Rc<RefCell<Device>>);

impl Transport for Shared {
    fn status(&self) -> u8 {
        let device = self.0.borrow();
        let slow = device.slow.get();
        device.slow.set(slow.saturating_sub(1));
        if slow > 0 { 0x7f } else { device.status.get() }
    }

    fn set_status(&self, status: u8) {
        let device = self.0.borrow();
        if status & 4 != 0 {
            // A monitor may start a back-end at the index that it finds then.
            for (queue, started) in device.queues.iter().enumerate() {
                let index = started.as_ref().map(|(place, _)| device.half(queue, place.driver + 2));
                assert_eq!(index, Some(0), "no buffer is available before the device is started");
            }
        }
        device.status.set(if device.refuses { status & !8 } else { status });
    }

    fn features(&self) -> u64 {
        self.0.borrow().offered
    }

    fn accept(&self, features: u64) {
        self.0.borrow().accepted.set(features);
    }

    fn queue_max(&mut self, queue: u16) -> u16 {
        if queue < 2 { self.0.borrow().largest } else { 0 }
    }

    fn start_queue(&mut self, queue: u16, place: &Place) -> bool {
        let end = (place.device + 4 + 8 * u64::from(place.size) + 2).next_multiple_of(64);
        let len = end - place.descriptors + u64::from(place.size) * 2112;
        let base = NonNull::new(place.descriptors as *mut u8).unwrap();
        // SAFETY: the queue's memory is so long, and lives as long as the process.
        let region = unsafe { Region::new(place.descriptors, place.descriptors, len, base, Arc::new(())) };
        self.0.borrow_mut().queues[usize::from(queue)] =
            Some((*place, Memory::new([region].into()).unwrap()));
        true
    }

    fn config(&self, offset: u32) -> u8 {
        [0x52, 0x54, 0, 0, 0, 7][offset as usize]
    }

    fn kick(&self, _: u16) {
        let device = self.0.borrow();
        device.kicks.set(device.kicks.get() + 1);
    }

    fn acknowledge(&self) {}

    fn interrupts(&self) -> bool {
        true
    }
}

fn start<'m>(device: &Rc<RefCell<Device>>, memory: &'m NetMemory) -> Result<Net<'m>, DeviceError> {
    Net::new(Box::new(Shared(device.clone())), memory)
}

fn memory() -> NetMemory {
    NetMemory::new(256).unwrap()
}

fn frame(number: usize) -> Vec<u8> {
    (0..60 + number % 1400).map(|at| (at * 7 + number) as u8).collect()
}

#[test]
fn frames_pass_both_ways_however_often_the_rings_wrap() {
    for features in [GOOD, GOOD | 1 << 29 | 1 << 33] {
        let device = Device::new();
        device.borrow_mut().offered = features | 1 << 15 | 1 << 35;
        let memory = memory();
        let mut net = start(&device, &memory).unwrap();
        assert_eq!(device.borrow().accepted.get(), features, "nothing else is accepted");
        assert_eq!(device.borrow().status.get(), 15);
        assert_eq!((net.mac(), net.tx_slots()), (Some([0x52, 0x54, 0, 0, 0, 7]), SIZE.into()));
        let mut buffer = [0; 2048];
        for number in 0..1000 {
            let sent = frame(number);
            assert!(device.borrow_mut().send(&sent));
            assert_eq!(net.frame_len(), Ok(Some(sent.len())));
            let received = net.pop(&mut buffer).unwrap().unwrap();
            assert_eq!((received.len, received.whole), (sent.len(), sent.len()));
            assert_eq!(buffer[..received.len], sent);
            assert_eq!(net.push(&sent, [0; 10]), Ok(Pushed::Done));
            net.sync();
            assert_eq!(device.borrow_mut().receive(), Some(sent));
        }
        let whole = frame(9);
        for cut in [0, 1, 14, 60] {
            let (one, other) = whole.split_at(cut.min(whole.len()));
            let parts = [Span::of(one), Span::of(other)];
            assert_eq!(net.push_gathered(parts.into_iter(), [0; 10]), Ok(Pushed::Done));
            net.sync();
            assert_eq!(device.borrow_mut().receive().as_ref(), Some(&whole));
        }
        let long = [0; 1019];
        let parts = [Span::of(&long), Span::of(&long)];
        assert_eq!(net.push_gathered(parts.into_iter(), [0; 10]), Ok(Pushed::TooLong));
        assert_eq!(net.frame_len(), Ok(None));
        // A device that takes nothing.
        let full = (0..).find(|_| net.push(&[1; 60], [0; 10]) == Ok(Pushed::Full)).unwrap();
        assert_eq!(full, u32::from(SIZE));
        assert_eq!(net.room(1), Ok(0));
        assert_eq!(net.arm_tx(2), Ok(true));
        net.sync();
        assert!(device.borrow_mut().receive().is_some());
        assert_eq!(net.arm_tx(2), Ok(true), "one is not enough");
        assert!(device.borrow_mut().receive().is_some());
        assert_eq!(net.arm_tx(2), Ok(false));
        assert_eq!(net.push(&[1; 2037], [0; 10]), Ok(Pushed::TooLong));
        assert_eq!(net.push(&[1; 60], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Ok(Pushed::TooLong));
        assert!(net.arm_rx());
        assert!(device.borrow_mut().send(&frame(1)));
        assert!(!net.arm_rx() && net.has_frame());
        drop(net);
        assert_eq!(device.borrow().status.get(), 0, "it is reset");
    }
}

#[test]
fn a_device_that_breaks_its_rules_is_noticed() {
    let broken = |breaks: &dyn Fn(&mut Device)| {
        let (device, memory) = (Device::new(), memory());
        let mut net = start(&device, &memory).unwrap();
        breaks(&mut device.borrow_mut());
        net.frame_len()
    };
    assert_eq!(broken(&|device| device.put(0, 16, 60)), Err(LinkError::Queue(QueueError::Descriptor)));
    assert_eq!(broken(&|device| device.put(0, 1 << 16, 60)), Err(LinkError::Queue(QueueError::Descriptor)));
    assert_eq!(broken(&|device| device.put(0, 3, 2049)), Err(LinkError::Length));
    assert_eq!(broken(&|device| device.put(0, 3, u32::MAX)), Err(LinkError::Length));
    assert_eq!(broken(&|device| device.put(0, 3, 11)), Err(LinkError::Length));
    let jump = |device: &mut Device| {
        device.used[0] = 100;
        device.put(0, 3, 60);
    };
    assert_eq!(broken(&jump), Err(LinkError::Queue(QueueError::Index)));
    // A buffer that comes back twice, for sending.
    let (device, memory) = (Device::new(), memory());
    let mut net = start(&device, &memory).unwrap();
    assert_eq!(net.push(&[1; 60], [0; 10]), Ok(Pushed::Done));
    net.sync();
    let (id, ..) = device.borrow_mut().take(1).unwrap();
    (0..2).for_each(|_| device.borrow_mut().put(1, id.into(), 0));
    assert_eq!(net.room(SIZE.into()), Err(LinkError::Queue(QueueError::Descriptor)));
}

#[test]
fn a_device_that_can_not_be_used_is_refused() {
    let refused = |change: &dyn Fn(&mut Device)| {
        let device = Device::new();
        change(&mut device.borrow_mut());
        let error = start(&device, &memory()).map(|_| ()).unwrap_err();
        assert_eq!(device.borrow().status.get() & 128, 128, "the device is told");
        error
    };
    assert_eq!(refused(&|device| device.slow.set(u32::MAX)), DeviceError::Reset);
    assert_eq!(refused(&|device| device.offered = 1 << 5), DeviceError::Legacy);
    assert_eq!(refused(&|device| device.refuses = true), DeviceError::Features(GOOD));
    assert_eq!(refused(&|device| device.largest = 0), DeviceError::Queue(0));
}

/// A size that is not a power of two, or larger than what is used.
#[test]
fn queues_have_a_size_that_their_format_allows() {
    for (largest, size) in [(1, 1), (3, 2), (255, 128), (1024, 256), (32_768, 256)] {
        let device = Device::new();
        device.borrow_mut().largest = largest;
        assert_eq!(start(&device, &memory()).unwrap().tx_slots(), size);
    }
}

/// Registers of `virtio-mmio` that remember what was written.
struct Plain(RefCell<[u32; 128]>);

impl Registers for Plain {
    fn read(&self, offset: u32, width: Width) -> u32 {
        let word = self.0.borrow()[offset as usize / 4];
        if width == Width::Byte { word >> (8 * (offset % 4)) & 0xff } else { word }
    }

    fn write(&self, offset: u32, _: Width, value: u32) {
        self.0.borrow_mut()[offset as usize / 4] = value;
    }
}

#[test]
fn a_device_at_an_address_must_be_a_modern_network_device() {
    let device = |[magic, version, id]: [u32; 3]| {
        let mut words = [0; 128];
        [words[0], words[1], words[2]] = [magic, version, id];
        Mmio::over(Plain(RefCell::new(words)), true).map(|_| ())
    };
    let magic = u32::from_le_bytes(*b"virt");
    assert_eq!(device([magic, 2, 1]), Ok(()));
    assert_eq!(device([u32::MAX, u32::MAX, u32::MAX]), Err(DeviceError::Absent));
    assert_eq!(device([magic, 1, 1]), Err(DeviceError::Legacy));
    assert_eq!(device([magic, 2, 0]), Err(DeviceError::Absent));
    assert_eq!(device([magic, 2, 2]), Err(DeviceError::Type(2)));
}

/// A machine's configuration space: words of some functions.
#[derive(Default)]
struct Space(RefCell<Vec<(Function, [u32; 64])>>);

impl ConfigSpace for Space {
    fn read(&self, function: Function, offset: u8) -> u32 {
        let space = self.0.borrow();
        let found = space.iter().find(|(own, _)| *own == function);
        found.map_or(u32::MAX, |(_, words)| words[usize::from(offset) / 4])
    }

    fn write(&self, function: Function, offset: u8, value: u32) {
        if let Some((_, words)) = self.0.borrow_mut().iter_mut().find(|(own, _)| *own == function) {
            let word = &mut words[usize::from(offset) / 4];
            // The low bits of a BAR, of 4 KB, 16 KB and nothing, and the status beside the command.
            let kept = match offset {
                0x04 => 0xffff_0000,
                0x14 => 0xfff,
                0x20 => 0x3fff,
                0x24 => 0,
                0x10..0x28 => u32::MAX,
                _ => 0,
            };
            *word = *word & kept | value & !kept;
        }
    }
}

const CARD: Function = Function(0, 3, 0);

/// A network device with its capabilities, in a BAR of 64 bits beyond 4 GB, and MSI-X in another.
fn card() -> [u32; 64] {
    let mut words = [0; 64];
    let mut set = |at: usize, value: u32| words[at / 4] = value;
    set(0, 0x1041_1af4);
    set(4, 1 << 20 | 7);
    set(0x14, 0xfebc_0000);
    set(0x20, 0x4 | 0x1000_0000);
    set(0x24, 0x3f);
    set(0x34, 0x40);
    // Common, device, notify, then MSI-X: kind, BAR, offset, length.
    for (at, next, kind, offset, len) in
        [(0x40, 0x50, 1, 0, 0x1000), (0x50, 0x60, 4, 0x2000, 0x1000), (0x60, 0x80, 2, 0x3000, 0x1000)]
    {
        set(at, 9 | next << 8 | 16 << 16 | kind << 24);
        [4, offset, len].into_iter().enumerate().for_each(|(word, value)| set(at + 4 + 4 * word, value));
    }
    set(0x70, 4);
    set(0x80, 0x11);
    set(0x84, 0x800 | 1);
    words
}

#[test]
fn network_devices_are_found_behind_bridges_and_bridges_in_circles_end() {
    let bridge = |below: u32| {
        let mut words = [0; 64];
        [words[0], words[3], words[6]] = [0x000c_1b36, 1 << 16, below << 8];
        words
    };
    let mut other = card();
    other[0] = 0x1042_1af4;
    let mut several = card();
    several[3] = 1 << 23;
    let mut transitional = card();
    transitional[0] = 0x1000_1af4;
    let space = Space(RefCell::new(
        [
            (Function(0, 1, 0), bridge(7)),
            (Function(7, 0, 0), card()),
            (Function(7, 1, 0), bridge(7)),
            (Function(7, 2, 0), bridge(0)),
            (Function(0, 2, 0), other),
            (Function(0, 4, 0), several),
            (Function(0, 4, 5), transitional),
            (Function(0, 5, 1), card()),
        ]
        .into(),
    ));
    let found = [Function(0, 4, 0), Function(0, 4, 5), Function(7, 0, 0)];
    assert_eq!(functions(&space), found);
    assert_eq!(functions(&Space::default()), []);
}

#[test]
fn capabilities_describe_a_device_or_are_refused() {
    let read = |change: &dyn Fn(&mut [u32; 64])| {
        let mut words = card();
        change(&mut words);
        Found::read(&Space(RefCell::new([(CARD, words)].into())), CARD)
    };
    let found = read(&|_| ()).unwrap();
    assert_eq!((found.common.address, found.common.len), (0x3f_1000_0000, 0x1000));
    assert_eq!((found.device.address, found.notify.address), (0x3f_1000_2000, 0x3f_1000_3000));
    assert_eq!((found.multiplier, found.vectors.unwrap().address), (4, 0xfebc_0800));
    assert_eq!(read(&|words| words[1] = 0), Err(PciError::Device(DeviceError::Legacy)));
    // A list in a circle, an empty one, one beyond the space.
    assert!(read(&|words| words[0x20] |= 0x40 << 8).is_ok());
    for first in [0, 0x44, 0xfc, 0x3c] {
        assert_eq!(
            read(&|words| words[0xd] = first),
            Err(PciError::Device(DeviceError::Legacy)),
            "{first:#x}"
        );
    }
    // No address, an I/O port, no such BAR, beyond all addresses.
    assert_eq!(read(&|words| (words[8], words[9]) = (4, 0)), Err(PciError::Unassigned(4)));
    assert_eq!(read(&|words| words[8] = 0xc001), Err(PciError::Unassigned(4)));
    assert_eq!(read(&|words| words[0x11] = 6), Err(PciError::Unassigned(6)));
    assert_eq!(read(&|words| (words[8], words[9]) = (0xffff_fff4, u32::MAX)), Err(PciError::Unassigned(4)));
    assert_eq!(read(&|words| words[0x12] = 2), Err(PciError::Capability(0x40)));
    // MSI-X can be missing.
    assert_eq!(read(&|words| words[5] = 0).unwrap().vectors, None);
    // A capability beyond its BAR of 16 KB, and a table beyond its one of 4 KB; a BAR without a size.
    assert_eq!(read(&|words| words[0x13] = 0x4001), Err(PciError::Beyond(4)));
    assert_eq!(read(&|words| words[0x16] = 0xffff_fffc), Err(PciError::Beyond(4)));
    assert_eq!(read(&|words| words[0x1b] = 0x1001), Err(PciError::Beyond(4)));
    assert_eq!(read(&|words| words[0x21] = 0x1000 | 1).unwrap().vectors, None);
    assert_eq!(read(&|words| words[0x11] = 2), Err(PciError::Unassigned(2)));
    // Too short to be one.
    assert_eq!(read(&|words| words[0x13] = 55), Err(PciError::Device(DeviceError::Legacy)));
}

#[test]
fn a_bar_s_address_stays_and_a_vector_is_on_only_if_the_device_says_so() {
    let space = Space(RefCell::new([(CARD, card())].into()));
    let found = Found::read(&space, CARD).unwrap();
    assert_eq!(space.0.borrow()[0].1, card());
    let message = || Some((0xfee0_0000, 0x41, Region::private(0, 0, 16)));
    assert!(found.enable(&space, CARD, message()));
    assert_eq!(space.0.borrow()[0].1[0x20] >> 30, 2, "enabled, and not masked");
    assert!(!found.enable(&space, CARD, None));
    // Configuration space that takes nothing.
    struct Fixed(Space);
    impl ConfigSpace for Fixed {
        fn read(&self, function: Function, offset: u8) -> u32 {
            self.0.read(function, offset)
        }
        fn write(&self, _: Function, _: u8, _: u32) {}
    }
    let fixed = Fixed(Space(RefCell::new([(CARD, card())].into())));
    assert!(!found.enable(&fixed, CARD, message()));
}
