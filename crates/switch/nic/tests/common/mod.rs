//! A guest with a NIC, and a driver that does what Linux's e1000 does.
#![allow(dead_code)]

use ringway_frame::{Burst, CountersRef, Offload, Storage};
use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory, Region, Span};
use ringway_nic::e1000::{Area, Bus, Effects, Host, Model, Nic, PAGES, RxEngine, Settings, Shared, TxEngine};
use ringway_nic::e1000::{Raise, registers as reg};
pub use ringway_nic::{Chip, Receive, Transmit};
use ringway_nic::{Doorbells, Techniques};
use std::collections::VecDeque;
use std::sync::Arc;

pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// Guest-physical addresses of two regions that touch, and the length of each.
pub const BASE: u64 = 0x10_0000;
pub const LEN: u64 = 0x8_0000;
/// Where the driver has its rings, the shared block, and the buffers of 16 KB each.
pub const TX_RING: u64 = BASE;
pub const RX_RING: u64 = BASE + 0x1000;
pub const CSB: u64 = BASE + 0x2000;
pub const TX_BUFFERS: u64 = BASE + 0x1_0000;
pub const RX_BUFFERS: u64 = BASE + 0x9_0000;
pub const RING: u32 = 16;

pub const EOP: u64 = 1 << 24;
pub const IFCS: u64 = 1 << 25;
pub const RS: u64 = 1 << 27;
pub const DEXT: u64 = 1 << 29;
pub const VLE: u64 = 1 << 30;
pub const IDE: u64 = 1 << 31;
pub const DATA: u64 = DEXT | 1 << 20;
pub const TSE: u64 = 1 << 26;
pub const IXSM: u64 = 1 << 40;
pub const TXSM: u64 = 1 << 41;

/// RCTL as the driver sets it: enabled, an interrupt if an eighth of the ring is left, broadcast, 2 KB.
pub const RCTL: u32 = 1 << 1 | 2 << 8 | 1 << 15;
pub const IMS: u32 = 0x9d;

/// Memory between guard pages.
pub fn region(guest: u64, len: u64) -> Region {
    let file = memfd("nic-test", len as usize).expect("memfd");
    Arc::new(Mapping::shared(&file, 0, len as usize).expect("a mapping")).region_at(guest, guest)
}

/// A frame that a worker took from the NIC.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    pub bytes: Vec<u8>,
    pub offload: Offload,
}

pub struct Machine {
    pub nic: Nic,
    pub shared: Arc<Shared>,
    pub memory: Arc<Memory>,
    whole: Arc<Memory>,
    pub pages: Memory,
    pub tx: TxEngine,
    pub rx: RxEngine,
    pub tx_counters: CountersRef,
    pub rx_counters: CountersRef,
    pub now: u64,
    pub interrupts: u64,
    pub vectors: Vec<u16>,
    pub kicks: u64,
    pub quiesced: u64,
    /// The driver's indices, and the buffers of its receive ring by descriptor.
    pub tdt: u32,
    pub rdt: u32,
    pub next_rx: u32,
    /// Writes the tails into the mapped pages.
    pub mapped: bool,
    pub txd: u64,
}

impl Machine {
    /// A NIC after power-on, and a guest without a driver.
    pub fn new(model: &'static Model, techniques: Techniques) -> Machine {
        let memory = Memory::new(vec![region(BASE, LEN), region(BASE + LEN, LEN)]).expect("two regions");
        let memory = Arc::new(memory);
        let pages = region(0, PAGES.1.into());
        let settings = Settings { model, mac: MAC, techniques, link: true, pages: Some(pages.clone()) };
        let nic = Nic::new(settings).expect("a NIC");
        let counters = || CountersRef::private();
        let (tx_counters, rx_counters) = (counters(), counters());
        Machine {
            shared: nic.shared().clone(),
            nic,
            whole: memory.clone(),
            memory,
            pages: Memory::new(vec![pages]).expect("pages"),
            tx: TxEngine::new(tx_counters.clone()),
            rx: RxEngine::new(rx_counters.clone()),
            tx_counters,
            rx_counters,
            now: 1_000_000,
            interrupts: 0,
            vectors: Vec::new(),
            kicks: 0,
            quiesced: 0,
            tdt: 0,
            rdt: 0,
            next_rx: 0,
            mapped: techniques.doorbells == Doorbells::Mapped,
            txd: EOP | IFCS | RS,
        }
    }

    /// A machine whose driver is up.
    pub fn up(model: &'static Model, techniques: Techniques) -> Machine {
        let mut machine = Machine::new(model, techniques);
        machine.config_write(4, &[0x07, 0]);
        machine.reset();
        machine.start();
        machine
    }

    pub fn note(&mut self, effects: Effects) {
        self.kicks += u64::from(effects.kick);
        self.raised(effects.raise);
    }

    pub fn raised(&mut self, raise: Raise) {
        self.vectors.extend(raise.vectors());
        self.interrupts += raise.vectors().count() as u64;
    }

    pub fn access(&mut self, area: Area, offset: u64, data: &[u8]) -> Effects {
        let mut quiesced = 0;
        let mut host = Host { now: self.now, quiesce: &mut || quiesced += 1, memory: &self.memory };
        let effects = self.nic.write(area, offset, data, &mut host);
        self.quiesced += quiesced;
        self.note(effects);
        effects
    }

    pub fn write(&mut self, register: u32, value: u32) -> Effects {
        self.access(Area::Bar(0), register.into(), &value.to_le_bytes())
    }

    pub fn read(&mut self, register: u32) -> u32 {
        let mut out = [0; 4];
        self.nic.read(Area::Bar(0), register.into(), &mut out);
        u32::from_le_bytes(out)
    }

    pub fn config_write(&mut self, offset: u64, data: &[u8]) {
        self.access(Area::Config, offset, data);
    }

    pub fn config_read(&mut self, offset: u64) -> u32 {
        let mut out = [0; 4];
        self.nic.read(Area::Config, offset, &mut out);
        u32::from_le_bytes(out)
    }

    pub fn poke(&self, at: u64, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let span = self.whole.span_mut(at + index as u64, 1, &mut Hint::default()).expect("in memory");
            span.write(&[*byte]);
        }
    }

    pub fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let byte = |index: usize| {
            let span = self.whole.span(at + index as u64, 1, &mut Hint::default()).expect("in memory");
            span.read_array::<1>().expect("a byte")[0]
        };
        (0..len).map(byte).collect()
    }

    pub fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.peek(at, 8).try_into().expect("eight bytes"))
    }

    /// Writes a mapped register.
    pub fn map_write(&self, register: u32, value: u32) {
        let at = u64::from(register - PAGES.0);
        let span = self.pages.span_mut(at, 4, &mut Hint::default()).expect("a register");
        span.write(&value.to_le_bytes());
    }

    pub fn map_read(&self, register: u32) -> u32 {
        let at = u64::from(register - PAGES.0);
        let bytes = self.pages.span(at, 4, &mut Hint::default()).and_then(Span::read_array);
        u32::from_le_bytes(bytes.expect("a register"))
    }

    fn ring_write(&mut self, register: u32, value: u32) {
        if self.mapped {
            self.map_write(register, value);
        } else {
            self.write(register, value);
        }
    }

    /// Masks interrupts, stops both rings, and resets the chip through its I/O ports.
    pub fn reset(&mut self) {
        for (register, value) in [(reg::IMC, u32::MAX), (reg::RCTL, 0), (reg::TCTL, 8)] {
            self.write(register, value);
        }
        self.read(reg::STATUS);
        let control = self.read(reg::CTRL) | 1 << 26;
        let io = self.nic.model().identity.bars.iter().flatten().position(|bar| bar.size < 128);
        let io = Area::Bar(io.expect("I/O ports") as u8);
        self.access(io, 0, &reg::CTRL.to_le_bytes());
        self.access(io, 4, &control.to_le_bytes());
        assert_eq!(self.read(reg::CTRL) & 1 << 26, 0, "the reset has ended");
        self.write(reg::IMC, u32::MAX);
        self.read(reg::ICR);
    }

    /// Sets both rings up, enables interrupts, and transmission once the link is up.
    pub fn start(&mut self) {
        (self.tdt, self.next_rx, self.rdt) = (0, 0, RING - 1);
        for index in 0..RING {
            self.poke(RX_RING + 16 * u64::from(index), &self.rx_buffer(index).to_le_bytes());
            self.poke(RX_RING + 16 * u64::from(index) + 8, &[0; 8]);
        }
        let rings = [(reg::TDBAL, TX_RING, 0), (reg::RDBAL, RX_RING, RING - 1)];
        for (base, address, tail) in rings {
            let offset = |register: u32| base + register - reg::RDBAL;
            self.ring_write(offset(reg::RDLEN), RING * 16);
            self.ring_write(offset(reg::RDBAH), (address >> 32) as u32);
            self.ring_write(offset(reg::RDBAL), address as u32);
            self.ring_write(offset(reg::RDT), tail);
            self.ring_write(offset(reg::RDH), 0);
        }
        self.write(reg::RFCTL, if self.extended() { 1 << 15 } else { 0 });
        self.write(reg::RXCSUM, 1 << 9);
        self.write(reg::TCTL, 0x0103_f0f8);
        self.write(reg::RCTL, RCTL);
        self.write(reg::IMS, IMS);
        assert!(self.read(reg::STATUS) & 2 != 0);
        self.write(reg::TCTL, 0x0103_f0fa);
    }

    /// Sets both rings up whatever lies in memory, without waiting for a link.
    pub fn start_hostile(&mut self) {
        for (base, address) in [(reg::TDBAL, TX_RING), (reg::RDBAL, RX_RING)] {
            for (register, value) in [(reg::RDLEN, RING * 16), (reg::RDBAH, 0), (reg::RDBAL, address as u32)]
            {
                self.write(base + register - reg::RDBAL, value);
            }
        }
        self.write(reg::RCTL, RCTL);
        self.write(reg::TCTL, 2);
    }

    /// Takes half of the guest's memory away, or gives it back.
    pub fn toggle_memory(&mut self) {
        let (now, all) = (self.memory.regions().len(), self.whole.clone());
        self.memory =
            if now == 2 { Arc::new(Memory::new(all.regions()[1..].to_vec()).expect("one")) } else { all };
    }

    pub fn restore_memory(&mut self) {
        self.memory = self.whole.clone();
    }

    /// Whether the driver uses extended receive descriptors.
    pub fn extended(&self) -> bool {
        self.nic.model().name == "82574l"
    }

    pub fn rx_buffer(&self, index: u32) -> u64 {
        RX_BUFFERS + 0x2000 * u64::from(index)
    }

    /// Writes a descriptor without ringing.
    pub fn descriptor(&mut self, address: u64, command: u64) {
        let at = TX_RING + 16 * u64::from(self.tdt);
        self.poke(at, &address.to_le_bytes());
        self.poke(at + 8, &command.to_le_bytes());
        self.tdt = (self.tdt + 1) % RING;
    }

    /// Writes a frame's bytes in pieces of `size` as data descriptors, with `first` in the first and the command of the
    /// last in `last`.
    pub fn data(&mut self, frame: &[u8], size: usize, options: u64, last: u64) {
        let at = TX_BUFFERS + 0x2000 * u64::from(self.tdt);
        self.poke(at, frame);
        let count = frame.len().div_ceil(size);
        for (number, piece) in frame.chunks(size).enumerate() {
            let end = if number + 1 == count { last } else { 0 };
            self.descriptor(at + (number * size) as u64, DATA | options | end | piece.len() as u64);
        }
    }

    /// Rings the transmit doorbell.
    pub fn ring(&mut self) {
        self.ring_write(reg::TDT, self.tdt);
    }

    /// Sends a frame in one descriptor.
    pub fn send(&mut self, frame: &[u8]) {
        self.data(frame, 4096, 0, self.txd);
        self.ring();
    }

    /// A context descriptor: network header and upper header at these offsets.
    pub fn context(&mut self, ip: usize, upper: usize, field: usize, tso: Option<(usize, usize, u64)>) {
        let fields = |start: usize, field: usize, end: usize| (start | field << 8 | end << 16) as u64;
        let first = fields(ip, ip + 10, upper - 1) | fields(upper, field, 0) << 32;
        let second = match tso {
            None => DEXT,
            Some((header, mss, flags)) => DEXT | TSE | flags | (header as u64) << 40 | (mss as u64) << 48,
        };
        self.descriptor(first, second);
    }

    /// A worker's turn: takes a burst, and releases it whole.
    pub fn take(&mut self) -> Vec<Sent> {
        self.take_some(usize::MAX)
    }

    /// Takes a burst, and releases its first frames.
    pub fn take_some(&mut self, release: usize) -> Vec<Sent> {
        let (shared, memory) = (self.shared.clone(), self.memory.clone());
        let bus = Bus { shared: &shared, memory: &memory, now: self.now };
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        let raise = self.tx.take(&bus, &mut burst);
        self.raised(raise);
        let sent = (0..burst.len())
            .map(|index| {
                let mut bytes = vec![0; burst.meta(index).len as usize];
                burst.read(index, 0, &mut bytes);
                Sent { bytes, offload: burst.meta(index).offload }
            })
            .collect();
        let raise = self.tx.release(&bus, burst.len().min(release));
        self.raised(raise);
        sent
    }

    /// Delivers frames with their metadata; returns how many had room, and how many were dropped by the NIC.
    pub fn deliver(&mut self, frames: &[(&[u8], Offload)]) -> (usize, u64) {
        let (shared, memory) = (self.shared.clone(), self.memory.clone());
        let bus = Bus { shared: &shared, memory: &memory, now: self.now };
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        for (frame, offload) in frames {
            burst.push(*offload, Span::of(frame)).expect("room in the burst");
        }
        let which: Vec<u16> = (0..frames.len() as u16).collect();
        let (count, raise) = self.rx.reserve(&bus, &burst, &which);
        self.raised(raise);
        let (lost, raise) = self.rx.put(&bus, &burst, &which[..count]);
        self.raised(raise);
        let raise = self.rx.publish(&bus);
        self.raised(raise);
        (count, lost.frames)
    }

    pub fn receive(&mut self, frame: &[u8]) -> (usize, u64) {
        self.deliver(&[(frame, Offload::default())])
    }

    /// Time passes: what is due is done.
    pub fn pass(&mut self, nanoseconds: u64) {
        let end = self.now + nanoseconds;
        for _ in 0..1000 {
            let (shared, memory) = (self.shared.clone(), self.memory.clone());
            let dues = [self.tx.next_due(), self.rx.next_due(), self.nic.next_due()];
            let Some(due) = dues.into_iter().flatten().min().filter(|&due| due <= end) else { break };
            self.now = self.now.max(due);
            let bus = Bus { shared: &shared, memory: &memory, now: self.now };
            if self.rx.next_due().is_some() {
                let raise = self.rx.publish(&bus);
                self.raised(raise);
            }
            if self.tx.next_due().or(self.nic.next_due()).is_some() {
                let raise = self.tx.take(&bus, &mut Burst::begin(&mut Storage::default()));
                self.raised(raise);
            }
        }
        self.now = end;
    }

    /// What the driver finds in its receive ring: bytes, status with errors, tag. Buffers are posted again.
    pub fn poll(&mut self) -> VecDeque<(Vec<u8>, u16, u16)> {
        let mut frames = VecDeque::new();
        let mut bytes = Vec::new();
        loop {
            let at = RX_RING + 16 * u64::from(self.next_rx);
            let word = self.word(at + 8);
            // Status and length are the other way round in an extended descriptor.
            let (len, status) = if self.extended() { (word >> 32, word) } else { (word, word >> 32) };
            let (len, status, tag) = (len as usize & 0xffff, status as u16, (word >> 48) as u16);
            if status & 1 == 0 {
                return frames;
            }
            bytes.extend(self.peek(self.rx_buffer(self.next_rx), len));
            self.poke(at, &self.rx_buffer(self.next_rx).to_le_bytes());
            self.poke(at + 8, &[0; 8]);
            self.rdt = self.next_rx;
            self.next_rx = (self.next_rx + 1) % RING;
            self.ring_write(reg::RDT, self.rdt);
            if status & 2 != 0 {
                frames.push_back((std::mem::take(&mut bytes), status, tag));
            }
        }
    }
}

/// A frame for the NIC's own address, of `len` bytes.
pub fn frame(len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|at| at as u8).collect();
    frame[..6].copy_from_slice(&MAC);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 8, 0]);
    frame
}
