//! The registers of the e1000 family by name. Offsets are from the start of BAR 0.

pub use crate::device::Access;

/// One register, or an array of them.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    /// The offset of its first word.
    pub offset: u32,
    /// How many words it has.
    pub count: u32,
    /// Its name in Intel's manuals.
    pub name: &'static str,
    /// What an access does.
    pub access: Access,
    /// Its value after a reset.
    pub reset: u32,
    /// The bits that it has.
    pub bits: u32,
}

impl Register {
    /// Whether it may lie in pages that the guest maps.
    pub fn is_mapped(&self) -> bool {
        crate::e1000::shared::in_pages(self.offset)
    }
}

macro_rules! registers {
    ($(#[doc = $all:literal])* $table:ident: $($(#[doc = $doc:literal])+
        $name:ident $offset:literal $([$count:literal])? $access:ident
        $(= $reset:literal)? $(& $bits:literal)?;)*) => {
        $($(#[doc = $doc])+ pub const $name: u32 = $offset;)*

        $(#[doc = $all])*
        pub const $table: &[$crate::e1000::registers::Register] = &[$($crate::e1000::registers::Register {
            offset: $offset,
            count: 1 $(- 1 + $count)?,
            name: stringify!($name),
            access: $crate::e1000::registers::Access::$access,
            reset: 0 $(+ $reset)?,
            bits: u32::MAX $(& $bits)?,
        },)*];
    };
}

registers! {
    /// The registers that all models have, in the order of their offsets.
    COMMON:
    /// Device control.
    CTRL 0x0000 Acts = 0x0000_0201;
    /// Device status.
    STATUS 0x0008 ReadOnly = 0x0000_0281;
    /// EEPROM control and data: its pins.
    EECD 0x0010 Acts;
    /// EEPROM read.
    EERD 0x0014 Acts;
    /// Extended device control.
    CTRL_EXT 0x0018 Acts;
    /// MDI control: access to the PHY.
    MDIC 0x0020 Acts;
    /// Flow control address, low half.
    FCAL 0x0028 Plain = 0x00c2_8001;
    /// Flow control address, high half.
    FCAH 0x002c Plain = 0x0000_0100 & 0xffff;
    /// Flow control type.
    FCT 0x0030 Plain = 0x0000_8808 & 0xffff;
    /// EtherType of VLAN tags.
    VET 0x0038 Plain = 0x0000_8100 & 0xffff;
    /// Interrupt causes.
    ICR 0x00c0 ClearOnRead;
    /// Interrupt throttling: the shortest interval in units of 256 ns.
    ITR 0x00c4 Acts;
    /// Sets interrupt causes.
    ICS 0x00c8 WriteOnly;
    /// Interrupt mask; a write sets bits.
    IMS 0x00d0 Acts;
    /// Clears bits of the interrupt mask.
    IMC 0x00d8 WriteOnly;
    /// Receive control.
    RCTL 0x0100 Acts;
    /// Flow control transmit timer.
    FCTTV 0x0170 Plain & 0xffff;
    /// Transmit configuration word (fibre only).
    TXCW 0x0178 Plain & 0xc000_ffff;
    /// Receive configuration word (fibre only).
    RXCW 0x0180 ReadOnly;
    /// Transmit control.
    TCTL 0x0400 Acts;
    /// Transmit inter-packet gap.
    TIPG 0x0410 Plain = 0x0060_200a & 0x3fff_ffff;
    /// Adaptive inter-frame spacing.
    AIT 0x0458 Plain;
    /// LED control.
    LEDCTL 0x0e00 Plain = 0x0706_8302;
    /// Packet buffer allocation.
    PBA 0x1000 Plain = 0x0010_0030;
    /// Flow control receive threshold, low.
    FCRTL 0x2160 Plain & 0x8000_fff8;
    /// Flow control receive threshold, high.
    FCRTH 0x2168 Plain & 0x8000_fff8;
    /// Receive data FIFO: head, tail, saved head, saved tail and packet count, for diagnosis.
    RDFH 0x2410 [9] Plain;
    /// Receive ring's base, low half.
    RDBAL 0x2800 Acts & 0xffff_fff0;
    /// Receive ring's base, high half.
    RDBAH 0x2804 Acts;
    /// Receive ring's length in bytes.
    RDLEN 0x2808 Acts & 0x000f_ff80;
    /// Receive ring's head, which the device moves.
    RDH 0x2810 Acts & 0xffff;
    /// Receive ring's tail, which the driver moves.
    RDT 0x2818 Acts & 0xffff;
    /// Receive interrupt delay after the last frame, in units of 1.024 us.
    RDTR 0x2820 Acts;
    /// Receive descriptor control.
    RXDCTL 0x2828 Plain = 0x0001_0000;
    /// Receive interrupt delay after the first frame, in units of 1.024 us.
    RADV 0x282c Plain;
    /// Address of the shared block, low half. A write of it takes the address over. Not Intel's.
    CSBAL 0x2830 Acts;
    /// Address of the shared block, high half. Not Intel's.
    CSBAH 0x2834 Plain;
    /// Transmit doorbell of a driver with a shared block, where the tail is: any write wakes the device. Not Intel's.
    CSBTXKICK 0x2838 WriteOnly;
    /// Frames up to this size raise the small packet interrupt.
    RSRPD 0x2c00 Plain;
    /// Transmit DMA control.
    TXDMAC 0x3000 Plain;
    /// Transmit data FIFO: head, tail, saved head, saved tail and packet count, for diagnosis.
    TDFH 0x3410 [9] Plain;
    /// Transmit ring's base, low half.
    TDBAL 0x3800 Acts & 0xffff_fff0;
    /// Transmit ring's base, high half.
    TDBAH 0x3804 Acts;
    /// Transmit ring's length in bytes.
    TDLEN 0x3808 Acts & 0x000f_ff80;
    /// Transmit ring's head, which the device moves.
    TDH 0x3810 Acts & 0xffff;
    /// Transmit ring's tail, which the driver moves.
    TDT 0x3818 Acts & 0xffff;
    /// Transmit interrupt delay after the last frame, in units of 1.024 us.
    TIDV 0x3820 Acts;
    /// Transmit descriptor control.
    TXDCTL 0x3828 Plain;
    /// Transmit interrupt delay after the first frame, in units of 1.024 us.
    TADV 0x382c Plain;
    /// TCP segmentation pad and threshold.
    TSPMT 0x3830 Plain = 0x0100_0400;
    /// Statistics, from CRC errors to PAUSE frames; each has a row of its own if it is counted.
    CRCERRS 0x4000 [16] ClearOnRead;
    /// Other errors and flow control frames.
    RXERRC 0x4040 [7] ClearOnRead;
    /// Received frames by size, up to 64 bytes; lengths here include the CRC.
    PRC64 0x405c ClearOnRead;
    /// Up to 127 bytes.
    PRC127 0x4060 ClearOnRead;
    /// Up to 255 bytes.
    PRC255 0x4064 ClearOnRead;
    /// Up to 511 bytes.
    PRC511 0x4068 ClearOnRead;
    /// Up to 1023 bytes.
    PRC1023 0x406c ClearOnRead;
    /// Longer ones.
    PRC1522 0x4070 ClearOnRead;
    /// Good frames received.
    GPRC 0x4074 ClearOnRead;
    /// Broadcast frames received.
    BPRC 0x4078 ClearOnRead;
    /// Multicast frames received.
    MPRC 0x407c ClearOnRead;
    /// Good frames transmitted.
    GPTC 0x4080 ClearOnRead;
    /// Good bytes received, low half.
    GORCL 0x4088 ClearOnRead;
    /// Good bytes received, high half.
    GORCH 0x408c ClearOnRead;
    /// Good bytes transmitted, low half.
    GOTCL 0x4090 ClearOnRead;
    /// Good bytes transmitted, high half.
    GOTCH 0x4094 ClearOnRead;
    /// Times that receive buffers ran out.
    RNBC 0x40a0 ClearOnRead;
    /// Undersized frames.
    RUC 0x40a4 ClearOnRead;
    /// Fragments.
    RFC 0x40a8 ClearOnRead;
    /// Oversized frames.
    ROC 0x40ac ClearOnRead;
    /// Jabbers, and management frames.
    RJC 0x40b0 [4] ClearOnRead;
    /// All bytes received, low half.
    TORL 0x40c0 ClearOnRead;
    /// All bytes received, high half.
    TORH 0x40c4 ClearOnRead;
    /// All bytes transmitted, low half.
    TOTL 0x40c8 ClearOnRead;
    /// All bytes transmitted, high half.
    TOTH 0x40cc ClearOnRead;
    /// All frames received.
    TPR 0x40d0 ClearOnRead;
    /// All frames transmitted.
    TPT 0x40d4 ClearOnRead;
    /// Transmitted frames by size, up to 64 bytes.
    PTC64 0x40d8 ClearOnRead;
    /// Up to 127 bytes.
    PTC127 0x40dc ClearOnRead;
    /// Up to 255 bytes.
    PTC255 0x40e0 ClearOnRead;
    /// Up to 511 bytes.
    PTC511 0x40e4 ClearOnRead;
    /// Up to 1023 bytes.
    PTC1023 0x40e8 ClearOnRead;
    /// Longer ones.
    PTC1522 0x40ec ClearOnRead;
    /// Multicast frames transmitted.
    MPTC 0x40f0 ClearOnRead;
    /// Broadcast frames transmitted.
    BPTC 0x40f4 ClearOnRead;
    /// Frames segmented on transmission.
    TSCTC 0x40f8 ClearOnRead;
    /// Frames whose segmentation failed.
    TSCTFC 0x40fc ClearOnRead;
    /// Receive checksum control.
    RXCSUM 0x5000 Plain;
    /// Receive filter control.
    RFCTL 0x5008 Plain;
    /// Multicast table.
    MTA 0x5200 [128] Plain;
    /// Receive addresses: low and high halves in turn.
    RA 0x5400 [32] Plain;
    /// VLAN filter table.
    VFTA 0x5600 [128] Plain;
    /// Wakeup control.
    WUC 0x5800 Plain;
    /// Wakeup filter control.
    WUFC 0x5808 Plain;
    /// Wakeup status.
    WUS 0x5810 Plain;
    /// Management control.
    MANC 0x5820 Plain;
}

registers! {
    /// The registers that PCI Express models add, as far as drivers use them, in the order of their offsets.
    EXPRESS:
    /// Device control, again.
    CTRL_DUP 0x0004 Acts = 0x0000_0201;
    /// Causes that an MSI-X message clears.
    EIAC 0x00dc Acts;
    /// Causes that an access to ICR masks.
    IAM 0x00e0 Acts;
    /// Vectors of causes.
    IVAR 0x00e4 Acts;
    /// Interrupt throttling by vector, in units of 256 ns.
    EITR 0x00e8 [5] Acts;
    /// Configuration control, with the semaphore between software and firmware.
    EXTCNF_CTRL 0x0f00 Plain;
    /// Configuration size.
    EXTCNF_SIZE 0x0f08 Plain;
    /// PHY control.
    PHY_CTRL 0x0f10 Plain;
    /// Management EEPROM control: the configuration is done.
    EEMNGCTL 0x1010 Plain = 0x8004_0000;
    /// EEPROM write.
    EEWR 0x102c Plain;
    /// Early receive threshold.
    ERT 0x2008 Plain;
    /// Packet split control.
    PSRCTL 0x2170 Plain = 0x0004_0402;
    /// The second receive queue's registers, which no queue is behind.
    RDBAL1 0x2900 [12] Plain;
    /// Receive ACK interrupt delay.
    RAID 0x2c08 Plain;
    /// Arbitration between transmit queues.
    TARC0 0x3840 Plain = 0x0000_0403;
    /// The second transmit queue's registers, which no queue is behind.
    TDBAL1 0x3900 [11] Plain;
    /// Arbitration between transmit queues.
    TARC1 0x3940 Plain = 0x0000_0403;
    /// Interrupts by cause.
    IAC 0x4100 [10] ClearOnRead;
    /// Queues for received frames.
    MRQC 0x5818 Plain;
    /// PCI Express control.
    GCR 0x5b00 Plain;
    /// Function and power state.
    FACTPS 0x5b30 Plain;
    /// Semaphores between drivers, and with firmware. Only one driver uses the device, so it always gets them.
    SWSM 0x5b50 Plain;
    /// Firmware semaphore: there is no firmware.
    FWSM 0x5b54 ReadOnly;
    /// Second semaphore.
    SWSM2 0x5b58 Plain;
    /// PCI Express control.
    GCR2 0x5b64 Plain;
    /// Clears pending MSI-X bits.
    PBACLR 0x5b68 Plain;
    /// Redirection table.
    RETA 0x5c00 [32] Plain;
    /// Hash key.
    RSSRK 0x5c80 [10] Plain;
    /// The precision clock, which doesn't run, and its increment.
    SYSTIML 0xb600 [3] Plain;
    /// Transmit time stamps.
    TSYNCTXCTL 0xb614 [3] Plain;
    /// Receive time stamps.
    TSYNCRXCTL 0xb620 [7] Plain;
}

/// A register's row, and the row's number among those of all tables.
pub(crate) fn find(
    tables: &'static [&'static [Register]],
    offset: u32,
) -> Option<(&'static Register, usize)> {
    let mut before = 0;
    for rows in tables {
        let after = rows.partition_point(|row| row.offset <= offset);
        if let Some(row) = after.checked_sub(1).map(|at| &rows[at])
            && offset < row.offset + 4 * row.count
        {
            return Some((row, before + after - 1));
        }
        before += rows.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_found_by_each_of_its_words() {
        let name = |offset: u32| find(&[COMMON, EXPRESS], offset).map(|(row, _)| row.name);
        let names = [0x00c0, 0x53fc, 0x0004, 0x1_fffc].map(name);
        assert_eq!(names, [Some("ICR"), Some("MTA"), Some("CTRL_DUP"), None]);
        let number = |offset: u32| find(&[COMMON, EXPRESS], offset).map(|(_, number)| number);
        assert_eq!((number(0), number(4)), (Some(0), Some(COMMON.len())));
        assert!(COMMON.windows(2).all(|pair| pair[0].offset + 4 * pair[0].count <= pair[1].offset));
    }
}
