//! The PCI device whose memory is a ring, with a guest that accesses registers and memory as it likes.

use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory};
use ringway_nic::Area;
use ringway_nic::shared_ring::{DOORBELL, RESET, STATUS, SharedRing};
use ringway_ring::{Consumer, Geometry, Producer, RX, RingMemory, TX};
use std::sync::Arc;

/// One byte for the operation, one for its count, an offset, and a word to write there.
const STEP: usize = 14;

thread_local! {
    static MEMORY: Option<Arc<Memory>> = memory();
}

fn geometry() -> Geometry {
    Geometry { slots: [64, 64], slot_size: 128, ..Geometry::default() }
}

fn memory() -> Option<Arc<Memory>> {
    let bytes = geometry().header().ok()?.bytes as usize;
    let mapping = Mapping::shared(memfd("fuzz", bytes).ok()?, 0, bytes).ok()?;
    Some(Arc::new(Memory::new(vec![Arc::new(mapping).region()]).ok()?))
}

/// The port's end of the ring while it is used.
struct Ends {
    ring: RingMemory,
    consumer: Consumer,
    producer: Producer,
}

impl Ends {
    fn new(memory: &Memory) -> Option<Ends> {
        let ring = RingMemory::create_again(memory.regions().first()?.clone(), &geometry()).ok()?;
        let (consumer, producer) = (Consumer::new(&ring, TX), Producer::new(&ring, RX));
        Some(Ends { ring, consumer, producer })
    }

    /// Frames from and to the guest. `None`: it violated the rules.
    fn turn(&mut self, count: u32) -> Option<()> {
        let Ends { ring, consumer, producer } = self;
        let mut frame = [0; 512];
        for _ in 0..count {
            if consumer.pop(ring, &mut frame).ok()?.is_none() {
                break;
            }
        }
        consumer.publish(ring);
        for _ in 0..count {
            if !producer.push(ring, &frame[..60], [0; 10]).ok()? {
                break;
            }
        }
        producer.publish(ring);
        consumer.arm(ring, 1).ok().map(drop)
    }
}

/// Runs the device while `data` is written to its registers and memory.
pub fn run(data: &[u8]) {
    MEMORY.with(|memory| {
        let Some(memory) = memory else { panic!("no memory for a ring: is memfd allowed?") };
        let bytes = memory.regions().first().map_or(0, |region| region.len);
        if let Some(span) = memory.span_mut(0, bytes as u32, &mut Hint::default()) {
            span.write(&vec![0; bytes as usize]);
        }
        steps(SharedRing::new(memory.clone(), bytes), memory, data);
    });
}

fn steps(mut device: SharedRing, memory: &Memory, data: &[u8]) {
    let mut ends: Option<Ends> = None;
    for step in data.as_chunks::<STEP>().0 {
        let [what, count, o0, o1, o2, o3, value @ ..] = step;
        let offset = u64::from(u32::from_le_bytes([*o0, *o1, *o2, *o3]));
        let area = if what & 0x80 != 0 { Area::Config } else { Area::Bar(what / 8 % 7) };
        match what % 8 {
            0..=2 => {
                let asked = device.write(area, offset, &value[..1 + usize::from(*count) % 8]);
                assert!(area == Area::Bar(0) || asked == Default::default(), "only registers act");
                if asked.end || asked.reset {
                    ends = None;
                }
                if asked.reset {
                    ends = Ends::new(memory);
                    assert!(ends.is_some(), "a reset always makes a ring");
                }
                device.set_used(ends.is_some());
            }
            3 => device.read(area, offset, &mut vec![0; usize::from(*count)]),
            4 => drop(device.write(area, offset | u64::from(*count) << 56, value)),
            5 => {
                let mut status = [0; 4];
                device.read(Area::Bar(0), STATUS.into(), &mut status);
                assert_eq!(u32::from_le_bytes(status), u32::from(ends.is_some()));
            }
            // A guest that maps the memory.
            6 => {
                let at = offset % (memory.regions().first().map_or(8, |region| region.len) - 8);
                let _ = memory.span_mut(at, 8, &mut Hint::default()).map(|span| span.write(value));
            }
            _ => {
                if ends.as_mut().is_some_and(|ends| ends.turn(u32::from(*count)).is_none()) {
                    ends = None;
                    device.set_used(false);
                }
            }
        }
    }
    // Whatever came before, a program finds a usable ring after a reset.
    assert!(device.write(Area::Bar(0), RESET.into(), &[1]).reset);
    let mut ends = Ends::new(memory);
    assert!(ends.as_mut().is_some_and(|ends| ends.turn(64).is_some()));
}

/// A program that resets the device, sends and receives frames by mapped memory and by accesses, and leaves.
pub fn seeds() -> Vec<Vec<u8>> {
    let step = |what: u8, count: u8, offset: u32, value: u64| {
        let mut step = vec![what, count];
        step.extend_from_slice(&offset.to_le_bytes());
        step.extend_from_slice(&value.to_le_bytes());
        step
    };
    let Ok(header) = geometry().header() else { return Vec::new() };
    let slot = header.slots_at[TX] as u32;
    let register = |offset: u32| step(0, 3, offset, 1);
    let (config, turn) = (step(0x80, 1, 4, 6), step(7, 8, 0, 0));
    // A frame in the first slot, then the producer's index; by the mapping (6), or by accesses to BAR 2 (16).
    let send =
        |how: u8| [step(how, 7, slot, 60 << 16), step(how, 3, 1024, 1), register(DOORBELL), turn.clone()];
    let receive = |how: u8| [turn.clone(), step(how, 3, 1408, 8), turn.clone()];
    let status = step(5, 0, 0, 0);
    vec![
        [config.clone(), register(RESET), status.clone(), send(6).concat(), receive(6).concat()].concat(),
        [register(RESET), send(16).concat(), receive(16).concat(), register(STATUS), status.clone()].concat(),
        [register(RESET), step(6, 0, 1024, 9000), turn.clone(), status, register(RESET)].concat(),
    ]
}
