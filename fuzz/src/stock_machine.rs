//! A function's machine under another monitor: its command line, the tables of its firmware, the capabilities of PCI
//! functions, and the driver of a network device that writes arbitrary bytes into the rings.

use ringway_mem::Words;
use ringway_tiny::stock::{
    ConfigSpace, Found, Function, Line, Net, NetMemory, PowerOff, QueueAddresses, Tables, Transport,
    functions,
};
use std::cell::Cell;

/// Descriptors of a queue.
const SIZE: u16 = 8;
/// Largest frame.
const LARGEST: usize = 2048 - 12;

/// A configuration space of arbitrary words.
struct Space<'a>(&'a [u8]);

impl ConfigSpace for Space<'_> {
    fn read(&self, Function(bus, device, number): Function, offset: u8) -> u32 {
        if self.0.is_empty() {
            return u32::MAX;
        }
        let function = (usize::from(bus) << 8 | usize::from(device) << 3 | usize::from(number)) * 7;
        let byte = |at: usize| u32::from(self.0[(function + usize::from(offset) + at) % self.0.len()]);
        byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24
    }

    fn write(&self, _: Function, _: u8, _: u32) {}
}

/// Memory of arbitrary bytes, from an address on.
struct Memory<'a>(&'a [u8]);

const MEMORY: u64 = 64;

impl Tables for Memory<'_> {
    fn byte(&self, address: u64) -> Option<u8> {
        self.0.get(usize::try_from(address.checked_sub(MEMORY)?).ok()?).copied()
    }
}

/// A device that starts, and does what it likes afterwards.
struct Device {
    features: u64,
    status: Cell<u8>,
}

impl Transport for Device {
    fn status(&self) -> u8 {
        self.status.get()
    }

    fn set_status(&self, status: u8) {
        self.status.set(status);
    }

    fn features(&self) -> u64 {
        self.features
    }

    fn accept(&self, features: u64) {
        assert_eq!(features & !self.features, 0, "only what is offered is accepted");
    }

    fn queue_max(&mut self, _: u16) -> u16 {
        SIZE
    }

    fn start_queue(&mut self, _: u16, place: &QueueAddresses) -> bool {
        place.size <= SIZE
    }

    fn config(&self, offset: u32) -> u8 {
        offset as u8
    }

    fn kick(&self, _: u16) {}

    fn acknowledge(&self) {}

    fn interrupts(&self) -> bool {
        true
    }
}

/// Reads the bytes as a command line, as tables, as PCI functions, and as what a device writes.
pub fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(line) = Line::parse(text)
    {
        assert!(line.mmio.len() <= 64 && (1..=64).contains(&line.burst()));
        assert!(line.mmio.iter().all(|device| device.address.checked_add(device.len).is_some()));
    }
    match PowerOff::find(&Memory(data), MEMORY) {
        Some(PowerOff::Sleep { port, .. }) => assert!((1..0x1000).contains(&port)),
        Some(PowerOff::Pm1 { ports, values }) => {
            assert!((1..0xfff).contains(&ports[0]) && ports[1] < 0xfff);
            assert!(values.iter().all(|value| value & !PowerOff::PM1_MASK == 0));
        }
        None => {}
    }
    let space = Space(data);
    for function in functions(&space) {
        if let Ok(found) = Found::read(&space, function) {
            let parts = [found.common, found.notify, found.device];
            assert!(parts.iter().all(|part| part.address.checked_add(part.len.into()).is_some()));
        }
    }
    let (Some((first, rest)), Some(memory)) = (data.split_first(), NetMemory::new(SIZE)) else { return };
    talk(u64::from(*first), rest, &memory);
}

/// A device with the features that the number chooses, which writes words between calls of the driver.
fn talk(choice: u64, data: &[u8], memory: &NetMemory) {
    let features = 1 << 32 | (choice & 1) << 34 | (choice >> 1 & 1) << 29 | (choice >> 2 & 1) << 5;
    let device = Device { features, status: Cell::new(0) };
    let Ok(mut net) = Net::new(Box::new(device), memory) else { panic!("the device starts") };
    let mut buffer = [0; 2 * LARGEST];
    for step in data.chunks(6) {
        let &[operation, queue, low, high, one, two] = step else { return };
        let at = usize::from(low) | usize::from(high & 0x3f) << 8;
        // Most of what a device writes is in the rings, which come before the buffers.
        let span = memory.spans()[usize::from(queue & 1)];
        if let Some(words) = Words::<u16>::new(span) {
            let most = if operation & 0x80 == 0 { 512 } else { 1 << 14 };
            words.store(at % most, u16::from_le_bytes([one, two]));
        }
        let went = match operation % 6 {
            0 => net.frame_len().map(|len| assert!(len.is_none_or(|len| len <= LARGEST))),
            1 => net.pop(&mut buffer).map(|got| assert!(got.is_none_or(|got| got.len <= LARGEST))),
            2 => net.push(&buffer[..usize::from(one) * 8], [0; 10]).map(drop),
            3 => net.room(u32::from(one)).map(|room| assert!(room <= u32::from(SIZE))),
            4 => net.arm_tx(u32::from(one)).map(drop),
            _ => {
                net.sync();
                net.arm_rx();
                Ok(())
            }
        };
        if went.is_err() {
            return;
        }
    }
}

/// A root pointer, an XSDT, a fixed table and a definition block, one behind the other.
fn tables() -> Vec<u8> {
    let mut memory = vec![0; 36 + 44 + 256 + 52];
    let mut set = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
    let [list, fixed, block] = [36, 36 + 44, 36 + 44 + 256];
    set(0, b"RSD PTR ");
    set(15, &[2]);
    set(24, &(MEMORY + list as u64).to_le_bytes());
    for (at, kind, len) in [(list, b"XSDT", 44_u32), (fixed, b"FACP", 256), (block, b"DSDT", 52)] {
        set(at, kind);
        set(at + 4, &len.to_le_bytes());
    }
    set(list + 36, &(MEMORY + fixed as u64).to_le_bytes());
    set(fixed + 64, &0x604_u32.to_le_bytes());
    set(fixed + 140, &(MEMORY + block as u64).to_le_bytes());
    set(fixed + 244, &[1, 8, 0, 1, 0, 6]);
    set(block + 36, b"\x08_S5_\x12\x06\x04\x0a\x05\x0a\x05\0\0");
    memory
}

/// Command lines, tables, a function's configuration space, and steps of a device.
pub fn seeds() -> Vec<Vec<u8>> {
    let line = "port=in,52:54:00:00:00:01 device=eth0=in parameter=\"A=b c\" burst=8 click=\"Idle;\" \
                tsc=1000000000 virtio_mmio.device=4K@0xd0000000:5:1";
    let mut space = vec![0; 256];
    for (at, word) in [
        (0, 0x1041_1af4_u32),
        (4, 1 << 20),
        (0x10, 0xfebc_0000),
        (0x34, 0x40),
        (0x40, 0x0110_5009),
        (0x4c, 56),
        (0x50, 0x0410_6009),
        (0x5c, 64),
        (0x60, 0x0214_0009),
        (0x6c, 64),
        (0x70, 4),
    ] {
        space[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    // The used ring's index is behind 8 descriptors and the available ring.
    let mut steps = vec![0];
    for (operation, at, value) in [(2, 0, 8), (5, 0, 0), (1, 98, 60), (1, 97, 1), (3, 97, 1), (0, 99, 2048)] {
        let [low, high] = u16::to_le_bytes(at);
        let [one, two] = u16::to_le_bytes(value);
        steps.extend([operation, operation & 1, low, high, one, two]);
    }
    vec![line.as_bytes().to_vec(), tables(), space, steps]
}
