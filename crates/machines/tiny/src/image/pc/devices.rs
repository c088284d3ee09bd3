//! The network devices of the machine.

use super::ports::Pci as Space;
use super::{APIC, DEVICE, ID, NAME, Serial, apic_read};
use crate::stock::{
    Bar, ConfigSpace, DeviceError, Found, Function, Line, Mmio, MmioDevice, Net, NetMemory, Pci, PciError,
    Places, Transport, functions,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::x86_64::__cpuid;
use core::fmt::{Display, Write};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use ringway_mem::Region;

/// Registers of the interrupt controller for lines: a number, and what it selects.
const IO_APIC: u64 = 0xfec0_0000;
const IO_APIC_DATA: u64 = IO_APIC + 0x10;
/// Numbers of its version and of the first line's entry.
const IO_VERSION: u32 = 1;
const IO_ENTRIES: u32 = 0x10;

/// Descriptors of a queue at most.
const DESCRIPTORS: u16 = 256;

/// Memory that is mapped from the start.
const MAPPED: u64 = 1 << 32;
/// What follows it maps registers beyond it: an entry of the page directory for each 2 MB.
const WINDOW: usize = 512;
const PAGE: u64 = 2 << 20;
/// A page of 2 MB, for ring 3, present, writable, not cached.
const REGISTERS: u64 = 0x9f;

unsafe extern "C" {
    #[link_name = "ringway_pdpt"]
    static POINTERS: [AtomicPtr<()>; 512];
}

#[repr(C, align(4096))]
struct Directory([AtomicPtr<()>; WINDOW]);

static DIRECTORY: Directory = Directory([const { AtomicPtr::new(core::ptr::null_mut()) }; WINDOW]);
static USED: AtomicUsize = AtomicUsize::new(0);

/// Address bits of the processor; 0 if it does not tell.
fn address_bits() -> u32 {
    const LARGEST: u32 = 0x8000_0000;
    const BITS: u32 = 0x8000_0008;
    if __cpuid(LARGEST).eax < BITS { 0 } else { __cpuid(BITS).eax & 0xff }
}

/// The network devices of a machine with this memory: those of the command line, then those on PCI unless the line says
/// that there is none.
pub fn find(line: &Line, ram: &[[u64; 2]]) -> Vec<Net<'static>> {
    let places = Places::new(ram, address_bits());
    let mut nets = Vec::new();
    for device in &line.mmio {
        add_net(&mut nets, &format_args!("{:#x}", device.address), mmio(device, &places));
    }
    if !line.no_pci
        && let Some(space) = Space::find()
    {
        for function in functions(&space) {
            add_net(&mut nets, &format_args!("PCI {function}"), pci(&space, function, &places));
        }
    }
    nets
}

/// Adds a device, and says on the console what it is or why it can't be used.
fn add_net<E: Display>(nets: &mut Vec<Net<'static>>, place: &dyn Display, found: Result<Net<'static>, E>) {
    // The console takes all text.
    let _ = match found {
        Ok(net) => {
            let _ = write!(Serial, "{NAME}: device {} at {place}: ", nets.len());
            if let Some([a, b, c, d, e, f]) = net.mac() {
                let _ = write!(Serial, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, ");
            }
            let rings = if net.is_packed() { "packed" } else { "split" };
            let wakes = if net.interrupts() { "interrupts" } else { "polled" };
            let result = writeln!(Serial, "{rings} rings of {} descriptors, {wakes}", net.tx_slots());
            nets.push(net);
            result
        }
        Err(error) => writeln!(Serial, "{NAME}: the device at {place} can't be used: {error}"),
    };
}

/// Registers at an address; none where registers can't be.
fn region(bar: Bar, places: &Places<'_>) -> Option<Region> {
    if !places.permit(bar) {
        return None;
    }
    let Bar { address, len } = bar;
    let end = address.checked_add(len.into())?;
    if end <= MAPPED {
        return crate::image::region(address, len.into());
    }
    let first = address & !(PAGE - 1);
    let pages = usize::try_from((end - first).div_ceil(PAGE)).ok()?;
    let at = USED.load(Ordering::Relaxed);
    let entries = DIRECTORY.0.get(at..at.checked_add(pages)?)?;
    USED.store(at + pages, Ordering::Relaxed);
    for (page, entry) in (0..).zip(entries) {
        let word = (first + PAGE * page) | REGISTERS;
        entry.store(core::ptr::without_provenance_mut(word as usize), Ordering::Release);
    }
    // SAFETY: the table is the entry's; its fifth entry is this module's, for the fifth GB.
    if let Some(fifth) = unsafe { POINTERS.get(4) } {
        fifth.store(DIRECTORY.0.as_ptr().wrapping_byte_add(7).cast_mut().cast(), Ordering::Release);
    }
    crate::image::region(MAPPED + PAGE * at as u64 + (address - first), len.into())
}

fn mmio(device: &MmioDevice, places: &Places<'_>) -> Result<Net<'static>, DeviceError> {
    let &MmioDevice { address, len, interrupt } = device;
    let region = region(Bar { address, len: len as u32 }, places).ok_or(DeviceError::Absent)?;
    start(Box::new(Mmio::new(region, route(interrupt))?))
}

/// Starts a device, with memory that it has as long as the machine runs.
fn start(device: Box<dyn Transport>) -> Result<Net<'static>, DeviceError> {
    let memory = NetMemory::new(DESCRIPTORS).ok_or(DeviceError::Memory)?;
    Net::new(device, Box::leak(Box::new(memory)))
}

/// Lets an interrupt line wake the machine, by edges: each interrupt is acknowledged before the next look at the rings.
fn route(line: u32) -> bool {
    let write = |number: u32, value: u32| {
        // SAFETY: a PC has this controller there, and otherwise nothing; it changes no memory.
        unsafe {
            (IO_APIC as *mut u32).write_volatile(number);
            (IO_APIC_DATA as *mut u32).write_volatile(value);
        }
    };
    let read = |number: u32| {
        // SAFETY: as above.
        unsafe {
            (IO_APIC as *mut u32).write_volatile(number);
            (IO_APIC_DATA as *const u32).read_volatile()
        }
    };
    let version = read(IO_VERSION);
    if matches!(version, 0 | u32::MAX) || line > version >> 16 & 0xff {
        return false;
    }
    write(IO_ENTRIES + 2 * line + 1, apic_read(ID) & 0xff00_0000);
    write(IO_ENTRIES + 2 * line, DEVICE);
    true
}

fn pci(space: &impl ConfigSpace, function: Function, places: &Places<'_>) -> Result<Net<'static>, PciError> {
    let found = Found::read(space, function)?;
    let part = |bar| region(bar, places).ok_or(PciError::Device(DeviceError::Absent));
    let parts = [part(found.common)?, part(found.notify)?, part(found.device)?];
    let entry = found.vectors.and_then(|bar| region(bar, places));
    let target = APIC as u32 | apic_read(ID) >> 24 << 12;
    let interrupts = found.enable(space, function, entry.map(|entry| (target, DEVICE, entry)));
    Ok(start(Box::new(Pci::new(parts, found.multiplier, interrupts)?))?)
}
