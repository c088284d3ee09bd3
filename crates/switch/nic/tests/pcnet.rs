//! An Am79C970A and a driver that does what Linux's pcnet32 does.

use proptest::prelude::*;
use ringway_frame::{Burst, CountersRef, Offload, Storage};
use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory, Region, Span};
use ringway_nic::pcnet::registers::{self as reg, File};
use ringway_nic::pcnet::{MODEL, Nic, RxEngine, Shared, TxEngine};
use ringway_nic::{Area, Bus, Chip, Host, Raise, Receive, Settings, Techniques, Transmit};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// Guest-physical addresses: two regions that touch, the initialization block at the end of the first, rings, buffers
/// of 2 KB each.
const BASE: u64 = 0x10_0000;
const LEN: u64 = 0x4_0000;
const RX_RING: u64 = BASE;
const TX_RING: u64 = BASE + 0x400;
const TX_BUFFERS: u64 = BASE + 0x1_0000;
const BLOCK: u64 = BASE + LEN - 8;
/// The 16th buffer is in the second region.
const RX_BUFFERS: u64 = BASE + 0x3_8000 - 0x800;
/// Descriptors of a ring, as a power of two.
const LOG: u32 = 4;
const RING: u64 = 1 << LOG;

const OWN: u16 = 1 << 15;
const ERR: u16 = 1 << 14;
const STP: u16 = 1 << 9;
const ENP: u16 = 1 << 8;
/// CSR0.
const STRT: u16 = 1 << 1;
const STOP: u16 = 1 << 2;
const TDMD: u16 = 1 << 3;
const IENA: u16 = 1 << 6;
const IDON: u16 = 1 << 8;
const TINT: u16 = 1 << 9;
const RINT: u16 = 1 << 10;
const MERR: u16 = 1 << 11;
const MISS: u16 = 1 << 12;
const RUNNING: u16 = 0x0033;

fn region(guest: u64) -> Region {
    let file = memfd("nic-test", LEN as usize).expect("memfd");
    Arc::new(Mapping::shared(&file, 0, LEN as usize).expect("a mapping")).region_at(guest, guest)
}

struct Machine {
    nic: Nic,
    shared: Arc<Shared>,
    memory: Arc<Memory>,
    tx: TxEngine,
    rx: RxEngine,
    /// Registers are accessed as 32 bits.
    wide: bool,
    quiesced: u64,
    interrupts: u64,
    kicks: u64,
    tx_next: u64,
    rx_next: u64,
}

impl Machine {
    fn new(wide: bool) -> Machine {
        let memory = Arc::new(Memory::new(vec![region(BASE), region(BASE + LEN)]).expect("two regions"));
        let techniques = Techniques::default();
        let settings = Settings { model: &MODEL, mac: MAC, techniques, link: true, pages: None };
        let nic = Nic::new(settings).expect("a NIC");
        let (tx, rx) = Nic::engines(&CountersRef::private());
        let shared = nic.shared().clone();
        let mut machine = Machine {
            nic,
            shared,
            memory,
            tx,
            rx,
            wide,
            quiesced: 0,
            interrupts: 0,
            kicks: 0,
            tx_next: 0,
            rx_next: 0,
        };
        if wide {
            machine.write_at(Area::Bar(0), 0x10, &[0; 4]);
        }
        machine
    }

    /// A machine whose driver is up.
    fn up(wide: bool) -> Machine {
        let mut machine = Machine::new(wide);
        machine.write_at(Area::Config, 4, &[7, 0]);
        machine.start();
        machine
    }

    /// Resets the chip, sets the rings up, and enables interrupts, in the driver's order.
    fn start(&mut self) {
        self.reset();
        assert_eq!(self.csr(0), STOP);
        self.set_bcr(20, 2);
        for index in 0..RING {
            self.post(index);
            self.poke(TX_RING + 16 * index, &[0; 16]);
        }
        (self.tx_next, self.rx_next) = (0, 0);
        let mut block = vec![0, 0, (LOG << 4) as u8, (LOG << 4) as u8];
        block.extend(MAC);
        block.extend([0; 2 + 8]);
        block.extend([RX_RING as u32, TX_RING as u32].into_iter().flat_map(u32::to_le_bytes));
        self.poke(BLOCK, &block);
        self.set_csr(1, BLOCK as u16);
        self.set_csr(2, (BLOCK >> 16) as u16);
        self.set_csr(4, 0x0915);
        self.set_csr(0, 1);
        assert_eq!(self.csr(0) & (IDON | STOP), IDON);
        self.set_csr(0, IENA | STRT | IDON);
        assert_eq!(self.csr(0), RUNNING | IENA);
    }

    fn window(&self, number: u64) -> (u64, usize) {
        if self.wide { (0x10 + 4 * number, 4) } else { (0x10 + 2 * number, 2) }
    }

    fn write_at(&mut self, area: Area, at: u64, data: &[u8]) {
        let (quiesced, memory) = (&mut self.quiesced, &self.memory);
        let mut host = Host { now: 1_000_000, quiesce: &mut || *quiesced += 1, memory };
        let effects = self.nic.write(area, at, data, &mut host);
        self.kicks += u64::from(effects.kick);
        self.raised(effects.raise);
    }

    fn access(&mut self, number: u64, value: Option<u16>) -> u16 {
        let (at, len) = self.window(number);
        if let Some(value) = value {
            self.write_at(Area::Bar(0), at, &u32::from(value).to_le_bytes()[..len]);
        }
        let mut out = [0; 4];
        self.nic.read(Area::Bar(1), at, &mut out[..len]);
        u16::from_le_bytes([out[0], out[1]])
    }

    fn set_csr(&mut self, number: u16, value: u16) {
        self.access(1, Some(number));
        let (at, len) = self.window(0);
        self.write_at(Area::Bar(0), at, &u32::from(value).to_le_bytes()[..len]);
    }

    fn csr(&mut self, number: u16) -> u16 {
        self.access(1, Some(number));
        self.access(0, None)
    }

    fn set_bcr(&mut self, number: u16, value: u16) {
        self.access(1, Some(number));
        let (at, len) = self.window(3);
        self.write_at(Area::Bar(0), at, &u32::from(value).to_le_bytes()[..len]);
    }

    fn bcr(&mut self, number: u16) -> u16 {
        self.access(1, Some(number));
        self.access(3, None)
    }

    fn reset(&mut self) {
        self.access(2, None);
    }

    fn raised(&mut self, raise: Raise) {
        self.interrupts += raise.vectors().count() as u64;
    }

    fn poke(&self, at: u64, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let span = self.memory.span_mut(at + index as u64, 1, &mut Hint::default()).expect("in memory");
            span.write(&[*byte]);
        }
    }

    fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let byte = |index: usize| {
            let span = self.memory.span(at + index as u64, 1, &mut Hint::default()).expect("in memory");
            span.read_array::<1>().expect("a byte")[0]
        };
        (0..len).map(byte).collect()
    }

    /// Writes a descriptor: a buffer, its size, the status.
    fn describe(&self, at: u64, buffer: u64, size: usize, status: u16) {
        let size = (size as u16).wrapping_neg();
        let bytes = [&(buffer as u32).to_le_bytes()[..], &size.to_le_bytes(), &status.to_le_bytes(), &[0; 8]];
        self.poke(at, &bytes.concat());
    }

    /// Status and length of a descriptor.
    fn descriptor(&self, at: u64) -> (u16, usize) {
        let bytes = self.peek(at, 16);
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        (word(6), usize::from(word(8) & 0xfff))
    }

    fn post(&self, index: u64) {
        self.describe(RX_RING + 16 * index, RX_BUFFERS + 0x800 * index, 1544, OWN);
    }

    /// Gives a frame away in pieces of `size`, and demands.
    fn send(&mut self, frame: &[u8], size: usize) {
        let buffer = TX_BUFFERS + 0x800 * self.tx_next;
        self.poke(buffer, frame);
        let count = frame.len().div_ceil(size);
        for (number, piece) in frame.chunks(size).enumerate() {
            let first = if number == 0 { STP } else { 0 };
            let last = if number + 1 == count { ENP } else { 0 };
            let at = buffer + (number * size) as u64;
            self.describe(TX_RING + 16 * self.tx_next, at, piece.len(), OWN | first | last);
            self.tx_next = (self.tx_next + 1) % RING;
        }
        self.set_csr(0, IENA | TDMD);
    }

    fn bus<'t>(shared: &'t Shared, memory: &'t Memory) -> Bus<'t, Shared> {
        Bus { shared, memory, now: 1_000_000 }
    }

    /// A worker's turn: takes a burst, and releases its first frames.
    fn take(&mut self, release: usize) -> Vec<Vec<u8>> {
        let (shared, memory) = (self.shared.clone(), self.memory.clone());
        let bus = Machine::bus(&shared, &memory);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        let raise = self.tx.take(&bus, &mut burst);
        self.raised(raise);
        let frames = (0..burst.len()).map(|index| {
            let mut bytes = vec![0; burst.meta(index).len as usize];
            burst.read(index, 0, &mut bytes);
            bytes
        });
        let frames = frames.collect();
        let raise = self.tx.release(&bus, burst.len().min(release));
        self.raised(raise);
        frames
    }

    /// Delivers frames; returns how many had room, and how many the NIC dropped.
    fn deliver(&mut self, frames: &[&[u8]]) -> (usize, u64) {
        let (shared, memory) = (self.shared.clone(), self.memory.clone());
        let bus = Machine::bus(&shared, &memory);
        if self.rx.caps(&bus).is_none() {
            return (0, 0);
        }
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        frames.iter().for_each(|frame| burst.push(Offload::default(), Span::of(frame)).expect("room"));
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

    /// What the driver finds in its receive ring: bytes and status of each descriptor. Buffers are posted again.
    fn poll(&mut self) -> Vec<(Vec<u8>, u16)> {
        let mut found = Vec::new();
        loop {
            let (status, len) = self.descriptor(RX_RING + 16 * self.rx_next);
            if status & OWN != 0 || found.len() == RING as usize {
                return found;
            }
            let len = if status & ENP != 0 { len - 4 } else { 1544 };
            found.push((self.peek(RX_BUFFERS + 0x800 * self.rx_next, len.min(1544)), status));
            self.post(self.rx_next);
            self.rx_next = (self.rx_next + 1) % RING;
        }
    }
}

fn frame(to: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
    frame[..6].copy_from_slice(&to);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame
}

#[test]
fn a_driver_finds_the_chip_its_address_and_its_link() {
    let mut machine = Machine::new(false);
    let mut config = [0; 16];
    machine.nic.read(Area::Config, 0, &mut config);
    assert_eq!((&config[..4], config[8]), (&[0x22, 0x10, 0, 0x20][..], 0x16));
    let mut prom = [0; 16];
    machine.nic.read(Area::Bar(0), 0, &mut prom);
    assert_eq!((&prom[..6], &prom[14..]), (&MAC[..], &b"WW"[..]));
    // The driver's probe: a reset, CSR0, an address register that keeps what is written.
    machine.reset();
    assert_eq!((machine.csr(0), machine.access(1, Some(88))), (4, 88));
    assert_eq!([88, 89].map(|number| machine.csr(number)), [0x1003, 0x0262], "version 0x2621");
    let address: Vec<u8> = (12..15).flat_map(|number| machine.csr(number).to_le_bytes()).collect();
    assert_eq!(address, MAC);
    assert_eq!(machine.bcr(4), 0x80c0, "the light is on");
    let _ = machine.nic.set_link(false, 0);
    assert_eq!(machine.bcr(4), 0x00c0);
    machine.set_bcr(20, 2);
    assert_eq!((machine.bcr(20), machine.csr(58)), (0x0302, 0x0302));
}

#[test]
fn the_register_table_is_as_agreed() {
    let mut machine = Machine::new(false);
    let mut text = String::new();
    for row in reg::ALL {
        let read = if row.file == File::Csr { machine.csr(row.number) } else { machine.bcr(row.number) };
        writeln!(text, "{:<16} {:?} {read:#06x}", row.name, row.access).expect("a line");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/registers/pcnet.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("writable");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{} differs; BLESS=1 writes it:\n{text}", path.display());
}

#[test]
fn frames_are_sent_whole_and_their_descriptors_returned() {
    for wide in [false, true] {
        let mut machine = Machine::up(wide);
        for round in 0..50 {
            machine.send(&frame(MAC, 60 + round), 4096);
            machine.send(&frame(MAC, 1000), 400);
            let sent = machine.take(9);
            assert_eq!(sent, [frame(MAC, 60 + round), frame(MAC, 1000)]);
        }
        assert_eq!(machine.kicks, 101, "the start, and each frame");
        assert_eq!((machine.csr(0) & TINT, machine.interrupts), (TINT, 1), "it was told");
        let mut statuses = (0..RING).map(|index| machine.descriptor(TX_RING + 16 * index).0);
        assert!(statuses.all(|status| status & !(STP | ENP) == 0));
        // A frame that isn't released is taken again; one without an end is waited for.
        machine.send(&frame(MAC, 61), 4096);
        assert_eq!((machine.take(0).len(), machine.take(1).len(), machine.take(1).len()), (1, 1, 0));
        let bus = Machine::bus(&machine.shared, &machine.memory);
        assert!(machine.tx.arm(&bus));
        machine.describe(TX_RING + 16 * machine.tx_next, TX_BUFFERS, 60, OWN | STP);
        assert!(!machine.tx.arm(&Machine::bus(&machine.shared, &machine.memory)));
        assert_eq!(machine.take(1).len(), 0);
        assert!(machine.tx.arm(&Machine::bus(&machine.shared, &machine.memory)), "its rest is not there");
        assert_eq!(machine.nic.doorbells(), [101, 0]);
    }
}

#[test]
fn descriptors_that_are_no_frame_are_dropped_and_returned() {
    let mut machine = Machine::up(false);
    // Without a beginning, outside memory, and one that fills the ring without an end.
    machine.describe(TX_RING, TX_BUFFERS, 60, OWN | ENP);
    machine.describe(TX_RING + 16, 0x10, 60, OWN | STP | ENP);
    machine.describe(TX_RING + 32, TX_BUFFERS, 60, OWN | STP | ENP);
    machine.set_csr(0, IENA | TDMD);
    assert_eq!(machine.take(9).len(), 1);
    assert_eq!(machine.descriptor(TX_RING).0 | machine.descriptor(TX_RING + 16).0, STP | ENP);
    machine.start();
    (0..RING).for_each(|index| machine.describe(TX_RING + 16 * index, TX_BUFFERS, 60, OWN | STP));
    machine.set_csr(0, IENA | TDMD);
    assert_eq!(machine.take(9).len(), 0);
    assert_eq!(machine.descriptor(TX_RING).0 & OWN, 0);
}

#[test]
fn frames_are_received_with_their_kind_and_length() {
    let mut machine = Machine::up(false);
    let group = [1, 0, 0x5e, 0, 0, 1];
    for round in 0..30 {
        let frames = [frame(MAC, 60 + round), frame([0xff; 6], 20), frame(group, 60), frame(MAC, 1514)];
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        assert_eq!(machine.deliver(&frames), (4, 1), "the group is not received");
        let got = machine.poll();
        let [one, two, three] = <[_; 3]>::try_from(got).expect("three");
        assert_eq!((&one.0[..], one.1), (frames[0], STP | ENP | 1 << 6));
        assert_eq!((&two.0[..20], two.0.len(), two.1), (frames[1], 60, STP | ENP | 1 << 4));
        assert!(two.0[20..].iter().all(|byte| *byte == 0), "padded");
        assert_eq!((&three.0[..], three.1), (frames[3], STP | ENP | 1 << 6));
        assert_eq!(machine.csr(0) & RINT, RINT);
        machine.set_csr(0, IENA | RINT);
    }
    assert_eq!(machine.interrupts, 30);
    // All groups and all stations.
    (8..12).for_each(|number| machine.set_csr(number, 0xffff));
    assert_eq!(machine.deliver(&[&frame(group, 60), &frame([2, 0, 0, 0, 0, 9], 60)]), (2, 1));
    machine.set_csr(15, 0x8000);
    assert_eq!(machine.deliver(&[&frame([2, 0, 0, 0, 0, 9], 60)]), (1, 0));
    assert_eq!(machine.poll().len(), 2);
}

#[test]
fn a_frame_may_need_several_buffers_and_a_full_ring_is_told_once() {
    let mut machine = Machine::up(false);
    assert_eq!(machine.deliver(&[&frame(MAC, 3000)]), (1, 0));
    let got = machine.poll();
    assert_eq!((got.len(), got[0].1, got[1].1), (2, STP, ENP | 1 << 6));
    // The length is that of the frame.
    let mut whole = [&got[0].0[..], &got[1].0].concat();
    whole.truncate(3000);
    assert!(whole == frame(MAC, 3000));
    machine.set_csr(0, IENA | RINT);
    let small = frame(MAC, 60);
    let many = vec![&small[..]; 20];
    assert_eq!(machine.deliver(&many).0, RING as usize);
    assert_eq!(machine.deliver(&many).0, 0);
    assert_eq!((machine.csr(0) & (MISS | RINT), machine.interrupts), (MISS | RINT, 3));
    assert_eq!(machine.poll().len(), RING as usize);
    machine.set_csr(0, IENA | MISS | RINT);
    assert_eq!(machine.deliver(&many[..3]), (3, 0));
    // A buffer outside memory costs its frame.
    machine.poll();
    machine.describe(RX_RING + 16 * machine.rx_next, 0x10, 1544, OWN);
    assert_eq!(machine.deliver(&[&small]), (1, 1));
    assert_eq!(machine.descriptor(RX_RING + 16 * machine.rx_next).0 & (OWN | ERR), ERR);
}

#[test]
fn masks_stop_interrupts_until_they_are_lifted() {
    let mut machine = Machine::up(false);
    machine.set_csr(3, 0x5f00);
    assert_eq!(machine.deliver(&[&frame(MAC, 60)]), (1, 0));
    assert!(machine.interrupts == 0 && !machine.nic.level());
    machine.set_csr(3, 0);
    assert!(machine.interrupts == 1 && machine.nic.level());
    machine.set_csr(0, IENA | RINT);
    assert!(!machine.nic.level());
    machine.set_csr(0, 0);
    assert_eq!(machine.deliver(&[&frame(MAC, 60)]), (1, 0));
    assert!(machine.interrupts == 1 && machine.csr(0) & 0x80 != 0, "INTR, but not the line");
}

#[test]
fn stop_suspend_and_reset_end_the_traffic() {
    let mut machine = Machine::up(false);
    machine.set_csr(5, 1);
    assert_eq!((machine.csr(5) & 1, machine.quiesced), (1, 2), "after the reset at the start, and now");
    machine.send(&frame(MAC, 60), 4096);
    assert_eq!((machine.take(1).len(), machine.deliver(&[&frame(MAC, 60)])), (0, (0, 0)));
    machine.set_csr(5, 0);
    assert_eq!((machine.take(1).len(), machine.deliver(&[&frame(MAC, 60)])), (1, (1, 0)));
    machine.set_csr(0, STOP);
    assert_eq!((machine.csr(0), machine.nic.is_running(), machine.nic.level()), (STOP, false, false));
    // It goes on where the initialization block says, without being read again.
    machine.set_csr(0, STRT | IENA);
    assert!(machine.nic.is_running());
    machine.reset();
    assert!(!machine.nic.is_running() && machine.csr(0) == STOP);
    machine.start();
    machine.write_at(Area::Config, 4, &[3, 0]);
    assert!(!machine.nic.is_running(), "it may not access memory");
    machine.write_at(Area::Config, 4, &[7, 0]);
    assert!(machine.nic.is_running());
    // A block outside memory, and descriptors of 16 bits.
    machine.set_csr(0, STOP);
    machine.set_csr(2, 0);
    machine.set_csr(0, 1 | STRT);
    assert_eq!(machine.csr(0) & (MERR | IDON), MERR);
    assert!(!machine.nic.is_running(), "the rings of the block before are not used");
    machine.start();
    machine.set_csr(0, STOP);
    machine.set_bcr(20, 0);
    machine.set_csr(0, STRT);
    assert!(!machine.nic.is_running() && machine.csr(0) & 0x30 == 0x30);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_frame_arrives_once_in_order(
        sizes in prop::collection::vec((60..1514_usize, 50..1600_usize), 1..40),
    ) {
        let mut machine = Machine::up(false);
        for (number, (len, piece)) in sizes.into_iter().enumerate() {
            let mut sent = frame(MAC, len);
            sent[20] = number as u8;
            // At most 14 descriptors.
            machine.send(&sent, piece.max(len / 14 + 1));
            prop_assert_eq!(machine.take(1), [sent.clone()]);
            prop_assert_eq!(machine.deliver(&[&sent]), (1, 0));
            let got = machine.poll();
            prop_assert_eq!(got.len(), 1);
            prop_assert_eq!(&got[0].0, &sent);
        }
    }
}
