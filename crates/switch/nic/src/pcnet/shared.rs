//! What the session's side and the workers share: registers that workers read, rings, interrupts.

use super::interrupts::Interrupts;
use super::registers::File;
use crate::device::{self, Raise};
use crate::engine::{Family, Rings};
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use ringway_mem::MemoryError;

/// What an engine reaches in one turn.
pub type Bus<'t> = device::Bus<'t, Shared>;

/// Registers of a file.
const REGISTERS: usize = 128;

/// What a NIC's two sides share.
#[derive(Debug)]
pub struct Shared {
    /// CSRs and BCRs by number.
    files: [[AtomicU16; REGISTERS]; 2],
    pub(crate) interrupts: Interrupts,
    pub(crate) rings: Rings,
    link: AtomicBool,
    /// The driver suspended the chip: it neither sends nor receives.
    suspended: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> Result<Shared, MemoryError> {
        let file = || core::array::from_fn(|_| AtomicU16::new(0));
        Ok(Shared {
            files: [file(), file()],
            interrupts: Interrupts::default(),
            rings: Rings::new()?,
            link: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
        })
    }

    fn word(&self, file: File, number: u16) -> Option<&AtomicU16> {
        self.files[usize::from(file == File::Bcr)].get(usize::from(number))
    }

    #[inline]
    pub(crate) fn load(&self, file: File, number: u16) -> u16 {
        self.word(file, number).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn store(&self, file: File, number: u16, value: u16) {
        if let Some(word) = self.word(file, number) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn csr(&self, number: u16) -> u16 {
        self.load(File::Csr, number)
    }

    pub(crate) fn set_link(&self, link: bool) {
        self.link.store(link, Ordering::Relaxed);
    }

    pub(crate) fn suspend(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
    }

    /// Whether the chip sends and receives while its rings are enabled.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.link.load(Ordering::Relaxed) && !self.suspended.load(Ordering::Relaxed)
    }
}

impl Family for Shared {
    /// There is none.
    type Block<'t> = ();

    fn rings(&self) -> &Rings {
        &self.rings
    }

    #[inline]
    fn link(&self) -> bool {
        self.link.load(Ordering::Relaxed)
    }

    fn set(bus: &Bus<'_>, _block: Option<()>, causes: u32) -> Raise {
        bus.shared.interrupts.set(causes)
    }

    fn set_again(&self, causes: u32, _now: u64) -> Raise {
        self.interrupts.set_again(causes)
    }
}
