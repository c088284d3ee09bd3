//! The registers by name: the control and status registers (CSR) and the bus configuration registers (BCR), which
//! are reached by way of an address register, and the offsets of what is reached without it.

use crate::device::Access;

/// Bytes of the range in which both base address registers show the chip.
pub const SIZE: u32 = 32;
/// Offset of the registers behind the address PROM.
pub const FIRST: u32 = 0x10;

/// What is reached at an offset behind the PROM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The CSR that the address register names.
    Rdp,
    /// The address register.
    Rap,
    /// A read resets the chip.
    Reset,
    /// The BCR that the address register names.
    Bdp,
}

/// A file of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Control and status.
    Csr,
    /// Bus configuration.
    Bcr,
}

/// One register of 16 bits.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    /// Its file.
    pub file: File,
    /// Its number there.
    pub number: u16,
    /// Its name, with AMD's word for it.
    pub name: &'static str,
    /// What an access does.
    pub access: Access,
    /// Its value after power-on.
    pub reset: u16,
    /// The bits that can be written.
    pub bits: u16,
}

macro_rules! registers {
    ($($(#[doc = $doc:literal])+ $file:ident $name:ident $number:literal $access:ident
        $(= $reset:literal)? $(& $bits:literal)?;)*) => {
        $($(#[doc = $doc])+ pub const $name: u16 = $number;)*

        /// All registers, by file and number.
        pub const ALL: &[Register] = &[$(Register {
            file: File::$file,
            number: $number,
            name: stringify!($name),
            access: Access::$access,
            reset: 0 $(+ $reset)?,
            bits: u16::MAX $(& $bits)?,
        },)*];
    };
}

registers! {
    /// Status and control: initialization, start, stop, interrupt causes.
    Csr CSR0_STATUS 0 Acts = 0x0004;
    /// Address of the initialization block, low half.
    Csr CSR1_IADR 1 Plain;
    /// Address of the initialization block, high half.
    Csr CSR2_IADR 2 Plain;
    /// Interrupt masks and deferral.
    Csr CSR3_MASK 3 Acts & 0x5f7c;
    /// Features and further masks.
    Csr CSR4_FEATURES 4 Plain = 0x0115 & 0xfd15;
    /// Extended control: suspend.
    Csr CSR5_EXTENDED 5 Acts & 0x0015;
    /// Lengths of the rings in the initialization block.
    Csr CSR6_LENGTHS 6 ReadOnly;
    /// The multicast filter.
    Csr CSR8_LADRF 8 Plain;
    /// The multicast filter.
    Csr CSR9_LADRF 9 Plain;
    /// The multicast filter.
    Csr CSR10_LADRF 10 Plain;
    /// The multicast filter.
    Csr CSR11_LADRF 11 Plain;
    /// The MAC address.
    Csr CSR12_PADR 12 Plain;
    /// The MAC address.
    Csr CSR13_PADR 13 Plain;
    /// The MAC address.
    Csr CSR14_PADR 14 Plain;
    /// Mode: promiscuous, no broadcast, transmitter and receiver disabled.
    Csr CSR15_MODE 15 Plain;
    /// Address of the receive ring, low half.
    Csr CSR24_BADR 24 Plain;
    /// Address of the receive ring, high half.
    Csr CSR25_BADR 25 Plain;
    /// Address of the transmit ring, low half.
    Csr CSR30_BADX 30 Plain;
    /// Address of the transmit ring, high half.
    Csr CSR31_BADX 31 Plain;
    /// Interval at which the chip looks at the transmit ring; it is looked at when the driver demands it.
    Csr CSR47_POLL 47 Plain;
    /// Software style, as BCR20.
    Csr CSR58_STYLE 58 Acts = 0x0200 & 0x00ff;
    /// Length of the receive ring, negated.
    Csr CSR76_RCVRL 76 Plain;
    /// Length of the transmit ring, negated.
    Csr CSR78_XMTRL 78 Plain;
    /// FIFO thresholds.
    Csr CSR80_FIFO 80 Plain = 0x1410;
    /// Bus timer.
    Csr CSR82_TIMER 82 Plain;
    /// The chip's number and version, low half.
    Csr CSR88_CHIPID 88 ReadOnly = 0x1003;
    /// The chip's number and version, high half.
    Csr CSR89_CHIPID 89 ReadOnly = 0x0262;
    /// Time limit for bus requests.
    Csr CSR100_TIMEOUT 100 Plain = 0x0200;
    /// Missed frames; a write clears them.
    Csr CSR112_MISSED 112 ReadOnly;
    /// Collisions; a write clears them.
    Csr CSR114_COLLISIONS 114 ReadOnly;
    /// Tests.
    Csr CSR124_TEST 124 Plain;
    /// Bus cycles for reads, without effect.
    Bcr BCR0_MSRDA 0 Plain = 0x0005;
    /// Bus cycles for writes, without effect.
    Bcr BCR1_MSWRA 1 Plain = 0x0005;
    /// Miscellaneous: selection of the medium.
    Bcr BCR2_MISC 2 Plain = 0x0002;
    /// Link status and its light.
    Bcr BCR4_LINK 4 Acts = 0x00c0;
    /// Light for received frames.
    Bcr BCR5_LED1 5 Plain = 0x0084;
    /// Light for polarity.
    Bcr BCR6_LED2 6 Plain = 0x0088;
    /// Light for sent frames.
    Bcr BCR7_LED3 7 Plain = 0x0090;
    /// Full duplex.
    Bcr BCR9_DUPLEX 9 Plain & 0x0007;
    /// I/O base address, low half, without effect.
    Bcr BCR16_IOBASE 16 Plain;
    /// I/O base address, high half, without effect.
    Bcr BCR17_IOBASE 17 Plain;
    /// Bursts on the bus, without effect; whether registers are accessed as 32 bits.
    Bcr BCR18_BURST 18 Acts = 0x9001 & 0xfb67;
    /// Pins of the EEPROM, which is not there.
    Bcr BCR19_EEPROM 19 ReadOnly = 0x0002;
    /// Software style: what descriptors and the initialization block look like.
    Bcr BCR20_STYLE 20 Acts = 0x0200 & 0x00ff;
    /// PCI latencies.
    Bcr BCR22_LATENCY 22 Plain = 0xff06;
}

/// A register's row, and its place in the list.
pub(crate) fn find(file: File, number: u16) -> Option<(&'static Register, usize)> {
    let place = ALL.iter().position(|row| (row.file, row.number) == (file, number))?;
    Some((&ALL[place], place))
}

/// What an access of `len` bytes at `offset` reaches; `wide`: registers are accessed as 32 bits.
pub(crate) fn window(offset: u64, len: usize, wide: bool) -> Option<Window> {
    let (size, shift) = if wide { (4, 2) } else { (2, 1) };
    let at = offset.checked_sub(FIRST.into())?;
    if len != size || at % size as u64 != 0 {
        return None;
    }
    [Window::Rdp, Window::Rap, Window::Reset, Window::Bdp].get((at >> shift) as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_found_by_file_and_number() {
        let names = [(File::Csr, 0), (File::Bcr, 0), (File::Csr, 7), (File::Bcr, 20)]
            .map(|(file, number)| find(file, number).map(|(row, _)| row.name));
        assert_eq!(names, [Some("CSR0_STATUS"), Some("BCR0_MSRDA"), None, Some("BCR20_STYLE")]);
        assert!(ALL.iter().all(|row| row.name.starts_with(match row.file {
            File::Csr => "CSR",
            File::Bcr => "BCR",
        })));
    }

    #[test]
    fn the_window_has_two_widths() {
        use Window::{Bdp, Rap, Rdp, Reset};
        let narrow = [0x10, 0x12, 0x14, 0x16, 0x18].map(|at| window(at, 2, false));
        assert_eq!(narrow, [Some(Rdp), Some(Rap), Some(Reset), Some(Bdp), None]);
        let wide = [0x10, 0x14, 0x18, 0x1c, 0x12, u64::MAX - 3].map(|at| window(at, 4, true));
        assert_eq!(wide, [Some(Rdp), Some(Rap), Some(Reset), Some(Bdp), None, None]);
        let other = [window(0x10, 4, false), window(0x10, 1, false), window(0xf, 2, false)];
        assert_eq!(other, [None; 3]);
    }
}
