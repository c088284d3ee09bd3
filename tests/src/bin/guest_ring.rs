//! A program in a guest on a port of kind `ring-pci`: `guest_ring send|return DEVICE COUNT` exchanges numbered frames,
//! `guest_ring break DEVICE` violates the ring's rules, waits until it is closed, and opens it again. DEVICE is the
//! folder of the PCI device in sysfs.
use ringway_mem::{Hint, Memory};
use ringway_ring_client::{Ring, RingError, Wait};
use ringway_tests::returned::{give_back, send};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

/// The producer's index of the TX ring, and values that it can't have.
const AT: u64 = 1024;
const INDICES: [u32; 2] = [0x8000_0000, 5000];
const BOUND: Duration = Duration::from_secs(20);

/// Writes an impossible index; the port closes the ring.
fn violate(device: &Path, value: u32) -> Result<(), Failure> {
    let mut ring = Ring::open_device(device)?;
    let memory = Memory::new(vec![ring.region().clone()])?;
    let end = Instant::now() + BOUND;
    loop {
        let index = memory.span_mut(AT, 4, &mut Hint::default()).ok_or("no index")?;
        index.write(&value.to_le_bytes());
        // A worker that sleeps is woken.
        ring.tx.push(&[0xff; 60])?;
        ring.tx.sync()?;
        index.write(&value.to_le_bytes());
        match ring.wait(Wait::RX, Some(Duration::from_millis(1))) {
            Err(RingError::Closed) => return Ok(()),
            _ if Instant::now() > end => return Err("the ring is not closed".into()),
            _ => {}
        }
    }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["send", device, count] => send(&mut Ring::open_device(device.as_ref())?, count.parse()?)?,
        ["return", device, count] => give_back(&mut Ring::open_device(device.as_ref())?, count.parse()?)?,
        ["break", device] => {
            for value in INDICES {
                violate(device.as_ref(), value)?;
            }
            Ring::open_device(device.as_ref())?.sync()?;
        }
        _ => return Err("guest_ring send|return DEVICE COUNT, or guest_ring break DEVICE".into()),
    }
    println!("done");
    Ok(())
}
