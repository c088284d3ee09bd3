//! The session's side: configuration space, registers, link.

use super::interrupts::{LINK_CHANGE, SOFTWARE};
use super::registers::{self as reg, ALL, Register, find};
use super::shared::Shared;
use super::stats;
use super::{RING, registers::SIZE};
use super::{RxEngine, TxEngine};
use crate::chip::{Chip, Model, Settings};
use crate::csb;
use crate::descriptor_ring::{self, RingState};
use crate::device::{Access, Accesses, Area, Effects, Host};
use crate::engine::Family;
use crate::microwire::{Microwire, WORDS};
use crate::pci::{ConfigSpace, Identity};
use crate::techniques::{Doorbells, Techniques};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use ringway_frame::CountersRef;
use ringway_mem::{Direct, Hint, MemoryError, Translate};

/// CR: reset, which clears itself; receiver, transmitter enabled.
const RST: u64 = 1 << 4;
const RE: u64 = 1 << 3;
const TE: u64 = 1 << 2;
/// CPCR: transmit ring, receive ring enabled.
const CP_TX: u64 = 1 << 0;
const CP_RX: u64 = 1 << 1;
/// DTCCR: write the statistics.
const DUMP: u64 = 1 << 3;
/// TPPOLL: doorbell, software interrupt.
const NPQ: u64 = 1 << 6;
const SWI: u64 = 1 << 0;
/// CR9346: pins of the EEPROM; the mode, of which three are auto-load, pins, and writing the configuration.
const SELECT: u64 = 1 << 3;
const CLOCK: u64 = 1 << 2;
const DATA_IN: u64 = 1 << 1;
const DATA_OUT: u64 = 1 << 0;
const MODE: u64 = 3 << 6;
const AUTO_LOAD: u64 = 1 << 6;
const PINS: u64 = 2 << 6;
/// BMSR: link, negotiation complete. MSR: no link. BMCR: reset, restart of the negotiation; both clear themselves.
const LINK: u64 = 1 << 2;
const COMPLETE: u64 = 1 << 5;
const NO_LINK: u64 = 1 << 2;
const BMCR_STAYS: u64 = !(1 << 15 | 1 << 9);
/// What a partner of 100 Mb/s, full duplex, advertises.
const PARTNER: u64 = 0x45e1;
/// Words of the EEPROM: what it is, PCI identity, and where the MAC address is.
const TYPE: u16 = 0x8129;
const MAC_AT: usize = 7;
/// What a reset by the driver clears: not the addresses, the configuration and the PHY.
const SOFT: [u32; 10] = [
    reg::DTCCR,
    reg::TNPDS,
    reg::THPDS,
    reg::CR,
    reg::TCR,
    reg::RCR,
    reg::CSBA,
    reg::CPCR,
    reg::RDSAR,
    reg::MTPS,
];

/// A NIC as its session sees it.
#[derive(Debug)]
pub struct Nic {
    model: &'static Model,
    shared: Arc<Shared>,
    config: ConfigSpace,
    eeprom: Microwire,
    accesses: Vec<Accesses>,
    unknown: Accesses,
}

impl Nic {
    fn store_mac(&self) {
        let [a, b, c] = [0, 1, 2].map(|word| u64::from(self.eeprom.words()[MAC_AT + word]));
        self.shared.store(reg::IDR, a | b << 16 | c << 32);
    }

    fn show_link(&self) {
        let (shared, link) = (&self.shared, self.shared.link());
        shared.store(reg::BMSR, 0x7809 | if link { LINK | COMPLETE } else { 0 });
        shared.store(reg::ANLPAR, if link { PARTNER } else { 0 });
        shared.store(reg::MSR, 0xd0 | if link { 0 } else { NO_LINK });
    }

    fn stop(&mut self, host: &mut Host<'_>) {
        self.shared.rings.stop();
        (host.quiesce)();
        self.shared.csb.store(0, Ordering::Relaxed);
        self.shared.interrupts.reset();
    }

    fn power_on(&mut self) {
        ALL.iter().for_each(|row| self.shared.store(row.offset, row.reset));
        self.eeprom.reset();
        self.store_mac();
        self.show_link();
    }

    /// CR.RST.
    fn reset_device(&mut self, host: &mut Host<'_>) {
        self.stop(host);
        let rows = ALL.iter().filter(|row| SOFT.contains(&row.offset));
        rows.for_each(|row| self.shared.store(row.offset, row.reset));
    }

    fn read_register(&self, row: &Register) -> u64 {
        let interrupts = &self.shared.interrupts;
        match row.offset {
            reg::ISR => interrupts.causes().into(),
            reg::IMR => interrupts.mask().into(),
            reg::CR9346 => self.shared.load(reg::CR9346) | if self.eeprom.out() { DATA_OUT } else { 0 },
            _ if row.access == Access::WriteOnly => 0,
            offset => self.shared.load(offset),
        }
    }

    /// Writes `value` to a register; `written` are the bits of the bytes that were written.
    fn write_register(
        &mut self,
        row: &Register,
        (value, written): (u64, u64),
        host: &mut Host<'_>,
        effects: &mut Effects,
    ) {
        let shared = &self.shared;
        let interrupts = &shared.interrupts;
        let before = shared.load(row.offset);
        let new = before & !(row.bits & written) | value & row.bits & written;
        match row.offset {
            _ if row.access == Access::ReadOnly => {}
            _ if row.access == Access::Plain => shared.store(row.offset, new),
            reg::CR if value & written & RST != 0 => self.reset_device(host),
            reg::CR | reg::CPCR => {
                shared.store(row.offset, new);
                self.run_rings(host, effects);
            }
            reg::TNPDS | reg::RDSAR => self.set_ring(row.offset, new, host),
            reg::DTCCR => {
                shared.store(row.offset, new & !DUMP);
                if value & written & DUMP != 0 {
                    self.dump(new & !0x3f, host);
                }
            }
            reg::IMR => {
                let mask = u64::from(interrupts.mask()) & !written | value & written;
                effects.raise |= interrupts.set_mask(mask as u32);
            }
            reg::ISR => interrupts.clear((value & written) as u32),
            reg::TCR => shared.store(row.offset, new),
            reg::CR9346 => self.set_eeprom(new),
            reg::CONFIG0 | reg::CONFIG1 | reg::CONFIG3 | reg::CONFIG4 => {
                if shared.load(reg::CR9346) & MODE == MODE {
                    shared.store(row.offset, new);
                }
            }
            reg::BMCR => shared.store(row.offset, new & BMCR_STAYS),
            reg::CSBA => {
                shared.store(row.offset, new);
                // Both halves are there when the one with the lowest byte is written.
                if written & 0xff != 0 && shared.rings.techniques().csb {
                    shared.csb.store(new, Ordering::Relaxed);
                }
            }
            reg::CSBTXKICK if shared.rings.tx.generation().is_some() => {
                shared.rings.doorbells[0].fetch_add(1, Ordering::Relaxed);
                effects.kick = true;
            }
            reg::TPPOLL => {
                if value & SWI != 0 {
                    effects.raise |= interrupts.set(SOFTWARE);
                }
                if value & NPQ != 0 && shared.rings.tx.generation().is_some() {
                    shared.rings.doorbells[0].fetch_add(1, Ordering::Relaxed);
                    effects.kick |= !shared.rings.is_awaited(host.now);
                }
            }
            _ => {}
        }
    }

    fn set_eeprom(&mut self, value: u64) {
        let pins = value & MODE == PINS;
        self.eeprom.set(pins && value & SELECT != 0, value & CLOCK != 0, value & DATA_IN != 0);
        if value & MODE == AUTO_LOAD {
            self.store_mac();
            self.shared.store(reg::CR9346, 0);
        } else {
            self.shared.store(reg::CR9346, value);
        }
    }

    /// Writes the statistics to memory. Attack: an address outside memory, or at its end.
    fn dump(&self, address: u64, host: &Host<'_>) {
        if !self.config.is_master() {
            return;
        }
        let (bytes, mut hint) = (self.shared.stats.dump(), Hint::default());
        if let Ok(span) = Direct::new(host.memory, &mut hint).write(address, stats::LEN as u32) {
            span.write(&bytes);
        }
    }

    fn start(&self, ring: &RingState, base: u32) {
        ring.start(self.shared.load(base), RING * descriptor_ring::SIZE as u32, 0);
    }

    /// A ring's address. A driver that changes it while the ring is enabled gets a new ring.
    fn set_ring(&mut self, base: u32, address: u64, host: &mut Host<'_>) {
        let shared = self.shared.clone();
        let ring = if base == reg::TNPDS { &shared.rings.tx } else { &shared.rings.rx };
        let runs = ring.generation().is_some();
        if runs {
            ring.stop();
            (host.quiesce)();
        }
        shared.store(base, address);
        if runs {
            self.start(ring, base);
        }
    }

    /// Starts and stops rings as the enable bits and the bus master bit say.
    fn run_rings(&mut self, host: &mut Host<'_>, effects: &mut Effects) {
        let shared = &self.shared;
        let (command, plus) = (shared.load(reg::CR), shared.load(reg::CPCR));
        let mut stopped = false;
        for (ring, base, enable, plus_enable) in
            [(&shared.rings.rx, reg::RDSAR, RE, CP_RX), (&shared.rings.tx, reg::TNPDS, TE, CP_TX)]
        {
            let enabled = self.config.is_master() && command & enable != 0 && plus & plus_enable != 0;
            match (ring.generation().is_some(), enabled) {
                (false, true) => {
                    self.start(ring, base);
                    effects.kick |= base == reg::TNPDS;
                }
                (true, false) => {
                    ring.stop();
                    stopped = true;
                }
                _ => {}
            }
        }
        if stopped {
            (host.quiesce)();
        }
    }
}

/// The bits of bytes `from..to` of a register.
fn bits(from: u32, to: u32) -> u64 {
    (u64::MAX >> (64 - 8 * (to - from))) << (8 * from)
}

/// Splits an access of any size and alignment into registers: calls `each` with a register's row and number, if there
/// is one, the first byte in it, and those bytes' range in the data. Ends at the area's end.
fn parts(
    offset: u64,
    len: usize,
    mut each: impl FnMut(Option<(&'static Register, usize)>, u32, Range<usize>),
) {
    let mut done = 0;
    while done < len {
        // Attack: an offset whose sum with the length wraps.
        let at = offset.saturating_add(done as u64);
        if at >= SIZE.into() {
            return;
        }
        let at = at as u32;
        let found = find(at);
        let (skip, end) = match found {
            Some((row, _)) => (at - row.offset, row.offset + row.len),
            None => (0, ALL.iter().map(|row| row.offset).find(|next| *next > at).unwrap_or(SIZE)),
        };
        let count = ((end - at) as usize).min(len - done);
        each(found, skip, done..done + count);
        done += count;
    }
}

impl Chip for Nic {
    type Model = &'static Model;
    type Shared = Shared;
    type Tx = TxEngine;
    type Rx = RxEngine;

    // All registers share 256 bytes, some of which act.
    const PAGES: (u32, u32) = (0, 0);
    const KICK: Option<u32> = Some(reg::CSBTXKICK);

    fn new(settings: Settings<&'static Model>) -> Result<Nic, MemoryError> {
        let Settings { model, mac, techniques, link, .. } = settings;
        let mut words = [0; WORDS];
        (words[0], words[1], words[2]) = (TYPE, model.identity.vendor, model.identity.device);
        for (word, pair) in words[MAC_AT..].iter_mut().zip(mac.as_chunks().0) {
            *word = u16::from_le_bytes(*pair);
        }
        let mut nic = Nic {
            model,
            shared: Arc::new(Shared::new()?),
            config: csb::config(&model.identity, techniques.csb),
            eeprom: Microwire::new(words),
            accesses: vec![Accesses::default(); ALL.len()],
            unknown: Accesses::default(),
        };
        nic.shared.set_link(link);
        nic.set_techniques(techniques, 0);
        nic.power_on();
        Ok(nic)
    }

    fn engines(counters: &CountersRef) -> (TxEngine, RxEngine) {
        (TxEngine::new(counters.clone()), RxEngine::new(counters.clone()))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn identity(&self) -> (&'static str, &'static Identity) {
        (self.model.name, &self.model.identity)
    }

    fn config(&self) -> &ConfigSpace {
        &self.config
    }

    fn accesses(&self) -> Vec<(&'static str, bool, Accesses)> {
        let known = ALL.iter().zip(&self.accesses).map(|(row, count)| (row.name, false, *count));
        let all = known.chain([("unknown", false, self.unknown)]);
        all.filter(|(.., count)| *count != Accesses::default()).collect()
    }

    fn doorbells(&self) -> [u64; 2] {
        // There are none for the receive ring.
        [self.shared.rings.doorbells[0].load(Ordering::Relaxed), 0]
    }

    fn level(&self) -> bool {
        self.shared.interrupts.level()
    }

    fn interrupts(&self) -> (u64, u64) {
        (self.shared.interrupts.count(), 0)
    }

    fn mappable(&self) -> Vec<(u32, u32)> {
        Vec::new()
    }

    fn techniques(&self) -> Techniques {
        self.shared.rings.techniques()
    }

    fn set_techniques(&mut self, techniques: Techniques, _now: u64) {
        // Nothing of it can be mapped.
        let doorbells = Doorbells::Trapped;
        self.shared.rings.switches.set(Techniques { doorbells, in_place: false, ..techniques });
        if !techniques.csb {
            self.shared.csb.store(0, Ordering::Relaxed);
        }
    }

    fn set_link(&mut self, link: bool, _now: u64) -> Effects {
        if link == self.shared.link() {
            return Effects::default();
        }
        self.shared.set_link(link);
        self.show_link();
        Effects { kick: link, raise: self.shared.interrupts.set(LINK_CHANGE) }
    }

    fn is_running(&self) -> bool {
        self.shared.rings.is_running()
    }

    fn next_due(&self) -> Option<u64> {
        None
    }

    fn reset(&mut self, host: &mut Host<'_>) {
        self.stop(host);
        self.config = csb::config(&self.model.identity, self.techniques().csb);
        self.power_on();
    }

    fn read(&mut self, area: Area, offset: u64, out: &mut [u8]) {
        out.fill(0);
        match area {
            Area::Config => return self.config.read(offset, out, self.level()),
            Area::Bar(0 | 1) => {}
            Area::Bar(_) => return,
        }
        parts(offset, out.len(), |found, skip, places| {
            let Some((row, number)) = found else {
                self.unknown.reads += 1;
                return;
            };
            self.accesses[number].reads += 1;
            let bytes = self.read_register(row).to_le_bytes();
            let count = places.len();
            out[places].copy_from_slice(&bytes[skip as usize..][..count]);
        });
    }

    fn write(&mut self, area: Area, offset: u64, data: &[u8], host: &mut Host<'_>) -> Effects {
        let mut effects = Effects::default();
        match area {
            Area::Config => {
                self.config.write(offset, data);
                self.run_rings(host, &mut effects);
                return effects;
            }
            Area::Bar(0 | 1) => {}
            Area::Bar(_) => return effects,
        }
        parts(offset, data.len(), |found, skip, places| {
            let Some((row, number)) = found else {
                self.unknown.writes += 1;
                return;
            };
            self.accesses[number].writes += 1;
            let (mut bytes, part) = ([0; 8], &data[places]);
            bytes[skip as usize..][..part.len()].copy_from_slice(part);
            let written = bits(skip, skip + part.len() as u32);
            self.write_register(row, (u64::from_le_bytes(bytes), written), host, &mut effects);
        });
        effects
    }
}
