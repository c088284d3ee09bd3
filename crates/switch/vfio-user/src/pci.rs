//! Indices of a PCI device's regions and interrupt types (`linux/vfio.h`).

/// The first of six base address registers.
pub const BAR0: u32 = 0;
/// The expansion ROM.
pub const ROM: u32 = 6;
/// Configuration space.
pub const CONFIG: u32 = 7;
/// Legacy VGA ranges.
pub const VGA: u32 = 8;
/// Number of regions. QEMU requires those up to [`CONFIG`]; an absent one has the size 0.
pub const REGIONS: usize = 9;

/// The interrupt pin.
pub const INTX: u32 = 0;
/// Message signalled interrupts.
pub const MSI: u32 = 1;
/// Message signalled interrupts with a table.
pub const MSIX: u32 = 2;
/// The device failed.
pub const ERR: u32 = 3;
/// The device asks to be unplugged.
pub const REQ: u32 = 4;
/// Number of interrupt types. QEMU requires those up to [`MSIX`]; an absent one has no interrupts.
pub const IRQS: usize = 5;
