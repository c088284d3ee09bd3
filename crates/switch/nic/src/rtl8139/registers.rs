//! The registers by name. Both base address registers show the same 256 bytes.

use crate::device::Access;

/// Bytes of all registers.
pub const SIZE: u32 = 256;

/// One register, of up to eight bytes.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    /// The offset of its first byte.
    pub offset: u32,
    /// How many bytes it has.
    pub len: u32,
    /// Its name in Realtek's data sheet.
    pub name: &'static str,
    /// What an access does.
    pub access: Access,
    /// Its value after power-on.
    pub reset: u64,
    /// The bits that can be written.
    pub bits: u64,
}

macro_rules! registers {
    ($($(#[doc = $doc:literal])+ $name:ident $offset:literal $len:literal $access:ident
        $(= $reset:literal)? $(& $bits:literal)?;)*) => {
        $($(#[doc = $doc])+ pub const $name: u32 = $offset;)*

        /// All registers, in the order of their offsets.
        pub const ALL: &[Register] = &[$(Register {
            offset: $offset,
            len: $len,
            name: stringify!($name),
            access: Access::$access,
            reset: 0 $(+ $reset)?,
            bits: u64::MAX >> (64 - 8 * $len) $(& $bits)?,
        },)*];
    };
}

registers! {
    /// The MAC address.
    IDR 0x00 6 Plain;
    /// The multicast filter: a bit for each hash.
    MAR 0x08 8 Plain;
    /// Where the statistics are written to; bit 3 has them written.
    DTCCR 0x10 8 Acts & 0xffff_ffff_ffff_ffc8;
    /// The transmit ring's address.
    TNPDS 0x20 8 Acts & 0xffff_ffff_ffff_ff00;
    /// The high-priority transmit ring's address, which no ring is behind.
    THPDS 0x28 8 Plain & 0xffff_ffff_ffff_ff00;
    /// Command: reset, receiver and transmitter enabled; the older mode's buffer is empty.
    CR 0x37 1 Acts = 0x01 & 0x1c;
    /// Interrupt mask.
    IMR 0x3c 2 Acts;
    /// Interrupt causes; written ones clear them.
    ISR 0x3e 2 Acts;
    /// Transmit configuration, and the chip's version.
    TCR 0x40 4 Acts = 0x7480_0000 & 0x0307_07f1;
    /// Receive configuration.
    RCR 0x44 4 Plain;
    /// Timer, which doesn't run.
    TCTR 0x48 4 ReadOnly;
    /// Missed frames; a write clears them.
    MPC 0x4c 4 ReadOnly;
    /// EEPROM: its pins; whether the configuration registers can be written.
    CR9346 0x50 1 Acts & 0xce;
    /// Configuration 0.
    CONFIG0 0x51 1 Acts;
    /// Configuration 1: memory and I/O are mapped.
    CONFIG1 0x52 1 Acts = 0x0c & 0xf3;
    /// Timer interrupt.
    TIMERINT 0x54 4 Plain;
    /// Media status: link (inverted), speed.
    MSR 0x58 1 ReadOnly = 0xd0;
    /// Configuration 3.
    CONFIG3 0x59 1 Acts;
    /// Configuration 4.
    CONFIG4 0x5a 1 Acts;
    /// Multiple interrupts.
    MULINT 0x5c 2 Plain;
    /// Revision.
    RERID 0x5e 1 ReadOnly = 0x10;
    /// Transmit status of the older mode.
    TSAD 0x60 2 ReadOnly;
    /// PHY: control.
    BMCR 0x62 2 Acts = 0x3100 & 0xb300;
    /// PHY: status.
    BMSR 0x64 2 ReadOnly = 0x7809;
    /// PHY: what is advertised.
    ANAR 0x66 2 Plain = 0x05e1;
    /// PHY: what the partner advertises.
    ANLPAR 0x68 2 ReadOnly;
    /// PHY: expansion.
    ANER 0x6a 2 ReadOnly = 0x0001;
    /// Wakeup: sums and patterns.
    CRC0 0x84 8 Plain;
    /// Address of the shared block, which is taken over when its lowest byte is written. Not Realtek's.
    CSBA 0xcc 8 Acts;
    /// Transmit doorbell of a driver with a shared block: any write wakes the device. Not Realtek's.
    CSBTXKICK 0xd4 4 WriteOnly;
    /// Configuration 5.
    CONFIG5 0xd8 1 Plain;
    /// Doorbells of the transmit rings, and the software interrupt.
    TPPOLL 0xd9 1 WriteOnly;
    /// C+ command: both rings enabled, checksums, VLAN.
    CPCR 0xe0 2 Acts & 0x03ff;
    /// The receive ring's address.
    RDSAR 0xe4 8 Acts & 0xffff_ffff_ffff_ff00;
    /// Transmit threshold.
    MTPS 0xec 1 Plain & 0x3f;
}

/// A register's row, and its number.
pub(crate) fn find(at: u32) -> Option<(&'static Register, usize)> {
    let number = ALL.partition_point(|row| row.offset <= at).checked_sub(1)?;
    let row = &ALL[number];
    (at < row.offset + row.len).then_some((row, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_found_by_each_of_its_bytes() {
        let names = [0x05, 0x06, 0x37, 0x3f, 0xeb, 0xff].map(|at| find(at).map(|(row, _)| row.name));
        assert_eq!(names, [Some("IDR"), None, Some("CR"), Some("ISR"), Some("RDSAR"), None]);
        assert!(ALL.windows(2).all(|pair| pair[0].offset + pair[0].len <= pair[1].offset));
        assert!(ALL.iter().all(|row| row.len <= 8 && row.offset + row.len <= SIZE));
    }
}
