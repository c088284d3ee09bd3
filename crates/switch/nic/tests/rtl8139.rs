//! An RTL8139C+ and a driver that does what Linux's 8139cp does.

use proptest::prelude::*;
use ringway_frame::{Burst, CountersRef, Needs, Offload, Reason, Storage};
use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory, Region, Span};
use ringway_nic::csb;
use ringway_nic::rtl8139::{MODEL, Nic, RxEngine, Shared, TxEngine, registers as reg};
use ringway_nic::{Area, Bus, Chip, Host, Raise, Receive, Settings, Techniques, Transmit};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// Guest-physical addresses: two regions that touch, rings, buffers of 2 KB each, statistics.
const BASE: u64 = 0x10_0000;
const LEN: u64 = 0x4_0000;
const RX_RING: u64 = BASE;
const TX_RING: u64 = BASE + 0x400;
const STATS: u64 = BASE + 0x1000;
const TX_BUFFERS: u64 = BASE + 0x1_0000;
/// The 16th buffer is the first of the second region.
const RX_BUFFERS: u64 = BASE + 0x3_8000;
const RING: u64 = 64;

const OWN: u32 = 1 << 31;
const EOR: u32 = 1 << 30;
const FIRST: u32 = 1 << 29;
const LAST: u32 = 1 << 28;
const TSO: u32 = 1 << 27;
const IPCS: u32 = 1 << 18;
const UDPCS: u32 = 1 << 17;
const TCPCS: u32 = 1 << 16;
const MASK: u32 = 0x80ff;
/// RCR of an interface that is up: own address, groups, broadcast.
const RCR: u32 = 0xe70e;

fn region(guest: u64) -> Region {
    let file = memfd("nic-test", LEN as usize).expect("memfd");
    Arc::new(Mapping::shared(&file, 0, LEN as usize).expect("a mapping")).region_at(guest, guest)
}

struct Machine {
    nic: Nic,
    shared: Arc<Shared>,
    memory: Arc<Memory>,
    whole: Arc<Memory>,
    tx: TxEngine,
    rx: RxEngine,
    counters: CountersRef,
    now: u64,
    interrupts: u64,
    kicks: u64,
    tx_next: u64,
    rx_next: u64,
}

impl Machine {
    fn new() -> Machine {
        Machine::with(Techniques::default())
    }

    fn with(techniques: Techniques) -> Machine {
        let memory = Arc::new(Memory::new(vec![region(BASE), region(BASE + LEN)]).expect("two regions"));
        let settings = Settings { model: &MODEL, mac: MAC, techniques, link: true, pages: None };
        let nic = Nic::new(settings).expect("a NIC");
        let counters = CountersRef::private();
        let (tx, rx) = Nic::engines(&counters);
        Machine {
            shared: nic.shared().clone(),
            nic,
            whole: memory.clone(),
            memory,
            tx,
            rx,
            counters,
            now: 1_000_000,
            interrupts: 0,
            kicks: 0,
            tx_next: 0,
            rx_next: 0,
        }
    }

    /// A machine whose driver is up.
    fn up() -> Machine {
        let mut machine = Machine::new();
        machine.write_at(Area::Config, 4, &[7, 0]);
        machine.start();
        machine
    }

    /// Resets the chip, sets the rings up, and enables interrupts, in the driver's order.
    fn start(&mut self) {
        self.write(reg::CR, 1, 0x10);
        assert_eq!(self.read(reg::CR, 1) & 0x10, 0, "the reset has ended");
        self.write(reg::CR9346, 1, 0xc0);
        self.write(reg::IDR, 4, u32::from_le_bytes([MAC[0], MAC[1], MAC[2], MAC[3]]));
        self.write(reg::IDR + 4, 4, u32::from_le_bytes([MAC[4], MAC[5], 0, 0]));
        for index in 0..RING {
            let end = if index + 1 == RING { EOR } else { 0 };
            self.words(RX_RING + 16 * index, [OWN | end | 1536, 0]);
            self.poke(RX_RING + 16 * index + 8, &(RX_BUFFERS + 0x800 * index).to_le_bytes());
            self.words(TX_RING + 16 * index, [end, 0]);
        }
        (self.tx_next, self.rx_next) = (0, 0);
        self.write(reg::CPCR, 2, 0x2b);
        for (register, value) in [(reg::RDSAR, RX_RING), (reg::TNPDS, TX_RING)] {
            self.write(register, 4, value as u32);
            self.write(register + 4, 4, (value >> 32) as u32);
        }
        self.write(reg::CR, 1, 0x0c);
        self.write(reg::RCR, 4, RCR);
        self.write(reg::MAR, 4, 0);
        self.write(reg::MAR + 4, 4, 0);
        self.write(reg::CR9346, 1, 0);
        self.write(reg::IMR, 2, MASK);
    }

    fn write_at(&mut self, area: Area, at: u64, data: &[u8]) {
        let mut host = Host { now: self.now, quiesce: &mut || (), memory: &self.memory };
        let effects = self.nic.write(area, at, data, &mut host);
        self.kicks += u64::from(effects.kick);
        self.raised(effects.raise);
    }

    fn write(&mut self, register: u32, len: usize, value: u32) {
        self.write_at(Area::Bar(1), register.into(), &value.to_le_bytes()[..len]);
    }

    fn read(&mut self, register: u32, len: usize) -> u32 {
        let mut out = [0; 4];
        self.nic.read(Area::Bar(1), register.into(), &mut out[..len]);
        u32::from_le_bytes(out)
    }

    fn raised(&mut self, raise: Raise) {
        self.interrupts += raise.vectors().count() as u64;
    }

    fn poke(&self, at: u64, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let span = self.whole.span_mut(at + index as u64, 1, &mut Hint::default()).expect("in memory");
            span.write(&[*byte]);
        }
    }

    fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let byte = |index: usize| {
            let span = self.whole.span(at + index as u64, 1, &mut Hint::default()).expect("in memory");
            span.read_array::<1>().expect("a byte")[0]
        };
        (0..len).map(byte).collect()
    }

    fn words(&self, at: u64, [first, second]: [u32; 2]) {
        self.poke(at, &(u64::from(second) << 32 | u64::from(first)).to_le_bytes());
    }

    fn descriptor(&self, at: u64) -> [u32; 2] {
        [0, 4].map(|half| u32::from_le_bytes(self.peek(at + half, 4).try_into().expect("four bytes")))
    }

    /// Gives a frame away in pieces of `size`, and rings.
    fn send(&mut self, frame: &[u8], size: usize, options: [u32; 2]) {
        let buffer = TX_BUFFERS + 0x800 * self.tx_next;
        self.poke(buffer, frame);
        let count = frame.len().div_ceil(size);
        for (number, piece) in frame.chunks(size).enumerate() {
            let at = TX_RING + 16 * self.tx_next;
            self.poke(at + 8, &(buffer + (number * size) as u64).to_le_bytes());
            let end = if self.tx_next + 1 == RING { EOR } else { 0 };
            let first = if number == 0 { FIRST } else { 0 };
            let last = if number + 1 == count { LAST } else { 0 };
            self.words(at, [OWN | end | first | last | options[0] | piece.len() as u32, options[1]]);
            self.tx_next = (self.tx_next + 1) % RING;
        }
        self.write(reg::TPPOLL, 1, 0x40);
    }

    /// A worker's turn: takes a burst, and releases its first frames.
    fn take(&mut self, release: usize) -> Vec<(Vec<u8>, Offload)> {
        let (shared, memory) = (self.shared.clone(), self.memory.clone());
        let bus = Bus { shared: &*shared, memory: &memory, now: self.now };
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        let raise = self.tx.take(&bus, &mut burst);
        self.raised(raise);
        let frames = (0..burst.len()).map(|index| {
            let mut bytes = vec![0; burst.meta(index).len as usize];
            burst.read(index, 0, &mut bytes);
            (bytes, burst.meta(index).offload)
        });
        let frames = frames.collect();
        let raise = self.tx.release(&bus, burst.len().min(release));
        self.raised(raise);
        frames
    }

    fn arm(&mut self) -> bool {
        let (shared, memory) = (self.shared.clone(), self.memory.clone());
        self.tx.arm(&Bus { shared: &*shared, memory: &memory, now: self.now })
    }

    /// Delivers frames; returns how many had room, and how many were dropped by the NIC.
    fn deliver(&mut self, frames: &[(&[u8], Offload)]) -> (usize, u64) {
        let (shared, memory) = (self.shared.clone(), self.memory.clone());
        let bus = Bus { shared: &*shared, memory: &memory, now: self.now };
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        // A burst ends at 256 KB.
        let _ = frames.iter().try_for_each(|(frame, offload)| burst.push(*offload, Span::of(frame)));
        let which: Vec<u16> = (0..burst.len() as u16).collect();
        let (count, raise) = self.rx.reserve(&bus, &burst, &which);
        self.raised(raise);
        let (lost, raise) = self.rx.put(&bus, &burst, &which[..count]);
        self.raised(raise);
        let raise = self.rx.publish(&bus);
        self.raised(raise);
        let raise = self.rx.end_turn(&bus);
        self.raised(raise);
        (count, lost.frames)
    }

    fn receive(&mut self, frame: &[u8]) -> (usize, u64) {
        self.deliver(&[(frame, Offload::default())])
    }

    /// What the driver finds in its receive ring: bytes, both words. Buffers are posted again.
    fn poll(&mut self) -> Vec<(Vec<u8>, [u32; 2])> {
        let mut frames = Vec::new();
        loop {
            let at = RX_RING + 16 * self.rx_next;
            let words = self.descriptor(at);
            if words[0] & OWN != 0 {
                return frames;
            }
            let len = (words[0] & 0x1fff).saturating_sub(4) as usize;
            let bytes = self.peek(RX_BUFFERS + 0x800 * self.rx_next, len);
            frames.push((bytes, words));
            self.words(at, [OWN | words[0] & EOR | 1536, 0]);
            self.rx_next = (self.rx_next + 1) % RING;
        }
    }

    /// Reads a word of the EEPROM bit by bit, as the driver does.
    fn eeprom(&mut self, word: u32) -> u32 {
        let clock = |machine: &mut Machine, data: u32| {
            machine.write(reg::CR9346, 1, 0x88 | data << 1);
            machine.write(reg::CR9346, 1, 0x8c | data << 1);
            let out = machine.read(reg::CR9346, 1) & 1;
            machine.write(reg::CR9346, 1, 0x88);
            out
        };
        self.write(reg::CR9346, 1, 0x80);
        for bit in (0..9).rev() {
            clock(self, (6 << 6 | word) >> bit & 1);
        }
        let value = (0..16).fold(0, |value, _| value << 1 | clock(self, 0));
        self.write(reg::CR9346, 1, 0);
        value
    }
}

fn frame(len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|at| at as u8).collect();
    frame[..14].copy_from_slice(&[0x52, 0x54, 0, 0x12, 0x34, 0x56, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame
}

/// A TCP or UDP packet over IPv4, with wrong sums in its headers.
fn packet(protocol: u8, len: usize) -> Vec<u8> {
    let mut frame = frame(len);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34]
        .copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0xaa, 0xbb, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame[46] = 0x50;
    frame[47] = 0x10;
    frame
}

fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) as u16 + (sum >> 16) as u16
}

#[test]
fn a_driver_finds_the_device_its_address_and_its_phy() {
    let mut machine = Machine::new();
    let mut config = [0; 16];
    machine.nic.read(Area::Config, 0, &mut config);
    assert_eq!(config[..4], [0xec, 0x10, 0x39, 0x81]);
    assert_eq!((config[8], &config[9..12]), (0x20, &[0, 0, 2][..]));
    assert_eq!([0, 7, 8, 9].map(|word| machine.eeprom(word)), [0x8129, 0x5452, 0x1200, 0x5634]);
    assert_eq!(machine.read(reg::IDR, 4).to_le_bytes(), MAC[..4]);
    assert_eq!(machine.read(reg::BMSR, 2) & 0x24, 0x24, "the link is up, negotiated");
    machine.write(reg::IMR, 2, 0x20);
    let effects = machine.nic.set_link(false, 0);
    machine.raised(effects.raise);
    assert_eq!((machine.read(reg::BMSR, 2) & 0x24, machine.read(reg::ISR, 2)), (0, 0x20));
    assert!(machine.nic.level() && machine.interrupts == 1);
    machine.write(reg::ISR, 2, 0x20);
    assert!(!machine.nic.level());
    machine.write(reg::TPPOLL, 1, 1);
    assert_eq!(machine.read(reg::ISR, 2), 0x100, "the software interrupt");
}

#[test]
fn the_register_table_is_as_agreed() {
    let mut machine = Machine::new();
    let mut text = String::new();
    for row in reg::ALL {
        let mut value = [0; 8];
        machine.nic.read(Area::Bar(0), row.offset.into(), &mut value[..row.len as usize]);
        let (name, access, value) = (row.name, row.access, u64::from_le_bytes(value));
        writeln!(text, "{:#04x} x{} {name:<8} {access:?} {value:#x}", row.offset, row.len).expect("a line");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/registers/rtl8139.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("writable");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{} differs; BLESS=1 writes it:\n{text}", path.display());
}

#[test]
fn accesses_of_any_size_and_alignment_reach_their_bytes() {
    let mut machine = Machine::new();
    machine.write_at(Area::Bar(0), 6, &[9, 9, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut out = [0xff; 4];
    machine.nic.read(Area::Bar(1), 0x0d, &mut out);
    assert_eq!(out, [6, 7, 8, 0]);
    machine.write(reg::MAR + 3, 1, 0xaa);
    assert_eq!((machine.read(reg::MAR, 4), machine.read(reg::MAR + 4, 4)), (0xaa03_0201, 0x0807_0605));
    // Configuration registers are locked.
    machine.write(reg::CONFIG3, 1, 0x40);
    assert_eq!(machine.read(reg::CONFIG3, 1), 0);
    machine.write(reg::CR9346, 1, 0xc0);
    machine.write(reg::CONFIG3, 1, 0x40);
    assert_eq!(machine.read(reg::CONFIG3, 1), 0x40);
    machine.write(reg::TCR, 4, u32::MAX);
    assert_eq!(machine.read(reg::TCR, 4) & 0x7cc0_0000, 0x7480_0000, "the version stays");
    for (area, at) in
        [(Area::Bar(1), 0xfe), (Area::Bar(0), u64::MAX), (Area::Bar(3), 0), (Area::Config, 0xfe)]
    {
        machine.write_at(area, at, &[0xff; 8]);
        machine.nic.read(area, at, &mut out);
    }
    let names: Vec<_> = machine.nic.accesses().iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, ["MAR", "DTCCR", "TCR", "CR9346", "CONFIG3", "unknown"]);
}

#[test]
fn frames_are_sent_whole_and_their_descriptors_returned() {
    let mut machine = Machine::up();
    for round in 0..50 {
        machine.send(&frame(60 + round), 4096, [0; 2]);
        machine.send(&frame(1000), 400, [0; 2]);
        let sent = machine.take(9);
        assert_eq!([&sent[0].0, &sent[1].0], [&frame(60 + round), &frame(1000)]);
    }
    assert_eq!(machine.kicks, 101, "the start, and each frame");
    assert_eq!((machine.read(reg::ISR, 2), machine.interrupts), (0x84, 1), "it was told");
    let statuses = (0..RING).map(|index| machine.descriptor(TX_RING + 16 * index)[0] >> 16);
    assert!(statuses.into_iter().all(|status| status & !0x7000 == 0));
    // A frame that isn't released is taken again; one without an end is waited for.
    machine.send(&frame(61), 4096, [0; 2]);
    assert_eq!((machine.take(0).len(), machine.take(1).len(), machine.take(1).len()), (1, 1, 0));
    assert!(machine.arm());
    machine.words(TX_RING + 16 * machine.tx_next, [OWN | FIRST | 60, 0]);
    assert!(!machine.arm());
    assert_eq!(machine.take(1).len(), 0);
    assert!(machine.arm(), "the rest of the frame is not there");
}

#[test]
fn sums_are_computed_whatever_the_driver_left() {
    let mut machine = Machine::up();
    for (protocol, options, field) in [(6, IPCS | TCPCS, 16), (17, IPCS | UDPCS, 6)] {
        machine.send(&packet(protocol, 100), 40, [options, 0]);
        let (bytes, offload) = machine.take(1).remove(0);
        assert_eq!(sum(&bytes[14..34]), 0xffff, "the IP header's");
        assert_eq!((offload.csum_start, offload.csum_offset), (34, field));
        let pseudo = [&bytes[26..34], &[0, protocol, 0, 66]].concat();
        let field = 34 + usize::from(field);
        assert_eq!(bytes[field..field + 2], sum(&pseudo).to_be_bytes());
        assert!(offload.needs_checksum());
    }
    // Another protocol, or no IP: nothing is done.
    machine.send(&packet(6, 100), 40, [UDPCS, 0]);
    machine.send(&frame(100), 40, [IPCS | UDPCS, 0]);
    assert!(machine.take(2).iter().all(|(_, offload)| offload.needs().is_empty()));
    // A tag is inserted, and moves the checksum.
    machine.send(&packet(17, 100), 4096, [IPCS | UDPCS, 1 << 17 | 0x2301]);
    let (bytes, offload) = machine.take(1).remove(0);
    assert_eq!((bytes.len(), &bytes[12..18]), (104, &[0x81, 0, 0x01, 0x23, 8, 0][..]));
    assert_eq!(offload.csum_start, 38);
}

#[test]
fn segmentation_is_left_to_the_receiver() {
    let mut machine = Machine::up();
    let mut large = packet(6, 1800);
    large[16..18].fill(0);
    machine.send(&large, 900, [TSO | 500 << 16, 0]);
    let (bytes, offload) = machine.take(1).remove(0);
    assert_eq!((bytes.len(), &bytes[16..18]), (1800, &1786_u16.to_be_bytes()[..]));
    assert_eq!((offload.gso_type, offload.gso_size, offload.hdr_len), (1, 500, 54));
    assert!(!offload.needs().is_empty());
    // A short one needs a checksum only; one that is not TCP is dropped.
    machine.send(&packet(6, 200), 900, [TSO | 500 << 16, 0]);
    assert_eq!(machine.take(1)[0].1.gso_type, 0);
    machine.send(&packet(17, 1800), 900, [TSO | 500 << 16, 0]);
    assert_eq!(machine.take(1), []);
    assert_eq!(machine.read(reg::ISR, 2) & 8, 8, "a transmit error");
}

#[test]
fn frames_are_received_with_their_kind_and_length() {
    let mut machine = Machine::up();
    let mut broadcast = frame(42);
    broadcast[..6].fill(0xff);
    assert_eq!(
        machine.deliver(&[(&frame(100), Offload::default()), (&broadcast, Offload::default())]),
        (2, 0)
    );
    let received = machine.poll();
    assert_eq!((&received[0].0, received[0].1[0] & 0x3f00_1fff), (&frame(100), FIRST | LAST | 1 << 25 | 104));
    assert_eq!((received[1].0.len(), received[1].1[0] >> 24 & 7), (60, 1), "padded");
    assert_eq!((machine.read(reg::ISR, 2), machine.interrupts), (1, 1));
    // A checksum that is known to be right is reported; others are not.
    let checked = Offload { flags: 2, ..Offload::default() };
    assert!(checked.is_checked());
    machine.deliver(&[
        (&packet(6, 100), checked),
        (&packet(17, 100), checked),
        (&packet(6, 100), Offload::default()),
    ]);
    let kinds: Vec<_> = machine.poll().iter().map(|(_, words)| words[0] >> 16 & 3).collect();
    assert_eq!(kinds, [1, 2, 0]);
    // Tags are removed if the driver says so.
    machine.write(reg::CPCR, 2, 0x6b);
    let mut tagged = frame(100);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0x01, 0x23]);
    machine.receive(&tagged);
    let (bytes, words) = machine.poll().remove(0);
    assert_eq!((bytes.len(), words[1]), (96, 1 << 16 | 0x2301));
    assert_eq!(machine.receive(&[2; 60]), (1, 1), "not for us");
    assert_eq!(machine.poll(), []);
}

#[test]
fn a_long_frame_fills_several_buffers_and_a_full_ring_waits() {
    let mut machine = Machine::up();
    let long = frame(4000);
    assert_eq!(machine.receive(&long), (1, 0));
    let received = machine.poll();
    let ends: Vec<_> = received.iter().map(|(_, words)| words[0] & (FIRST | LAST)).collect();
    assert_eq!((ends, received[2].1[0] & 0x1fff), (vec![FIRST, 0, LAST], 4004));
    let parts = [0, 1, 2].map(|index| machine.peek(RX_BUFFERS + 0x800 * index, 1536)).concat();
    assert_eq!(parts[..4000], long);
    let full = frame(64);
    let one = [(&full[..], Offload::default()); 40];
    assert_eq!((machine.deliver(&one), machine.deliver(&one)), ((40, 0), (24, 0)));
    assert_eq!(machine.read(reg::ISR, 2), 0x11, "no descriptor is left");
    machine.write(reg::ISR, 2, 0xffff);
    assert_eq!((machine.receive(&full), machine.read(reg::ISR, 2)), ((0, 0), 0), "it was told");
    assert_eq!((machine.poll().len(), machine.receive(&full)), (64, (1, 0)));
}

#[test]
fn statistics_are_written_to_memory() {
    let mut machine = Machine::up();
    machine.send(&frame(60), 4096, [0; 2]);
    machine.take(1);
    let mut group = frame(60);
    group[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    machine.write(reg::MAR, 4, 1 << 31);
    machine.deliver(&[(&frame(60), Offload::default()), (&group, Offload::default())]);
    machine.write(reg::DTCCR + 4, 4, 0);
    machine.write(reg::DTCCR, 4, STATS as u32 | 8);
    assert_eq!(machine.read(reg::DTCCR, 4), STATS as u32);
    let words = machine.peek(STATS, 64);
    assert_eq!([words[0], words[8], words[40], words[56]], [1, 2, 1, 1]);
    // Outside memory, nothing happens.
    machine.write(reg::DTCCR, 4, 8);
}

#[test]
fn techniques_hold_interrupts_and_doorbells() {
    let mut machine = Machine::up();
    let techniques = Techniques { moderate: 50_000, combine: 10_000, ..Techniques::default() };
    machine.nic.set_techniques(techniques, 0);
    for _ in 0..3 {
        machine.send(&frame(60), 4096, [0; 2]);
        machine.take(1);
        machine.write(reg::ISR, 2, 0xffff);
    }
    assert_eq!((machine.interrupts, machine.tx.next_due()), (1, Some(machine.now + 50_000)));
    // The worker looks soon anyway.
    machine.now += 45_000;
    let kicks = machine.kicks;
    machine.send(&frame(60), 4096, [0; 2]);
    assert_eq!(machine.kicks, kicks);
    machine.now += 5_000;
    assert_eq!((machine.take(1).len(), machine.interrupts), (1, 2));
}

/// One thing that a guest, the fabric or the time does.
#[derive(Clone, Debug)]
enum Step {
    Write(u32, usize, u32),
    Access(u8, u32, Vec<u8>),
    Read(u8, u32, usize),
    Descriptor(u64, u32, u32, u64),
    Take(usize),
    Deliver(usize, usize),
    Pass(u32),
    Link(bool),
    Techniques(u8),
    Unmap,
}

fn step() -> impl Strategy<Value = Step> {
    let registers = vec![
        reg::CR,
        reg::CPCR,
        reg::TNPDS,
        reg::RDSAR,
        reg::RDSAR + 4,
        reg::DTCCR,
        reg::TPPOLL,
        reg::IMR,
        reg::ISR,
    ];
    let value = prop_oneof![
        any::<u32>(),
        0u32..0x100,
        (0u32..0x800).prop_map(|at| BASE as u32 + 0x100 * at),
        Just(0x0c),
        Just(0x2b)
    ];
    let address = prop_oneof![any::<u64>(), BASE - 16..BASE + 2 * LEN, Just(BASE + LEN - 30)];
    let word = prop_oneof![
        any::<u32>(),
        (any::<u32>(), 0u32..4000).prop_map(|(bits, len)| bits & 0xfff0_0000 | OWN | len),
        (0u32..2000).prop_map(|len| OWN | FIRST | LAST | len),
    ];
    prop_oneof![
        5 => (prop::sample::select(registers), 1usize..5, value)
            .prop_map(|(at, len, value)| Step::Write(at, len, value)),
        1 => (0u8..7, 0..0x110u32, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(bar, at, data)| Step::Access(bar, at, data)),
        1 => (0u8..7, 0..0x110u32, 0usize..40).prop_map(|(bar, at, len)| Step::Read(bar, at, len)),
        8 => (0u64..128, word, any::<u32>(), address)
            .prop_map(|(at, a, b, address)| Step::Descriptor(at, a, b, address)),
        4 => (0usize..70).prop_map(Step::Take),
        4 => (1usize..65, 14usize..8200).prop_map(|(count, len)| Step::Deliver(count, len)),
        1 => (0u32..1_000_000).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Link),
        1 => any::<u8>().prop_map(Step::Techniques),
        1 => Just(Step::Unmap),
    ]
}

fn run(machine: &mut Machine, step: &Step) {
    let area = |bar: u8| if bar == 6 { Area::Config } else { Area::Bar(bar) };
    match step {
        Step::Write(at, len, value) => machine.write(*at, *len, *value),
        Step::Access(bar, at, data) => machine.write_at(area(*bar), (*at).into(), data),
        Step::Read(bar, at, len) => machine.nic.read(area(*bar), (*at).into(), &mut vec![0; *len]),
        Step::Descriptor(at, first, second, address) => {
            machine.words(BASE + 16 * at, [*first, *second]);
            machine.poke(BASE + 16 * at + 8, &address.to_le_bytes());
        }
        Step::Take(release) => {
            let sent = machine.take(*release);
            assert!(sent.len() <= 64);
            for (bytes, offload) in sent {
                assert!(offload.check(bytes.len() as u32, Needs::ALL).is_ok());
            }
            machine.arm();
        }
        Step::Deliver(count, len) => {
            let bytes = frame(*len);
            let (taken, lost) = machine.deliver(&vec![(&bytes[..], Offload::default()); *count]);
            assert!(taken <= *count && lost <= taken as u64);
        }
        Step::Pass(time) => machine.now += u64::from(*time),
        Step::Link(link) => drop(machine.nic.set_link(*link, machine.now)),
        Step::Techniques(bits) => {
            let on = |bit: u8| bits >> bit & 1 != 0;
            let techniques = Techniques {
                moderate: if on(0) { 50_000 } else { 0 },
                combine: if on(1) { 10_000 } else { 0 },
                batch: on(2),
                cached: on(3),
                ..Techniques::default()
            };
            machine.nic.set_techniques(techniques, machine.now);
        }
        Step::Unmap => {
            let part = || Arc::new(Memory::new(machine.whole.regions()[1..].to_vec()).expect("one region"));
            machine.memory = if machine.memory.regions().len() == 2 { part() } else { machine.whole.clone() };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// A guest that writes anything anywhere: the model never panics, touches nothing outside the guest's memory (which
    /// has guard pages), and works again after a reset.
    #[test]
    fn any_script_leaves_the_model_usable(steps in prop::collection::vec(step(), 1..200)) {
        let mut machine = Machine::up();
        for step in &steps {
            run(&mut machine, step);
        }
        machine.memory = machine.whole.clone();
        machine.nic.set_techniques(Techniques::default(), machine.now);
        let _ = machine.nic.set_link(true, machine.now);
        machine.write_at(Area::Config, 4, &[7, 0]);
        machine.start();
        machine.send(&frame(99), 4096, [0; 2]);
        prop_assert_eq!(machine.take(1), [(frame(99), Offload::default())]);
        prop_assert_eq!(machine.receive(&frame(60)), (1, 0));
        prop_assert_eq!(machine.poll().len(), 1);
    }
}

#[test]
fn a_ring_of_descriptors_without_an_end_is_bounded_work() {
    let mut machine = Machine::up();
    for index in 0..RING {
        machine.poke(TX_RING + 16 * index + 8, &TX_BUFFERS.to_le_bytes());
        machine.words(TX_RING + 16 * index, [OWN | FIRST | 20, 0]);
    }
    assert_eq!(machine.take(1), []);
    assert_eq!(machine.take(1), []);
    assert_eq!(machine.descriptor(TX_RING)[0] & OWN, 0, "it was returned");
    let drops = &machine.counters.tx_drops[Reason::BadDescriptor as usize];
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

/// Where the shared block is.
const BLOCK: u64 = BASE + 0x2000;

/// A machine whose driver is up and uses a shared block.
fn sharing(techniques: Techniques) -> Machine {
    let mut machine = Machine::with(Techniques { csb: true, ..techniques });
    machine.write_at(Area::Config, 4, &[7, 0]);
    machine.start();
    machine.set(csb::GUEST_CSB_ON, 1);
    machine.write(reg::CSBA + 4, 4, (BLOCK >> 32) as u32);
    machine.write(reg::CSBA, 4, BLOCK as u32);
    machine
}

impl Machine {
    fn set(&self, word: usize, value: u32) {
        self.poke(BLOCK + 4 * word as u64, &value.to_le_bytes());
    }

    fn get(&self, word: usize) -> u32 {
        u32::from_le_bytes(self.peek(BLOCK + 4 * word as u64, 4).try_into().expect("four bytes"))
    }
}

#[test]
fn a_shared_block_says_whether_to_ring() {
    let mut machine = sharing(Techniques::default());
    let mut subsystem = [0; 2];
    machine.nic.read(Area::Config, 0x2e, &mut subsystem);
    assert_eq!(u16::from_le_bytes(subsystem), csb::SUBSYSTEM);
    assert!(machine.take(0).is_empty() && machine.arm());
    assert_eq!(machine.get(csb::HOST_NEED_TXKICK), 1);
    let kicks = machine.kicks;
    machine.write(reg::CSBTXKICK, 4, 7);
    assert_eq!((machine.kicks, machine.nic.doorbells()[0]), (kicks + 1, 1));
    machine.send(&[3; 60], 60, [0; 2]);
    assert!(!machine.arm(), "there is a frame");
    assert_eq!(machine.get(csb::HOST_NEED_TXKICK), 0);
    assert_eq!(machine.take(1).len(), 1);
    assert_eq!(machine.get(csb::HOST_TDH), 1);
}

#[test]
fn a_request_in_the_block_has_one_interrupt_that_nobody_clears() {
    let mut machine = sharing(Techniques::default());
    let frame = |number: u8| [&MAC[..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5], &[number; 46]].concat();
    let before = machine.interrupts;
    machine.receive(&frame(0));
    assert_eq!((machine.interrupts - before, machine.poll().len()), (0, 1), "nobody asked");
    for request in 1..4 {
        machine.set(csb::GUEST_NEED_RXKICK, 1);
        machine.set(csb::GUEST_REQUEST, request);
        for _ in 0..3 {
            machine.receive(&frame(1));
        }
        assert_eq!((machine.interrupts - before, machine.poll().len()), (request.into(), 3));
        assert_eq!((machine.get(csb::HOST_ANSWERED), machine.get(csb::HOST_ISR)), (request, 1));
        // The pin is not asserted: an unmasking does not repeat it.
        assert!(!machine.nic.level() && machine.read(reg::ISR, 2) == 0);
    }
    assert_eq!(machine.get(csb::HOST_RDH), 10);
    machine.set(csb::GUEST_NEED_TXKICK, 1);
    machine.set(csb::GUEST_REQUEST, 9);
    machine.send(&frame(2), 60, [0; 2]);
    machine.take(1);
    assert_eq!((machine.interrupts - before, machine.get(csb::HOST_ANSWERED)), (4, 9));
}

#[test]
fn a_block_ends_with_a_reset_and_may_lie_anywhere() {
    let mut machine = sharing(Techniques::default());
    let frame = [&MAC[..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5], &[1; 46]].concat();
    for address in [0, 3, BASE + 2 * LEN - 64, u64::MAX] {
        machine.write(reg::CSBA + 4, 4, (address >> 32) as u32);
        machine.write(reg::CSBA, 4, address as u32);
        let before = machine.interrupts;
        machine.write(reg::ISR, 2, 0xffff);
        machine.receive(&frame);
        assert_eq!(machine.interrupts - before, 1, "attack: {address:#x} is no block; registers are used");
        assert_eq!(machine.poll().len(), 1);
    }
    machine.write(reg::CSBA + 4, 4, 0);
    machine.write(reg::CSBA, 4, BLOCK as u32);
    let before = machine.interrupts;
    machine.receive(&frame);
    assert_eq!((machine.interrupts - before, machine.poll().len()), (0, 1), "nobody asked in the block");
    machine.start();
    assert_eq!((machine.read(reg::CSBA, 4), machine.read(reg::CSBA + 4, 4)), (0, 0));
    let before = machine.interrupts;
    machine.receive(&frame);
    assert_eq!(machine.interrupts - before, 1);
    // Without the technique an address is not taken over.
    let mut machine = Machine::up();
    machine.set(csb::GUEST_CSB_ON, 1);
    machine.write(reg::CSBA, 4, BLOCK as u32);
    let before = machine.interrupts;
    machine.receive(&frame);
    assert_eq!(machine.interrupts - before, 1);
}
