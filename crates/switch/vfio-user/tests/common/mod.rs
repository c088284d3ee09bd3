//! A device that checks what a session promises.

use ringway_vfio_user::*;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// Bytes of the first region.
pub const BAR: usize = 0x6000;

/// A network card: registers of which two pages can be mapped, a configuration space, a pin, five vectors.
pub fn offer() -> Offer {
    let both = RegionInfo::READ | RegionInfo::WRITE;
    let mut regions = vec![Region::default(); pci::REGIONS];
    let areas = vec![Area { offset: 0x2000, size: 0x2000 }];
    let mapping = Some(Mapping { file: Arc::new(null()), offset: 0, areas });
    let doorbells = vec![RegionDoorbell { offset: 0x40, size: 4, eventfd: Arc::new(null()) }];
    regions[pci::BAR0 as usize] = Region { size: BAR as u64, flags: both, mapping, doorbells };
    regions[pci::ROM as usize] = Region { size: 0x1000, flags: RegionInfo::READ, ..Region::default() };
    regions[pci::CONFIG as usize] = Region { size: 256, flags: both, ..Region::default() };
    let mut irqs = vec![IrqType::default(); pci::IRQS];
    let pin = IrqType::EVENTFD | IrqType::MASKABLE | IrqType::AUTOMASKED;
    irqs[pci::INTX as usize] = IrqType { count: 1, flags: pin };
    irqs[pci::MSIX as usize] = IrqType { count: 5, flags: IrqType::EVENTFD | IrqType::NORESIZE };
    Offer { regions, irqs, maps: 4 }
}

/// Keeps what is written to it, and writes down the rest.
#[derive(Default)]
pub struct Memory {
    pub log: Vec<String>,
    pub bytes: BTreeMap<(u32, u64), u8>,
    pub maps: BTreeMap<u64, u64>,
    pub eventfds: BTreeSet<(Irq, IrqAction)>,
    pub refuse: bool,
}

impl Memory {
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn result(&self) -> Result<(), Refused> {
        if self.refuse { Err(Refused { errno: errno::EIO, reason: "no".into() }) } else { Ok(()) }
    }

    fn check(region: u32, offset: u64, len: usize) {
        let size = offer().regions[region as usize].size;
        assert!(len > 0 && offset.checked_add(len as u64).unwrap() <= size);
    }
}

impl Device for Memory {
    fn dma_map(&mut self, map: DmaMap, file: Option<OwnedFd>) -> Result<(), Refused> {
        let DmaMap { address, size, .. } = map;
        let last = |address: u64, size: u64| address.checked_add(size - 1).expect("a range wraps");
        let overlaps =
            |(&other, &bytes): (&u64, &u64)| other <= last(address, size) && address <= last(other, bytes);
        assert!(!self.maps.iter().any(overlaps), "ranges overlap");
        self.log.push(format!("map {address:#x} {size:#x} {} file {}", map.flags, file.is_some()));
        self.result()?;
        self.maps.insert(address, size);
        assert!(self.maps.len() <= 4);
        Ok(())
    }

    fn dma_unmap(&mut self, ranges: &[DmaRange]) {
        for DmaRange { address, size } in ranges {
            assert_eq!(self.maps.remove(address), Some(*size));
            self.log.push(format!("unmap {address:#x} {size:#x}"));
        }
    }

    fn read(&mut self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Refused> {
        Memory::check(region, offset, bytes.len());
        for (at, byte) in (offset..).zip(bytes) {
            *byte = self.bytes.get(&(region, at)).copied().unwrap_or(0);
        }
        self.result()
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        Memory::check(region, offset, bytes.len());
        self.result()?;
        self.bytes.extend((offset..).zip(bytes).map(|(at, byte)| ((region, at), *byte)));
        Ok(())
    }

    fn set_eventfd(&mut self, irq: Irq, action: IrqAction, eventfd: Option<OwnedFd>) -> Result<(), Refused> {
        assert!(irq.vector < offer().irqs[irq.index as usize].count);
        match eventfd {
            Some(_) => self.eventfds.insert((irq, action)),
            None => self.eventfds.remove(&(irq, action)),
        };
        self.result()
    }

    fn act(&mut self, irq: Irq, action: IrqAction) {
        assert!(irq.vector < offer().irqs[irq.index as usize].count);
        self.log.push(format!("{action:?} {}.{}", irq.index, irq.vector));
    }

    fn reset(&mut self) {
        self.log.push("reset".into());
        self.bytes.clear();
    }
}
