//! A NIC whose guest writes registers, mapped registers and memory as it likes.

use crate::nic_walk::{BASE, LEN, Walk, clear, region, step};
use ringway_mem::{Hint, Memory};
use ringway_nic::e1000::{Area, Model, Nic, PAGES, Settings};
use ringway_nic::{Chip, Doorbells, Techniques, i82540em, i82574l};

const MODELS: &[&Model] = &[&i82540em::MODEL, &i82574l::MODEL];

thread_local! {
    static MEMORY: Option<(Memory, Memory)> = memory();
}

/// The guest's memory, and that of mapped registers.
fn memory() -> Option<(Memory, Memory)> {
    let memory = |guest, len| Memory::new(vec![region(guest, len)?]).ok();
    Some((memory(BASE, LEN)?, memory(0, PAGES.1 as usize)?))
}

const WALK: Walk<Nic> = Walk {
    register: |what, offset| (Area::Bar(what / 8 % 6), offset.into()),
    bytes: |count| 4 + count % 5,
    unit: 8,
    // A guest writes mapped registers without the model.
    own: |_, pages, _, offset, value, _| {
        let at = u64::from(offset) % u64::from(PAGES.1);
        let _ = pages.span_mut(at, 8, &mut Hint::default()).map(|span| span.write(value));
    },
};

fn techniques(bits: u8) -> Techniques {
    let on = |bit: u8| bits >> bit & 1 != 0;
    Techniques {
        moderate: if on(0) { 50_000 } else { 0 },
        timers: on(1),
        combine: if on(2) { 10_000 } else { 0 },
        batch: on(3),
        doorbells: if on(4) { Doorbells::Mapped } else { Doorbells::Trapped },
        in_place: on(5),
        csb: on(6),
        cached: on(7),
        ..Techniques::default()
    }
}

/// Runs a model and its engines while `data` is written to its registers and memory.
pub fn run(data: &[u8]) {
    let [first, second, data @ ..] = data else { return };
    MEMORY.with(|memory| {
        let Some((memory, pages)) = memory else { panic!("no memory: is memfd allowed?") };
        clear(memory);
        let model = MODELS[usize::from(*second) % MODELS.len()];
        let (techniques, region) = (techniques(*first), pages.regions().first().cloned());
        let settings = Settings { model, mac: [2, 0, 0, 0, 0, 1], techniques, link: true, pages: region };
        let Ok(nic) = Nic::new(settings) else { panic!("the pages are large enough") };
        WALK.run(nic, memory, pages, data);
    });
}

/// A driver that starts both rings, sends a frame and receives some; the same with an offloaded checksum.
pub fn seeds() -> Vec<Vec<u8>> {
    let write = |offset: u32, value: u64| step(0, 0, offset, value);
    let memory = |at: u64, value: u64| step(3, 0, (at - BASE) as u32, value);
    let (tx, rx, buffer) = (BASE, BASE + 0x100, BASE + 0x1000);
    let ring =
        |base: u32, at: u64, tail: u64| [write(base, at), write(base + 8, 128), write(base + 0x18, tail)];
    let start = [
        vec![step(1, 0, 4, 7)],
        ring(0x3800, tx, 3).to_vec(),
        ring(0x2800, rx, 7).to_vec(),
        (0..8).map(|number| memory(rx + 16 * number, buffer + 0x800 * number)).collect(),
        vec![write(0xd0, 0x9d), write(0x100, 0x8002), write(0x400, 2)],
    ];
    let start = start.concat().concat();
    let serve = [step(4, 9, 0, 0), step(7, 3, 20, 0), step(2, 4, 0xc0, 0)].concat();
    // A hostile tail and head, then those of the frames.
    let tails = [u64::MAX, 3].map(|tail| step(5, 0, 0x1818, tail)).concat();
    let descriptors = |words: &[u64]| {
        let places = (0..).map(|number| tx + 8 * number);
        places.zip(words).flat_map(|(at, word)| memory(at, *word)).collect::<Vec<u8>>()
    };
    let plain = descriptors(&[buffer, 0x0b00_003c, buffer, 0x0900_0040, buffer, 0x2910_0050]);
    let checksum =
        descriptors(&[0x0032_2200_0021_180e, 0x2000_0000, buffer, 0x0200_2910_0050, buffer, 0x2910_0100]);
    let tso = descriptors(&[0x0032_2200_0021_180e, 0x05a8_3600_2700_0000, buffer, 0x0300_2d10_2000]);
    let headers = [
        memory(buffer, 0x0002_0100_0000_0002),
        memory(buffer + 8, 0x0045_0008_0100_0000),
        memory(buffer + 16, 0x0640_0040_0000_0000),
    ];
    let seed = |techniques: u8, model: u8, frames: &[u8]| {
        [&[techniques, model], &start[..], &headers.concat(), frames, &tails, &serve].concat()
    };
    // The shared block is turned on with a tail; the PHY loops frames back; memory is unmapped and mapped in between.
    let csb = BASE + 0x400;
    let block = [memory(csb, 2), memory(csb + 8, 1 << 32), write(0x2834, 0), write(0x2830, csb)].concat();
    let looped = [plain.clone(), write(0x20, 0x0420_4140), serve.clone(), step(6, 0, 0, 0)].concat();
    let unmapped = [&plain[..], &step(6, 0, 0, 0), &serve, &step(6, 0, 0, 0)].concat();
    vec![
        seed(0xca, 0, &[&plain[..], &block].concat()),
        seed(0x8a, 1, &looped),
        seed(0x8a, 0, &unmapped),
        seed(0x8a, 0, &plain),
        seed(0x00, 0, &checksum),
        seed(0xff, 0, &tso),
        seed(0x8a, 1, &tso),
    ]
}
