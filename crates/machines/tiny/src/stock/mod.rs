//! The machine of a function or a program under another monitor, such as QEMU: virtio devices, and the command line
//! that describes what runs. Read `line.rs` first, then `net.rs`.
//!
//! The monitor is trusted, as a machine's owner is; the devices may be other programs: what they write into the rings,
//! and where they say that their registers are, is checked.

mod addresses;
mod command_line;
mod mmio;
mod net;
mod pci;
mod power;
mod start;
#[cfg(test)]
mod tests;
mod transport;

pub use addresses::Places;
pub use command_line::{Line, LineError, MmioDevice, PortWord};
pub use mmio::Mmio;
pub use net::{Net, NetMemory};
pub use pci::{Bar, ConfigSpace, Found, Function, Pci, PciError, functions};
pub use power::{PowerOff, Tables};
pub use start::{Start, StartError, assign, assign_program};
pub use transport::{DeviceError, Place, Registers, Transport, Width};
