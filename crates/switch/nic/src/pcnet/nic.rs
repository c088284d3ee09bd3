//! The session's side: configuration space, registers, link.

use super::interrupts::{CAUSES, IDON, MERR};
use super::registers::{self as reg, ALL, File, Register, Window, find, window};
use super::shared::Shared;
use super::{LOG_RING, RxEngine, TxEngine};
use crate::chip::{Chip, Model, Settings};
use crate::descriptor_ring::{self, RingState};
use crate::device::{Access, Accesses, Area, Effects, Host};
use crate::engine::Family;
use crate::pci::{ConfigSpace, Identity};
use crate::techniques::{Doorbells, Techniques};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use ringway_frame::CountersRef;
use ringway_mem::{Direct, Hint, MemoryError, Translate};

/// CSR0: initialize, start, stop, look at the transmit ring; transmitter and receiver are on.
const INIT: u16 = 1 << 0;
const STRT: u16 = 1 << 1;
const STOP: u16 = 1 << 2;
const TDMD: u16 = 1 << 3;
const TXON: u16 = 1 << 4;
const RXON: u16 = 1 << 5;
/// CSR5: suspend.
const SPND: u16 = 1 << 0;
/// CSR15: transmitter, receiver disabled.
const DTX: u16 = 1 << 1;
const DRX: u16 = 1 << 0;
/// BCR4: the light is on, since there is a link. BCR18: registers are accessed as 32 bits.
const LIGHT: u16 = 1 << 15;
const WIDE: u16 = 1 << 7;
/// The software style that there is: descriptors and initialization block of 32 bits.
const STYLE: u16 = 2;
/// Style bits of CSR58 and BCR20 that follow from the style: 32 bits, and no LANCE.
const STYLE_FLAGS: u16 = 0x0300;
/// Bytes of the initialization block.
const BLOCK: u32 = 28;
/// CSRs that a reset by the driver sets back.
const SOFT: [u16; 5] =
    [reg::CSR3_MASK, reg::CSR4_FEATURES, reg::CSR5_EXTENDED, reg::CSR15_MODE, reg::CSR124_TEST];
/// Accesses without a register of their own, by name, counted behind the registers.
const OTHERS: [&str; 4] = ["RAP", "RESET", "APROM", "unknown"];

/// A NIC as its session sees it.
#[derive(Debug)]
pub struct Nic {
    model: &'static Model,
    shared: Arc<Shared>,
    config: ConfigSpace,
    /// The address PROM.
    prom: [u8; reg::FIRST as usize],
    /// The address register.
    rap: u16,
    /// Registers are accessed as 32 bits.
    wide: bool,
    /// The initialization block was read.
    is_initialized: bool,
    /// Rings were stopped, and workers' turns with them may be in progress.
    has_turns: bool,
    accesses: Vec<Accesses>,
}

impl Nic {
    fn csr(&self, number: u16) -> u16 {
        self.shared.csr(number)
    }

    fn set_csr(&self, number: u16, value: u16) {
        self.shared.store(File::Csr, number, value);
    }

    /// The words of the MAC address in the PROM.
    fn store_mac(&self) {
        for (word, pair) in self.prom[..6].as_chunks().0.iter().enumerate() {
            self.set_csr(reg::CSR12_PADR + word as u16, u16::from_le_bytes(*pair));
        }
    }

    fn power_on(&mut self) {
        ALL.iter().for_each(|row| self.shared.store(row.file, row.number, row.reset));
        (self.rap, self.wide, self.is_initialized) = (0, false, false);
        self.store_mac();
    }

    /// Ends all activity but the workers' turns in progress.
    fn halt(&mut self) {
        self.shared.rings.stop();
        self.has_turns = true;
        self.shared.suspend(false);
        self.shared.interrupts.stop();
        self.set_csr(reg::CSR5_EXTENDED, self.csr(reg::CSR5_EXTENDED) & !SPND);
        self.set_csr(reg::CSR0_STATUS, STOP);
    }

    /// Waits for turns in progress.
    fn quiesce(&mut self, host: &mut Host<'_>) {
        if core::mem::take(&mut self.has_turns) {
            (host.quiesce)();
            // What those turns have set.
            self.shared.interrupts.stop();
        }
    }

    /// Ends all activity.
    fn stop(&mut self, host: &mut Host<'_>) {
        self.halt();
        self.quiesce(host);
    }

    /// A read of the reset register. Turns in progress end before the next write has an effect.
    fn reset_by_driver(&mut self) {
        self.halt();
        let rows = ALL.iter().filter(|row| row.file == File::Csr && SOFT.contains(&row.number));
        rows.for_each(|row| self.shared.store(row.file, row.number, row.reset));
        self.shared.interrupts.reset();
        self.rap = 0;
    }

    /// Reads the initialization block. Attack: an address outside memory, or at its end.
    fn initialize(&mut self, host: &Host<'_>) -> bool {
        let address = u64::from(self.csr(reg::CSR1_IADR)) | u64::from(self.csr(reg::CSR2_IADR)) << 16;
        let (mut block, mut hint) = ([0; BLOCK as usize], Hint::default());
        let mut read = |block: &mut [u8]| {
            let mut done = 0;
            while done < block.len() {
                let at = address.wrapping_add(done as u64);
                let left = block.len() - done;
                let span = Direct::new(host.memory, &mut hint).read(at, left as u32).ok()?;
                match span.read(&mut block[done..]) {
                    0 => return None,
                    count => done += count,
                }
            }
            Some(())
        };
        if !self.config.is_master() || read(&mut block).is_none() {
            return false;
        }
        let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        self.set_csr(reg::CSR15_MODE, word(0));
        self.set_csr(reg::CSR6_LENGTHS, word(2));
        (0..3).for_each(|index| self.set_csr(reg::CSR12_PADR + index, word(4 + 2 * usize::from(index))));
        (0..4).for_each(|index| self.set_csr(reg::CSR8_LADRF + index, word(12 + 2 * usize::from(index))));
        for (index, at) in [(reg::CSR24_BADR, 20), (reg::CSR30_BADX, 24)] {
            self.set_csr(index, word(at));
            self.set_csr(index + 1, word(at + 2));
        }
        for (index, shift) in [(reg::CSR76_RCVRL, 4), (reg::CSR78_XMTRL, 12)] {
            let count = 1_u16 << u64::from(word(2) >> shift & 0xf).min(LOG_RING);
            self.set_csr(index, count.wrapping_neg());
        }
        true
    }

    fn start_ring(&self, ring: &RingState, (base, len): (u16, u16)) {
        let address = u64::from(self.csr(base)) | u64::from(self.csr(base + 1)) << 16;
        // Attack: a length of any value.
        let count = u32::from(self.csr(len).wrapping_neg()).min(1 << LOG_RING);
        ring.start(address & !0xf, count * descriptor_ring::SIZE as u32, 0);
    }

    /// Enables the rings that the mode has, if descriptors are of the style that there is.
    fn start(&mut self, effects: &mut Effects) {
        let (mode, shared) = (self.csr(reg::CSR15_MODE), self.shared.clone());
        let is_known = self.shared.load(File::Bcr, reg::BCR20_STYLE) & 0xff == STYLE;
        let can = is_known && self.is_initialized && self.config.is_master();
        let mut on = 0;
        if mode & DRX == 0 {
            on |= RXON;
            if can {
                self.start_ring(&shared.rings.rx, (reg::CSR24_BADR, reg::CSR76_RCVRL));
            }
        }
        if mode & DTX == 0 {
            on |= TXON;
            if can {
                self.start_ring(&shared.rings.tx, (reg::CSR30_BADX, reg::CSR78_XMTRL));
                effects.kick = true;
            }
        }
        let before = self.csr(reg::CSR0_STATUS) & INIT;
        self.set_csr(reg::CSR0_STATUS, before | STRT | on);
    }

    /// Writes CSR0.
    fn control(&mut self, value: u16, host: &mut Host<'_>, effects: &mut Effects) {
        if value & STOP != 0 {
            return self.stop(host);
        }
        effects.raise |= self.shared.interrupts.write(value.into());
        let state = self.csr(reg::CSR0_STATUS);
        if value & INIT != 0 && state & STRT == 0 {
            self.is_initialized = self.initialize(host);
            self.set_csr(reg::CSR0_STATUS, INIT);
            effects.raise |= self.shared.interrupts.set(if self.is_initialized { IDON } else { MERR });
        }
        if value & STRT != 0 && state & STRT == 0 {
            self.start(effects);
        } else if value & TDMD != 0 && state & TXON != 0 {
            let rings = &self.shared.rings;
            rings.doorbells[0].fetch_add(1, Ordering::Relaxed);
            effects.kick |= rings.tx.generation().is_some() && !rings.is_awaited(host.now);
        }
    }

    fn suspend(&mut self, suspends: bool, host: &mut Host<'_>, effects: &mut Effects) {
        self.shared.suspend(suspends);
        if suspends {
            (host.quiesce)();
        } else {
            effects.kick = true;
        }
    }

    fn read_register(&self, row: &Register) -> u16 {
        match (row.file, row.number) {
            (File::Csr, reg::CSR0_STATUS) => {
                self.csr(reg::CSR0_STATUS) | self.shared.interrupts.status() as u16
            }
            (File::Bcr, reg::BCR4_LINK) => {
                let light = if self.shared.link() { LIGHT } else { 0 };
                self.shared.load(File::Bcr, reg::BCR4_LINK) | light
            }
            (File::Bcr, reg::BCR18_BURST) => {
                self.shared.load(File::Bcr, reg::BCR18_BURST) | if self.wide { WIDE } else { 0 }
            }
            _ => self.shared.load(row.file, row.number),
        }
    }

    fn write_register(&mut self, row: &Register, value: u16, host: &mut Host<'_>, effects: &mut Effects) {
        let new = value & row.bits | self.shared.load(row.file, row.number) & !row.bits;
        match (row.file, row.number) {
            _ if row.access == Access::ReadOnly => {}
            (File::Csr, reg::CSR0_STATUS) => self.control(value, host, effects),
            (File::Csr, reg::CSR3_MASK) => {
                self.set_csr(reg::CSR3_MASK, new);
                effects.raise |= self.shared.interrupts.set_mask(u32::from(new) & CAUSES);
            }
            (File::Csr, reg::CSR5_EXTENDED) => {
                let before = self.csr(reg::CSR5_EXTENDED);
                self.set_csr(reg::CSR5_EXTENDED, new);
                if (before ^ new) & SPND != 0 {
                    self.suspend(new & SPND != 0, host, effects);
                }
            }
            (File::Csr, reg::CSR58_STYLE) | (File::Bcr, reg::BCR20_STYLE) => {
                let flags = if value & 0xff == 0 { 0x0200 } else { STYLE_FLAGS };
                self.set_csr(reg::CSR58_STYLE, value & 0xff | flags);
                self.shared.store(File::Bcr, reg::BCR20_STYLE, value & 0xff | flags);
            }
            _ => self.shared.store(row.file, row.number, new),
        }
    }

    /// What an access to a file reaches: the row, if there is one, and where the access is counted.
    fn named(&self, file: File) -> (Option<&'static Register>, usize) {
        match find(file, self.rap) {
            Some((row, place)) => (Some(row), place),
            None => (None, ALL.len() + 3),
        }
    }

    /// A ring runs only while the device may access memory.
    fn check_master(&mut self, host: &mut Host<'_>, effects: &mut Effects) {
        let state = self.csr(reg::CSR0_STATUS);
        match (self.shared.rings.is_running(), self.config.is_master()) {
            (true, false) => {
                self.shared.rings.stop();
                (host.quiesce)();
            }
            (false, true) if state & STRT != 0 => self.start(effects),
            _ => {}
        }
    }
}

impl Chip for Nic {
    type Model = &'static Model;
    type Shared = Shared;
    type Tx = TxEngine;
    type Rx = RxEngine;

    // All registers share 32 bytes, some of which act.
    const PAGES: (u32, u32) = (0, 0);
    const KICK: Option<u32> = None;

    fn new(settings: Settings<&'static Model>) -> Result<Nic, MemoryError> {
        let Settings { model, mac, techniques, link, .. } = settings;
        // AMD's form: both last bytes are `W`, and two before them are the sum of all others.
        let mut prom = [0; reg::FIRST as usize];
        prom[..6].copy_from_slice(&mac);
        (prom[14], prom[15]) = (b'W', b'W');
        let sum: u16 = prom.iter().map(|byte| u16::from(*byte)).sum();
        prom[12..14].copy_from_slice(&sum.to_le_bytes());
        let mut nic = Nic {
            model,
            shared: Arc::new(Shared::new()?),
            config: ConfigSpace::new(&model.identity),
            prom,
            rap: 0,
            wide: false,
            is_initialized: false,
            has_turns: false,
            accesses: vec![Accesses::default(); ALL.len() + OTHERS.len()],
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
        let names = ALL.iter().map(|row| row.name).chain(OTHERS);
        let all = names.zip(&self.accesses).map(|(name, count)| (name, false, *count));
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
        self.shared.rings.switches.set(Techniques { doorbells, in_place: false, csb: false, ..techniques });
    }

    fn set_link(&mut self, link: bool, _now: u64) -> Effects {
        // The chip does not interrupt: drivers look at BCR4.
        let is_new = link && !self.shared.link();
        self.shared.set_link(link);
        Effects { kick: is_new, ..Effects::default() }
    }

    fn is_running(&self) -> bool {
        self.shared.rings.is_running()
    }

    fn next_due(&self) -> Option<u64> {
        None
    }

    fn reset(&mut self, host: &mut Host<'_>) {
        self.stop(host);
        self.shared.interrupts.reset();
        self.config = ConfigSpace::new(&self.model.identity);
        self.power_on();
    }

    fn read(&mut self, area: Area, offset: u64, out: &mut [u8]) {
        out.fill(0);
        match area {
            Area::Config => return self.config.read(offset, out, self.level()),
            Area::Bar(0 | 1) => {}
            Area::Bar(_) => return,
        }
        if let Some(from) = usize::try_from(offset).ok().and_then(|at| self.prom.get(at..))
            && !from.is_empty()
        {
            let count = out.len().min(from.len());
            out[..count].copy_from_slice(&from[..count]);
            self.accesses[ALL.len() + 2].reads += 1;
            return;
        }
        let (value, place) = match window(offset, out.len(), self.wide) {
            Some(Window::Rap) => (self.rap, ALL.len()),
            Some(Window::Reset) => {
                self.reset_by_driver();
                (0, ALL.len() + 1)
            }
            Some(file @ (Window::Rdp | Window::Bdp)) => {
                let (row, place) = self.named(if file == Window::Rdp { File::Csr } else { File::Bcr });
                (row.map_or(0, |row| self.read_register(row)), place)
            }
            None => (0, ALL.len() + 3),
        };
        self.accesses[place].reads += 1;
        let count = out.len().min(2);
        out[..count].copy_from_slice(&value.to_le_bytes()[..count]);
    }

    fn write(&mut self, area: Area, offset: u64, data: &[u8], host: &mut Host<'_>) -> Effects {
        let mut effects = Effects::default();
        self.quiesce(host);
        match area {
            Area::Config => {
                self.config.write(offset, data);
                self.check_master(host, &mut effects);
                return effects;
            }
            Area::Bar(0 | 1) => {}
            Area::Bar(_) => return effects,
        }
        // The first access of 32 bits to the data register chooses this width, until the chip is powered on again.
        self.wide |= offset == reg::FIRST.into() && data.len() == 4;
        let value = match *data {
            [low, high, ..] => u16::from_le_bytes([low, high]),
            _ => 0,
        };
        let place = match window(offset, data.len(), self.wide) {
            Some(Window::Rap) => {
                self.rap = value & 0x7f;
                ALL.len()
            }
            Some(Window::Reset) => ALL.len() + 1,
            Some(file @ (Window::Rdp | Window::Bdp)) => {
                let (row, place) = self.named(if file == Window::Rdp { File::Csr } else { File::Bcr });
                if let Some(row) = row {
                    self.write_register(row, value, host, &mut effects);
                }
                place
            }
            None => ALL.len() + 3,
        };
        self.accesses[place].writes += 1;
        effects
    }
}
