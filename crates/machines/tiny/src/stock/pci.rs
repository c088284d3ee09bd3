//! Devices on PCI (virtio 1.3, 4.1): the functions of a machine, their capabilities, and the device that these
//! describe.

use super::mmio::NETWORK;
use super::transport::{DeviceError, QueueAddresses, Registers, Transport, Width, registers};
use alloc::vec::Vec;
use ringway_mem::{OwnedSpan, Region};

/// Vendor of virtio devices; numbers of modern and of transitional network devices.
const VIRTIO: u16 = 0x1af4;
const MODERN: u16 = 0x1040;
const TRANSITIONAL_NETWORK: u16 = 0x1000;
const LAST: u16 = 0x107f;

/// Offsets in the configuration space.
const ID: u8 = 0x00;
const COMMAND: u8 = 0x04;
const HEADER_TYPE: u8 = 0x0c;
const BAR: u8 = 0x10;
const SECONDARY_BUS: u8 = 0x18;
const CAPABILITIES: u8 = 0x34;
/// Bits of the command register: memory, bus master, no INTx; those for access to BARs. In the upper half, whose bits
/// are cleared by ones: there are capabilities.
const MEMORY: u32 = 1 << 1 | 1 << 2 | 1 << 10;
const DECODES: u32 = 0b11;
const COMMAND_BITS: u32 = 0xffff;
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Numbers of capabilities.
const MSI_X: u8 = 0x11;
const VENDOR: u8 = 0x09;
/// Types of virtio's.
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const DEVICE: u8 = 4;
/// Most capabilities: 4 bytes each behind the header.
const CAPABILITIES_MAX: usize = 48;
/// MSI-X is enabled, and not masked.
const MSI_X_ENABLED: u32 = 1 << 31;
const MSI_X_MASKED: u32 = 1 << 30;

/// The common configuration (virtio 1.3, 4.1.4.3).
const DEVICE_FEATURE_SELECT: u32 = 0;
const DEVICE_FEATURE: u32 = 4;
const DRIVER_FEATURE_SELECT: u32 = 8;
const DRIVER_FEATURE: u32 = 12;
const MSIX_CONFIG: u32 = 16;
const DEVICE_STATUS: u32 = 20;
const QUEUE_SELECT: u32 = 22;
const QUEUE_SIZE: u32 = 24;
const QUEUE_MSIX_VECTOR: u32 = 26;
const QUEUE_ENABLE: u32 = 28;
const QUEUE_NOTIFY_OFF: u32 = 30;
const QUEUE_DESC: u32 = 32;
const QUEUE_DRIVER: u32 = 40;
const QUEUE_DEVICE: u32 = 48;
/// Bytes of the common configuration, and of a network device's part that is used.
const COMMON_LEN: u32 = 56;
const CONFIG_LEN: u32 = 6;
const NO_VECTOR: u32 = 0xffff;
/// Queues of the driver.
const QUEUES: usize = 2;

/// A PCI function: bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function(pub u8, pub u8, pub u8);

impl core::fmt::Display for Function {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{:02x}:{:02x}.{}", self.0, self.1, self.2)
    }
}

/// The configuration space.
pub trait ConfigSpace {
    /// Reads four aligned bytes; all ones where there is no function.
    fn read(&self, function: Function, offset: u8) -> u32;
    /// Writes four aligned bytes.
    fn write(&self, function: Function, offset: u8, value: u32);
}

/// A range of a BAR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// Address of the range.
    pub address: u64,
    /// Its bytes.
    pub len: u32,
}

/// A virtio network device, as its capabilities describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The common configuration.
    pub common: Bar,
    /// The notification area.
    pub notify: Bar,
    /// Bytes between two notification addresses.
    pub multiplier: u32,
    /// The device's configuration.
    pub device: Bar,
    /// The first entry of the MSI-X table.
    pub vectors: Option<Bar>,
    /// Offset of the MSI-X capability.
    message: u8,
}

/// Why a function is no usable device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PciError {
    /// A BAR without an address, by its number.
    Unassigned(u8),
    /// A capability that points outside memory.
    Capability(u8),
    /// A capability that points beyond the end of this BAR.
    Beyond(u8),
    /// The device itself.
    Device(DeviceError),
}

impl core::fmt::Display for PciError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            PciError::Unassigned(bar) => write!(out, "no firmware has given its BAR {bar} an address"),
            PciError::Capability(at) => write!(out, "its capability at {at:#x} is not valid"),
            PciError::Beyond(bar) => write!(out, "a capability points beyond its BAR {bar}"),
            PciError::Device(error) => error.fmt(out),
        }
    }
}

impl From<DeviceError> for PciError {
    fn from(error: DeviceError) -> PciError {
        PciError::Device(error)
    }
}

/// The virtio network devices, in the order of their numbers; those behind bridges follow.
pub fn functions(space: &impl ConfigSpace) -> Vec<Function> {
    let (mut found, mut busses, mut next) = (Vec::new(), alloc::vec![0_u8], 0);
    while let Some(&bus) = busses.get(next) {
        next += 1;
        for device in 0..32 {
            // Function 0 is there if any is, and says whether there are others.
            let first = Function(bus, device, 0);
            if space.read(first, ID) == u32::MAX {
                continue;
            }
            let several = space.read(first, HEADER_TYPE) & 1 << 23 != 0;
            for number in 0..if several { 8 } else { 1 } {
                let function = Function(bus, device, number);
                let id = space.read(function, ID);
                if id == u32::MAX {
                    continue;
                }
                if space.read(function, HEADER_TYPE) >> 16 & 0x7f == 1 {
                    let below = (space.read(function, SECONDARY_BUS) >> 8) as u8;
                    // Attack: bridges in a circle. A bus is looked at once.
                    if below != 0 && !busses.contains(&below) {
                        busses.push(below);
                    }
                }
                let (vendor, kind) = (id as u16, (id >> 16) as u16);
                let is_network = kind == MODERN + NETWORK as u16 || kind == TRANSITIONAL_NETWORK;
                if vendor == VIRTIO && kind <= LAST && is_network {
                    found.push(function);
                }
            }
        }
    }
    found
}

impl Found {
    /// Reads the function's capabilities.
    ///
    /// # Errors
    /// The device is no modern one, or its registers can't be reached.
    pub fn read(space: &impl ConfigSpace, function: Function) -> Result<Found, PciError> {
        let mut found = Found::default();
        if space.read(function, COMMAND) & HAS_CAPABILITIES == 0 {
            return Err(DeviceError::Legacy.into());
        }
        let mut at = space.read(function, CAPABILITIES) as u8 & 0xfc;
        // Attack: a list in a circle.
        for _ in 0..CAPABILITIES_MAX {
            // The last part of the space is too short for a capability with its fields.
            if !(0x40..=0xf0).contains(&at) {
                break;
            }
            let head = space.read(function, at);
            match head as u8 {
                VENDOR => found.add_capability(space, function, at, (head >> 24) as u8)?,
                MSI_X => {
                    let table = space.read(function, at + 4);
                    let range = bar(space, function, table as u8 & 7, table & !7, 16);
                    (found.vectors, found.message) = (range.ok(), at);
                }
                _ => {}
            }
            at = (head >> 8) as u8 & 0xfc;
        }
        if found.common.len < COMMON_LEN || found.notify.len < 2 || found.device.len < CONFIG_LEN {
            return Err(DeviceError::Legacy.into());
        }
        Ok(found)
    }

    /// Notes a capability of virtio, if it is the first of its type.
    fn add_capability(
        &mut self,
        space: &impl ConfigSpace,
        function: Function,
        at: u8,
        kind: u8,
    ) -> Result<(), PciError> {
        let place = match kind {
            COMMON => &mut self.common,
            NOTIFY => &mut self.notify,
            DEVICE => &mut self.device,
            _ => return Ok(()),
        };
        if place.len != 0 {
            return Ok(());
        }
        let [number, offset, len] = [4, 8, 12].map(|word| space.read(function, at + word));
        if offset % 4 != 0 {
            return Err(PciError::Capability(at));
        }
        *place = bar(space, function, number as u8, offset, len)?;
        if kind == NOTIFY {
            // The fields of this capability have 20 bytes.
            self.multiplier = if at <= 0xec { space.read(function, at + 16) } else { 0 };
        }
        Ok(())
    }

    /// Lets the device use its registers and the memory, and its first vector cause the message `data` at `address`
    /// unless there is none. Returns whether the vector is on.
    pub fn enable(
        &self,
        space: &impl ConfigSpace,
        function: Function,
        message: Option<(u32, u32, Region)>,
    ) -> bool {
        space.write(function, COMMAND, MEMORY);
        let Some((address, data, entry)) = message else { return false };
        let Some(entry) = registers(entry) else { return false };
        let control = space.read(function, self.message);
        // The table is accessible once MSI-X is enabled.
        space.write(function, self.message, control | MSI_X_ENABLED | MSI_X_MASKED);
        for (offset, value) in [(0, address), (4, 0), (8, data), (12, 0)] {
            entry.write(offset, Width::Word, value);
        }
        space.write(function, self.message, (control | MSI_X_ENABLED) & !MSI_X_MASKED);
        space.read(function, self.message) & (MSI_X_ENABLED | MSI_X_MASKED) == MSI_X_ENABLED
    }
}

/// A range of a function's BAR.
fn bar(
    space: &impl ConfigSpace,
    function: Function,
    number: u8,
    offset: u32,
    len: u32,
) -> Result<Bar, PciError> {
    if number > 5 {
        return Err(PciError::Unassigned(number));
    }
    let low = space.read(function, BAR + 4 * number);
    let is_long = low & 7 == 4;
    let high = if is_long && number < 5 { space.read(function, BAR + 4 * (number + 1)) } else { 0 };
    let base = u64::from(low & !0xf) | u64::from(high) << 32;
    // An I/O port, half of an address, or none.
    if low & 1 != 0 || is_long && number == 5 || base == 0 {
        return Err(PciError::Unassigned(number));
    }
    let size = size(space, function, BAR + 4 * number, low, is_long.then_some(high));
    // All ones are not even an address that could be given.
    if size == 0 || base % size != 0 || base.checked_add(size).is_none() {
        return Err(PciError::Unassigned(number));
    }
    // Attack: registers beyond the BAR are those of another device, or memory.
    if u64::from(offset) + u64::from(len) > size {
        return Err(PciError::Beyond(number));
    }
    Ok(Bar { address: base + u64::from(offset), len })
}

/// Bytes of a BAR with these values; 0 if there is none. Bits of an address that are lower than the size can't be set.
fn size(space: &impl ConfigSpace, function: Function, bar: u8, low: u32, high: Option<u32>) -> u64 {
    let command = space.read(function, COMMAND) & COMMAND_BITS;
    // Nothing is accessed where it is not.
    space.write(function, COMMAND, command & !DECODES);
    let ones = |at: u8, value: u32| {
        space.write(function, at, u32::MAX);
        let kept = space.read(function, at);
        space.write(function, at, value);
        kept
    };
    let mask = ones(bar, low) & !0xf;
    let upper = high.map_or(u32::MAX, |high| ones(bar + 4, high));
    space.write(function, COMMAND, command);
    let mask = u64::from(mask) | u64::from(upper) << 32;
    mask & mask.wrapping_neg()
}

/// A device on PCI.
#[derive(Debug)]
pub struct Pci<R = OwnedSpan> {
    common: R,
    notify: R,
    device: R,
    multiplier: u32,
    /// Offset of each queue's notification address.
    places: [u32; QUEUES],
    interrupts: bool,
}

impl Pci {
    /// The device with its three parts. `interrupts`: its first vector arrives.
    ///
    /// # Errors
    /// A part can't be accessed.
    pub fn new(
        [common, notify, device]: [Region; 3],
        multiplier: u32,
        interrupts: bool,
    ) -> Result<Pci, DeviceError> {
        let part = |region| registers(region).ok_or(DeviceError::Absent);
        Ok(Pci::over([part(common)?, part(notify)?, part(device)?], multiplier, interrupts))
    }
}

impl<R: Registers> Pci<R> {
    /// The device with these registers: the common configuration, the notification area, its own configuration.
    pub fn over([common, notify, device]: [R; 3], multiplier: u32, interrupts: bool) -> Pci<R> {
        Pci { common, notify, device, multiplier, places: [0; QUEUES], interrupts }
    }

    fn half(&self, offset: u32) -> u32 {
        self.common.read(offset, Width::Half)
    }

    fn set_half(&self, offset: u32, value: u32) {
        self.common.write(offset, Width::Half, value);
    }

    fn set_word(&self, offset: u32, value: u32) {
        self.common.write(offset, Width::Word, value);
    }
}

impl<R: Registers> Transport for Pci<R> {
    fn status(&self) -> u8 {
        self.common.read(DEVICE_STATUS, Width::Byte) as u8
    }

    fn set_status(&self, status: u8) {
        self.common.write(DEVICE_STATUS, Width::Byte, status.into());
    }

    fn features(&self) -> u64 {
        let half = |half| {
            self.set_word(DEVICE_FEATURE_SELECT, half);
            u64::from(self.common.read(DEVICE_FEATURE, Width::Word))
        };
        half(0) | half(1) << 32
    }

    fn accept(&self, features: u64) {
        for half in 0..2 {
            self.set_word(DRIVER_FEATURE_SELECT, half);
            self.set_word(DRIVER_FEATURE, (features >> (32 * half)) as u32);
        }
    }

    fn queue_max(&mut self, queue: u16) -> u16 {
        self.set_half(QUEUE_SELECT, queue.into());
        self.half(QUEUE_SIZE) as u16
    }

    fn start_queue(&mut self, queue: u16, place: &QueueAddresses) -> bool {
        self.set_half(QUEUE_SELECT, queue.into());
        self.set_half(QUEUE_SIZE, place.size.into());
        let vector = if self.interrupts { 0 } else { NO_VECTOR };
        self.set_half(MSIX_CONFIG, NO_VECTOR);
        self.set_half(QUEUE_MSIX_VECTOR, vector);
        // A device without resources for a vector has none.
        self.interrupts = self.interrupts && self.half(QUEUE_MSIX_VECTOR) == vector;
        for (offset, address) in
            [(QUEUE_DESC, place.descriptors), (QUEUE_DRIVER, place.driver), (QUEUE_DEVICE, place.device)]
        {
            self.set_word(offset, address as u32);
            self.set_word(offset + 4, (address >> 32) as u32);
        }
        let at = self.half(QUEUE_NOTIFY_OFF).checked_mul(self.multiplier);
        let (Some(place), Some(at)) = (self.places.get_mut(usize::from(queue)), at) else { return false };
        *place = at;
        self.set_half(QUEUE_ENABLE, 1);
        self.half(QUEUE_ENABLE) == 1
    }

    fn config(&self, offset: u32) -> u8 {
        self.device.read(offset, Width::Byte) as u8
    }

    fn kick(&self, queue: u16) {
        // Attack: a place beyond the notification area. Nothing is written there.
        if let Some(&at) = self.places.get(usize::from(queue)) {
            self.notify.write(at, Width::Half, queue.into());
        }
    }

    fn acknowledge(&self) {}

    fn interrupts(&self) -> bool {
        self.interrupts
    }
}
