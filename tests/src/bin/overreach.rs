//! A user-space driver for a guest, which posts a buffer in kernel memory and waits for a frame: `overreach
//! DEVICE ADDRESS`, a PCI device without a kernel driver, named as in `/sys/bus/pci/devices`, and a physical
//! address in hexadecimal. Prints `offered` when the buffer is posted, and then `a frame came` or `nothing
//! came`.
//!
//! The program writes registers through the device's configuration space (virtio 1.3, 4.1.4.9), which needs no
//! mapping.
use ringway_host::{map_region, memfd};
use ringway_mem::{Hint, Memory, SpanMut};
use ringway_tests::eventually;
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

type Failure = Box<dyn Error + Send + Sync>;

const PAGE: u64 = 4096;
/// Offsets in the driver's only page: descriptors, available ring, used ring, the first bytes of a frame.
const PARTS: [u64; 4] = [0, 0x400, 0x800, 0xc00];
const LAYOUT: Layout = Layout { packed: false, size: 16, event_idx: false, indirect: false };
/// A frame's offload header and Ethernet header; the following bytes go to kernel memory.
const HEADERS: u32 = 12 + 14;
/// Bytes of kernel memory that the device may write.
const TAKEN: u32 = 46;
/// Time limit for a frame.
const BOUND: Duration = Duration::from_secs(8);
// VIRTIO_F_VERSION_1 and VIRTIO_F_ACCESS_PLATFORM, in the second word of the features.
const VERSION_1: u32 = 1;
const ACCESS_PLATFORM: u32 = 2;

/// The registers of a virtio device on PCI, by its capabilities (virtio 1.3, 4.1.4).
struct Device {
    config: File,
    /// Offset of the capability for access through the configuration space.
    window: u64,
    /// BAR and offset of the common configuration.
    common: (u8, u32),
    /// BAR and offset of the notification registers, and the multiplier of a queue's own offset.
    notify: (u8, u32, u32),
}

impl Device {
    fn open(name: &str) -> Result<Device, Failure> {
        let path = Path::new("/sys/bus/pci/devices").join(name).join("config");
        let config = File::options().read(true).write(true).open(path)?;
        let mut bytes = [0; 256];
        config.read_exact_at(&mut bytes, 0)?;
        let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes);
        let (mut window, mut common, mut notify) = (None, None, None);
        let mut at = usize::from(bytes[0x34]);
        // 256 bytes contain at most 48 capabilities.
        for _ in 0..48 {
            if !(0x40..=256 - 20).contains(&at) {
                break;
            }
            let (kind, bar) = (bytes[at + 3], bytes[at + 4]);
            match (bytes[at], kind) {
                (9, 1) => common = Some((bar, word(at + 8)?)),
                (9, 2) => notify = Some((bar, word(at + 8)?, word(at + 16)?)),
                (9, 5) => window = Some(at as u64),
                _ => {}
            }
            at = usize::from(bytes[at + 1]);
        }
        let lacks = "the device lacks a capability of virtio";
        let (window, common, notify) = (window.ok_or(lacks)?, common.ok_or(lacks)?, notify.ok_or(lacks)?);
        // Enables memory access and bus mastering.
        let command = u16::from_le_bytes([bytes[4], bytes[5]]) | 6;
        config.write_all_at(&command.to_le_bytes(), 4)?;
        Ok(Device { config, window, common, notify })
    }

    fn turn_to(&self, bar: u8, offset: u32, len: usize) -> Result<(), Failure> {
        self.config.write_all_at(&[bar], self.window + 4)?;
        self.config.write_all_at(&offset.to_le_bytes(), self.window + 8)?;
        Ok(self.config.write_all_at(&(len as u32).to_le_bytes(), self.window + 12)?)
    }

    fn write(&self, offset: u32, bytes: &[u8]) -> Result<(), Failure> {
        self.turn_to(self.common.0, self.common.1 + offset, bytes.len())?;
        Ok(self.config.write_all_at(bytes, self.window + 16)?)
    }

    fn read<const LEN: usize>(&self, offset: u32) -> Result<[u8; LEN], Failure> {
        self.turn_to(self.common.0, self.common.1 + offset, LEN)?;
        let mut bytes = [0; LEN];
        self.config.read_exact_at(&mut bytes, self.window + 16)?;
        Ok(bytes)
    }

    /// Starts the device with its first queue at these physical addresses (virtio 1.3, 3.1.1 and 4.1.4.3).
    fn start(&self, parts: [u64; 3]) -> Result<(), Failure> {
        for status in [0, 1, 3] {
            self.write(0x14, &[status])?;
        }
        self.write(0, &1_u32.to_le_bytes())?;
        let offered = u32::from_le_bytes(self.read(4)?);
        for (word, features) in [(0_u32, 0), (1, offered & (VERSION_1 | ACCESS_PLATFORM))] {
            self.write(8, &word.to_le_bytes())?;
            self.write(12, &features.to_le_bytes())?;
        }
        self.write(0x14, &[11])?;
        if self.read(0x14)? != [11] {
            return Err("the device refuses the features".into());
        }
        self.write(0x16, &0_u16.to_le_bytes())?;
        self.write(0x18, &LAYOUT.size.to_le_bytes())?;
        for (at, part) in [0x20, 0x28, 0x30].into_iter().zip(parts) {
            self.write(at, &(part as u32).to_le_bytes())?;
            self.write(at + 4, &((part >> 32) as u32).to_le_bytes())?;
        }
        self.write(0x1c, &1_u16.to_le_bytes())?;
        self.write(0x14, &[15])
    }

    fn kick(&self) -> Result<(), Failure> {
        let offset = u32::from(u16::from_le_bytes(self.read(0x1e)?));
        let (bar, begin, factor) = self.notify;
        self.turn_to(bar, begin + offset * factor, 2)?;
        Ok(self.config.write_all_at(&0_u16.to_le_bytes(), self.window + 16)?)
    }
}

/// The physical address of a resident page of this process.
fn physical(address: usize) -> Result<u64, Failure> {
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, address as u64 / PAGE * 8)?;
    let frame = u64::from_le_bytes(entry) & ((1 << 55) - 1);
    if frame == 0 { Err("the kernel hides a page's physical address".into()) } else { Ok(frame * PAGE) }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [device, address] = words.as_slice() else { return Err("overreach DEVICE ADDRESS".into()) };
    let kernel = u64::from_str_radix(address, 16)?;
    let file = memfd("overreach", PAGE as usize)?;
    let memory = Memory::new(vec![map_region(&file, 0, PAGE, 0, 0)?])?;
    let span = |at: u64, len: u32| -> Result<SpanMut<'_>, Failure> {
        memory.span_mut(at, len, &mut Hint::default()).ok_or_else(|| "outside the page".into())
    };
    let whole = span(0, PAGE as u32)?;
    whole.write(&[0; PAGE as usize]);
    let page = physical(whole.as_span().address())?;
    let lengths = LAYOUT.lengths()?;
    let areas = Areas {
        descriptors: span(PARTS[0], lengths.descriptors)?,
        driver: span(PARTS[1], lengths.driver)?,
        device: span(PARTS[2], lengths.device)?,
    };
    let mut driver = Driver::new(&LAYOUT, areas)?;
    let device = Device::open(device)?;
    device.start([0, 1, 2].map(|part| page + PARTS[part]))?;
    let headers = Buffer { address: page + PARTS[3], len: HEADERS, write: true };
    let taken = Buffer { address: kernel, len: TAKEN, write: true };
    driver.add(&[headers, taken], None).ok_or("no descriptor is free")?;
    driver.publish();
    device.kick()?;
    println!("offered");
    let came = eventually(BOUND, || matches!(driver.take_used(), Ok(Some(_))));
    println!("{}", if came { "a frame came" } else { "nothing came" });
    // The buffer is kernel memory; reset the device so that it is not used any more.
    device.write(0x14, &[0])
}
