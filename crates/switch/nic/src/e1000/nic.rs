//! The session's side of a NIC: configuration space, registers, link.

use super::eeprom::{Eeprom, Pins};
use super::filter::VALID;
use super::interrupts::{LSC, MDAC, RXT0, TXDW, VECTORS};
use super::phy::Phy;
use super::registers::{self as reg, Access, Register, find};
use super::shared::{LINK_UP, PAGES, Shared, in_pages};
use super::stats::Readings;
use super::{RxEngine, TxEngine};
use crate::chip::{self, Chip};
use crate::csb;
use crate::device::{Accesses, Area, Effects, Host, words};
use crate::engine::Family;
use crate::pci::{Bar, Capability, ConfigSpace, Identity, Space};
use crate::techniques::Techniques;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use ringway_frame::CountersRef;
use ringway_mem::MemoryError;

/// CTRL: reset; reset of the PHY. Both clear themselves.
const RST: u32 = 1 << 26;
const PHY_RST: u32 = 1 << 31;
/// CTRL_EXT: reload the EEPROM, which clears itself.
const EE_RST: u32 = 1 << 13;
/// RCTL, TCTL: enabled.
const EN: u32 = 1 << 1;
/// MDIC: interrupt when done.
const MDIC_INTERRUPT: u32 = 1 << 29;
/// The end of the vectors' intervals.
const EITR_END: u32 = reg::EITR + 4 * VECTORS as u32;
/// RDTR, TIDV: interrupt now.
const FPD: u32 = 1 << 31;
/// RAH: all bits that it has.
const RAH_BITS: u32 = VALID | 0x3_ffff;
/// Nanoseconds of a unit of ITR.
const ITR_UNIT: u64 = 256;

/// What distinguishes the models of the family.
#[derive(Debug)]
pub struct Model {
    /// Its name in the fabric file.
    pub name: &'static str,
    /// Its driver in Linux.
    pub driver: &'static str,
    /// Its PCI identity.
    pub identity: Identity,
    /// Its registers.
    pub tables: &'static [&'static [Register]],
    /// The PHY's identification.
    pub(crate) phy: u32,
    /// Words of the EEPROM by address.
    pub(crate) eeprom: &'static [(usize, u16)],
    /// How the EEPROM is accessed.
    pub(crate) pins: Pins,
    /// Whether interrupts have causes for each queue, and receive descriptors an extended format.
    pub(crate) extended: bool,
}

/// What a NIC of the family starts with.
pub type Settings = chip::Settings<&'static Model>;

/// A NIC as its session sees it.
#[derive(Debug)]
pub struct Nic {
    model: &'static Model,
    shared: Arc<Shared>,
    config: ConfigSpace,
    eeprom: Eeprom,
    phy: Phy,
    readings: Readings,
    /// IOADDR: the register that IODATA accesses.
    io_address: u32,
    /// The MSI-X table; the client keeps the real one.
    vectors: Vec<u8>,
    accesses: Vec<Accesses>,
    unknown: Accesses,
}

impl Nic {
    /// The model.
    pub fn model(&self) -> &'static Model {
        self.model
    }

    /// Size of an area in bytes.
    pub fn len(&self, area: Area) -> u64 {
        match area {
            Area::Config => self.config.len() as u64,
            Area::Bar(number) => self.bar(number).map_or(0, |bar| bar.size.into()),
        }
    }

    fn bar(&self, number: u8) -> Option<Bar> {
        self.model.identity.bars.get(usize::from(number)).copied().flatten()
    }

    fn status(&self, link: bool) -> u32 {
        self.shared.load(reg::STATUS) & !LINK_UP | if link { LINK_UP } else { 0 }
    }

    fn reset_phy(&mut self, host: &mut Host<'_>) {
        self.phy = Phy::new(self.model.phy, self.shared.link());
        self.set_loopback(host);
    }

    /// Takes over whether the PHY loops frames back: another engine then continues the receive ring at its head.
    fn set_loopback(&mut self, host: &mut Host<'_>) {
        let (shared, loops_back) = (&self.shared, self.phy.loops_back());
        if shared.loops_back() == loops_back {
            return;
        }
        let runs = shared.rings.rx.generation().is_some();
        shared.rings.rx.stop();
        (host.quiesce)();
        shared.loopback.store(loops_back, Ordering::Relaxed);
        if runs {
            shared.start(&shared.rings.rx, reg::RDBAL);
        }
    }

    /// CTRL.RST.
    fn reset_device(&mut self, host: &mut Host<'_>) {
        self.shared.rings.stop();
        (host.quiesce)();
        self.shared.csb.store(0, Ordering::Relaxed);
        self.shared.interrupts.reset();
        self.shared.interrupts.set_msix(self.config.msix_enabled());
        self.reset_registers();
    }

    fn reset_registers(&mut self) {
        let status = self.shared.load(reg::STATUS);
        for row in self.model.tables.iter().flat_map(|rows| rows.iter()) {
            (0..row.count).for_each(|word| self.shared.store(row.offset + 4 * word, row.reset));
        }
        let link = self.shared.load(reg::STATUS) | status & LINK_UP;
        self.shared.store(reg::STATUS, link);
        self.eeprom.reset();
        self.readings.reset(&self.shared.stats);
        let [a0, a1, a2, a3, a4, a5] = self.eeprom.mac();
        self.shared.store(reg::RA, u32::from_le_bytes([a0, a1, a2, a3]));
        self.shared.store(reg::RA + 4, VALID | u32::from_le_bytes([a4, a5, 0, 0]));
    }

    fn is_vectors(&self, bar: u8) -> bool {
        let kinds = self.model.identity.capabilities.iter();
        kinds.into_iter().any(|(_, kind)| matches!(kind, Capability::MsiX(_, table) if *table == bar))
    }

    /// What a partial write leaves of a register: nothing where bits that are written act on others.
    fn stored(&self, offset: u32) -> u32 {
        match find(self.model.tables, offset).map(|(row, _)| row.access) {
            Some(Access::Plain | Access::Acts) if offset != reg::IMS && offset != reg::MDIC => {
                self.shared.load(offset)
            }
            _ => 0,
        }
    }

    fn read_register(&mut self, offset: u32) -> u32 {
        let Some((row, number)) = find(self.model.tables, offset) else {
            self.unknown.reads += 1;
            return 0;
        };
        self.accesses[number].reads += 1;
        let shared = &self.shared;
        match offset {
            reg::EECD => self.eeprom.eecd(),
            reg::EERD => self.eeprom.eerd(),
            reg::ICR => shared.interrupts.read_causes(),
            reg::IMS => shared.interrupts.ims(),
            _ if row.access == Access::ClearOnRead => self.readings.read(&shared.stats, offset),
            _ if row.access == Access::WriteOnly => 0,
            _ => shared.load(offset),
        }
    }

    fn write_register(&mut self, offset: u32, value: u32, host: &mut Host<'_>, effects: &mut Effects) {
        let Some((row, number)) = find(self.model.tables, offset) else {
            self.unknown.writes += 1;
            return;
        };
        self.accesses[number].writes += 1;
        // The high halves of the receive addresses have fewer bits.
        let is_high = row.offset == reg::RA && offset & 4 != 0;
        let value = value & if is_high { RAH_BITS } else { row.bits };
        if row.access == Access::Plain {
            return self.shared.store(offset, value);
        }
        let interrupts = &self.shared.interrupts;
        match offset {
            reg::CTRL | reg::CTRL_DUP => self.set_control(value, host),
            reg::EECD => self.eeprom.set_eecd(value),
            reg::EERD => self.eeprom.set_eerd(value),
            reg::CTRL_EXT => {
                self.shared.store(offset, value & !EE_RST);
                interrupts.control.store(value, Ordering::Relaxed);
            }
            reg::MDIC => self.set_mdic(value, host, effects),
            reg::ICR => interrupts.clear(value),
            reg::ICS => effects.raise |= interrupts.set(value, host.now),
            reg::IMS => effects.raise |= interrupts.enable(value, host.now),
            reg::IMC => interrupts.disable(value),
            reg::ITR | reg::EITR..EITR_END => {
                self.shared.store(offset, value & 0xffff);
                self.set_intervals(host.now);
            }
            reg::IAM | reg::EIAC | reg::IVAR => {
                self.shared.store(offset, value);
                let register = match offset {
                    reg::IAM => &interrupts.auto_mask,
                    reg::EIAC => &interrupts.auto_clear,
                    _ => &interrupts.vectors,
                };
                register.store(value, Ordering::Relaxed);
            }
            reg::RCTL | reg::TCTL => {
                self.shared.store(offset, value);
                self.run_rings(host, effects);
            }
            reg::RDBAL..=reg::RDH | reg::TDBAL..=reg::TDH => self.set_ring(offset, value, host),
            reg::RDT => self.shared.store(offset, value),
            reg::TDT => {
                self.shared.store(offset, value);
                effects.kick |=
                    self.shared.rings.tx.generation().is_some() && !self.shared.rings.is_awaited(host.now);
            }
            reg::CSBTXKICK => effects.kick |= self.shared.rings.tx.generation().is_some(),
            reg::RDTR | reg::TIDV => {
                self.shared.store(offset, value & 0xffff);
                if value & FPD != 0 {
                    let cause = if offset == reg::RDTR { RXT0 } else { TXDW };
                    effects.raise |= self.shared.interrupts.set(cause, host.now);
                }
            }
            reg::CSBAL => {
                self.shared.store(offset, value);
                self.adopt_csb();
            }
            _ => {}
        }
    }

    fn set_control(&mut self, value: u32, host: &mut Host<'_>) {
        if value & PHY_RST != 0 {
            self.reset_phy(host);
        }
        if value & RST != 0 {
            return self.reset_device(host);
        }
        self.shared.store(reg::CTRL, value & !PHY_RST);
        self.shared.store(reg::CTRL_DUP, value & !PHY_RST);
    }

    fn set_mdic(&mut self, value: u32, host: &mut Host<'_>, effects: &mut Effects) {
        let (result, negotiated) = self.phy.execute(value);
        self.set_loopback(host);
        self.shared.store(reg::MDIC, result);
        let mut causes = if value & MDIC_INTERRUPT != 0 { MDAC } else { 0 };
        causes |= if negotiated && self.shared.link() { LSC } else { 0 };
        effects.raise |= self.shared.interrupts.set(causes, host.now);
    }

    /// The intervals between interrupts, if the chip's own moderation is on: ITR's, or with MSI-X each vector's.
    fn set_intervals(&self, now: u64) {
        let timers = self.shared.rings.techniques().timers;
        for vector in 0..VECTORS {
            let msix = self.config.msix_enabled();
            let register = if msix { reg::EITR + 4 * vector as u32 } else { reg::ITR };
            let interval = if timers { u64::from(self.shared.load(register)) * ITR_UNIT } else { 0 };
            self.shared.interrupts.set_interval(vector, interval, now);
        }
    }

    /// A ring's base, length or head. A driver that changes them while the ring is enabled gets a new ring.
    fn set_ring(&mut self, offset: u32, value: u32, host: &mut Host<'_>) {
        let (ring, base) = if offset < reg::TDBAL {
            (&self.shared.rings.rx, reg::RDBAL)
        } else {
            (&self.shared.rings.tx, reg::TDBAL)
        };
        let runs = ring.generation().is_some();
        if runs {
            ring.stop();
            (host.quiesce)();
        }
        self.shared.store(offset, value);
        if runs {
            self.shared.start(ring, base);
        }
    }

    /// Starts and stops rings as the enable bits and the bus master bit say. Linux's e1000e enables the receive ring of
    /// an 82574L before it writes base and length, and once more afterwards.
    fn run_rings(&mut self, host: &mut Host<'_>, effects: &mut Effects) {
        let shared = &self.shared;
        let master = self.config.is_master();
        let mut stopped = false;
        for (ring, control, base) in
            [(&shared.rings.rx, reg::RCTL, reg::RDBAL), (&shared.rings.tx, reg::TCTL, reg::TDBAL)]
        {
            let enabled = master && shared.load(control) & EN != 0;
            let mut runs = ring.generation().is_some();
            if enabled && runs && shared.is_moved(ring, base) {
                ring.stop();
                (host.quiesce)();
                runs = false;
            }
            if enabled && !runs {
                shared.start(ring, base);
                self.adopt_csb();
                effects.kick |= base == reg::TDBAL;
            } else if !enabled && runs {
                ring.stop();
                stopped = true;
            }
        }
        if stopped {
            (host.quiesce)();
        }
    }

    fn adopt_csb(&self) {
        let shared = &self.shared;
        if shared.rings.techniques().csb {
            let address = u64::from(shared.load(reg::CSBAH)) << 32 | u64::from(shared.load(reg::CSBAL));
            shared.csb.store(address, Ordering::Relaxed);
        }
    }

    /// Whether a register lies in pages that the guest maps now.
    pub fn is_mapped(&self, offset: u32) -> bool {
        in_pages(offset) && self.shared.mappable().any(|(first, len)| offset >= first && offset - first < len)
    }
}

impl Chip for Nic {
    type Model = &'static Model;
    type Shared = Shared;
    type Tx = TxEngine;
    type Rx = RxEngine;

    const PAGES: (u32, u32) = PAGES;
    const KICK: Option<u32> = Some(reg::CSBTXKICK);

    fn new(settings: Settings) -> Result<Nic, MemoryError> {
        let Settings { model, mac, techniques, link, pages } = settings;
        let shared = Shared::new(pages, model.extended)?;
        shared.rings.switches.set(techniques);
        let rows = model.tables.iter().map(|rows| rows.len()).sum();
        let mut nic = Nic {
            model,
            shared: Arc::new(shared),
            config: csb::config(&model.identity, techniques.csb),
            eeprom: Eeprom::new(mac, model.eeprom, model.pins),
            phy: Phy::new(model.phy, link),
            readings: Readings::default(),
            io_address: 0,
            vectors: vec![0; 0x1000],
            accesses: vec![Accesses::default(); rows],
            unknown: Accesses::default(),
        };
        nic.reset_registers();
        nic.shared.store(reg::STATUS, nic.status(link));
        Ok(nic)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn config(&self) -> &ConfigSpace {
        &self.config
    }

    fn accesses(&self) -> Vec<(&'static str, bool, Accesses)> {
        let rows = self.model.tables.iter().flat_map(|rows| rows.iter());
        let known =
            rows.zip(&self.accesses).map(|(row, count)| (row.name, self.is_mapped(row.offset), *count));
        let all = known.chain([("unknown", false, self.unknown)]);
        all.filter(|(.., count)| *count != Accesses::default()).collect()
    }

    fn doorbells(&self) -> [u64; 2] {
        [0, 1].map(|ring: usize| self.shared.rings.doorbells[ring].load(Ordering::Relaxed))
    }

    fn set_techniques(&mut self, techniques: Techniques, now: u64) {
        self.shared.rings.switches.set(techniques);
        self.set_intervals(now);
        if !techniques.csb {
            self.shared.csb.store(0, Ordering::Relaxed);
        }
    }

    fn set_link(&mut self, link: bool, now: u64) -> Effects {
        if link == self.shared.link() {
            return Effects::default();
        }
        self.phy.set_link(link);
        self.shared.store(reg::STATUS, self.status(link));
        Effects { kick: link, raise: self.shared.interrupts.set(LSC, now) }
    }

    fn is_running(&self) -> bool {
        self.shared.rings.is_running()
    }

    fn next_due(&self) -> Option<u64> {
        self.shared.interrupts.next_due()
    }

    fn reset(&mut self, host: &mut Host<'_>) {
        self.config = csb::config(&self.model.identity, self.shared.rings.techniques().csb);
        self.reset_phy(host);
        self.reset_device(host);
    }

    fn read(&mut self, area: Area, offset: u64, out: &mut [u8]) {
        out.fill(0);
        let number = match area {
            Area::Config => return self.config.read(offset, out, self.shared.interrupts.level()),
            Area::Bar(number) => number,
        };
        let Some(Bar { space, size }) = self.bar(number) else { return };
        let is_vectors = self.is_vectors(number);
        words(offset, out.len(), size, |word, at, places| {
            let value = match (number, space) {
                (0, _) => self.read_register(word),
                (_, Space::Io) if word == 0 => self.io_address,
                (_, Space::Io) if word == 4 => self.read_register(self.io_address & !3),
                (_, Space::Io) => 0,
                _ if is_vectors => self
                    .vectors
                    .get(word as usize..)
                    .and_then(<[u8]>::first_chunk)
                    .map_or(0, |bytes| u32::from_le_bytes(*bytes)),
                // An empty flash.
                _ => u32::MAX,
            };
            let count = places.len();
            out[places].copy_from_slice(&value.to_le_bytes()[at..at + count]);
        });
    }

    fn write(&mut self, area: Area, offset: u64, data: &[u8], host: &mut Host<'_>) -> Effects {
        let mut effects = Effects::default();
        let number = match area {
            Area::Config => {
                self.config.write(offset, data);
                self.shared.interrupts.set_msix(self.config.msix_enabled());
                self.set_intervals(host.now);
                self.run_rings(host, &mut effects);
                return effects;
            }
            Area::Bar(number) => number,
        };
        let Some(Bar { space, size }) = self.bar(number) else { return effects };
        let is_vectors = self.is_vectors(number);
        words(offset, data.len(), size, |word, at, places| {
            let target = match (number, space) {
                (0, _) => Some(word),
                (_, Space::Io) if word == 4 => Some(self.io_address & !3),
                _ => None,
            };
            let is_address = target.is_none() && space == Space::Io && word == 0;
            // Bytes that are not written keep their value.
            let part = &data[places];
            let before = match target {
                Some(target) if part.len() < 4 => self.stored(target),
                None if is_address => self.io_address,
                _ => 0,
            };
            let mut bytes = before.to_le_bytes();
            bytes[at..at + part.len()].copy_from_slice(part);
            let value = u32::from_le_bytes(bytes);
            if let Some(target) = target {
                self.write_register(target, value, host, &mut effects);
            } else if is_address {
                self.io_address = value;
            } else if is_vectors && let Some(places) = self.vectors.get_mut(word as usize + at..) {
                let count = places.len().min(part.len());
                places[..count].copy_from_slice(&part[..count]);
            }
        });
        effects
    }

    fn engines(counters: &CountersRef) -> (TxEngine, RxEngine) {
        (TxEngine::new(counters.clone()), RxEngine::new(counters.clone()))
    }

    fn identity(&self) -> (&'static str, &'static Identity) {
        (self.model.name, &self.model.identity)
    }

    fn level(&self) -> bool {
        self.shared.interrupts.level()
    }

    fn interrupts(&self) -> (u64, u64) {
        self.shared.interrupts.counts()
    }

    fn mappable(&self) -> Vec<(u32, u32)> {
        self.shared.mappable().collect()
    }

    fn techniques(&self) -> Techniques {
        self.shared.rings.techniques()
    }
}
