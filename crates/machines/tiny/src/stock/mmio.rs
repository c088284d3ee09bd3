//! Devices at an address (virtio 1.3, 4.2).

use super::transport::{DeviceError, QueueAddresses, Registers, Transport, Width, registers};
use ringway_mem::{OwnedSpan, Region};

/// `virt`.
const MAGIC_VALUE: u32 = 0x7472_6976;
/// A device of virtio 1.0 and later.
const MODERN: u32 = 2;
/// Type of network devices.
pub(super) const NETWORK: u32 = 1;

const MAGIC: u32 = 0x000;
const VERSION: u32 = 0x004;
const DEVICE_ID: u32 = 0x008;
const DEVICE_FEATURES: u32 = 0x010;
const DEVICE_FEATURES_SEL: u32 = 0x014;
const DRIVER_FEATURES: u32 = 0x020;
const DRIVER_FEATURES_SEL: u32 = 0x024;
const QUEUE_SEL: u32 = 0x030;
const QUEUE_NUM_MAX: u32 = 0x034;
const QUEUE_NUM: u32 = 0x038;
const QUEUE_READY: u32 = 0x044;
const QUEUE_NOTIFY: u32 = 0x050;
const INTERRUPT_STATUS: u32 = 0x060;
const INTERRUPT_ACK: u32 = 0x064;
const STATUS: u32 = 0x070;
const QUEUE_DESC: u32 = 0x080;
const QUEUE_DRIVER: u32 = 0x090;
const QUEUE_DEVICE: u32 = 0x0a0;
const CONFIG: u32 = 0x100;

/// A device of `virtio-mmio`.
#[derive(Debug)]
pub struct Mmio<R = OwnedSpan> {
    registers: R,
    interrupts: bool,
}

impl Mmio {
    /// The network device in this region. `interrupts`: its interrupts arrive.
    ///
    /// # Errors
    /// There is none that can be used.
    pub fn new(region: Region, interrupts: bool) -> Result<Mmio, DeviceError> {
        Mmio::over(registers(region).ok_or(DeviceError::Absent)?, interrupts)
    }
}

impl<R: Registers> Mmio<R> {
    /// The network device with these registers.
    ///
    /// # Errors
    /// There is none that can be used.
    pub fn over(registers: R, interrupts: bool) -> Result<Mmio<R>, DeviceError> {
        let device = Mmio { registers, interrupts };
        if device.read(MAGIC) != MAGIC_VALUE {
            return Err(DeviceError::Absent);
        }
        if device.read(VERSION) < MODERN {
            return Err(DeviceError::Legacy);
        }
        match device.read(DEVICE_ID) {
            NETWORK => Ok(device),
            0 => Err(DeviceError::Absent),
            other => Err(DeviceError::Type(other)),
        }
    }

    fn read(&self, offset: u32) -> u32 {
        self.registers.read(offset, Width::Word)
    }

    fn write(&self, offset: u32, value: u32) {
        self.registers.write(offset, Width::Word, value);
    }

    fn write_long(&self, offset: u32, value: u64) {
        self.write(offset, value as u32);
        self.write(offset + 4, (value >> 32) as u32);
    }
}

impl<R: Registers> Transport for Mmio<R> {
    fn status(&self) -> u8 {
        self.read(STATUS) as u8
    }

    fn set_status(&self, status: u8) {
        self.write(STATUS, status.into());
    }

    fn features(&self) -> u64 {
        let half = |half| {
            self.write(DEVICE_FEATURES_SEL, half);
            u64::from(self.read(DEVICE_FEATURES))
        };
        half(0) | half(1) << 32
    }

    fn accept(&self, features: u64) {
        for half in 0..2 {
            self.write(DRIVER_FEATURES_SEL, half);
            self.write(DRIVER_FEATURES, (features >> (32 * half)) as u32);
        }
    }

    fn queue_max(&mut self, queue: u16) -> u16 {
        self.write(QUEUE_SEL, queue.into());
        // A queue in use is not the driver's.
        if self.read(QUEUE_READY) != 0 {
            return 0;
        }
        self.read(QUEUE_NUM_MAX).min(u16::MAX.into()) as u16
    }

    fn start_queue(&mut self, queue: u16, place: &QueueAddresses) -> bool {
        self.write(QUEUE_SEL, queue.into());
        self.write(QUEUE_NUM, place.size.into());
        self.write_long(QUEUE_DESC, place.descriptors);
        self.write_long(QUEUE_DRIVER, place.driver);
        self.write_long(QUEUE_DEVICE, place.device);
        self.write(QUEUE_READY, 1);
        self.read(QUEUE_READY) == 1
    }

    fn config(&self, offset: u32) -> u8 {
        self.registers.read(CONFIG + offset, Width::Byte) as u8
    }

    fn kick(&self, queue: u16) {
        self.write(QUEUE_NOTIFY, queue.into());
    }

    fn acknowledge(&self) {
        // The line falls, so that the next interrupt is an edge.
        let causes = self.read(INTERRUPT_STATUS);
        if causes != 0 {
            self.write(INTERRUPT_ACK, causes);
        }
    }

    fn interrupts(&self) -> bool {
        self.interrupts
    }
}
