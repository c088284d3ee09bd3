//! An RTL8139C+ whose guest writes registers and memory as it likes.

use crate::nic_walk::{BASE, Walk, step};
use ringway_nic::rtl8139::{MODEL, Nic, registers as reg};
use ringway_nic::{Area, Chip};

const WALK: Walk<Nic> = Walk {
    register: |what, offset| {
        (Area::Bar(if what % 8 == 0 { 1 } else { what / 8 % 6 }), (offset % 0x110).into())
    },
    bytes: |count| 1 + count % 8,
    unit: 33,
    own: |nic, _, count, _, _, now| {
        let _ = nic.set_link(count & 1 != 0, now);
    },
};

/// Runs the model and its engines while `data` is written to its registers and memory.
pub fn run(data: &[u8]) {
    WALK.run_unmapped(&MODEL, data);
}

/// A driver that starts both rings, sends a frame and receives some; the same with a checksum, and with segmentation.
pub fn seeds() -> Vec<Vec<u8>> {
    // So many bytes, less one.
    let write = |offset: u32, more: u8, value: u64| step(0, more, offset, value);
    let memory = |at: u64, value: u64| step(3, 0, (at - BASE) as u32, value);
    let (tx, rx, buffer) = (BASE, BASE + 0x400, BASE + 0x1000);
    let receive = (0..4).flat_map(|number| {
        let (at, end) = (rx + 16 * number, if number == 3 { 1 << 30 } else { 0 });
        [memory(at, 1 << 31 | end | 0x600), memory(at + 8, buffer + 0x800 * number)]
    });
    let start = [
        vec![step(1, 0, 4, 7), write(reg::CPCR, 1, 0x6b)],
        vec![write(reg::RDSAR, 7, rx), write(reg::TNPDS, 7, tx)],
        receive.collect(),
        vec![write(reg::CR, 0, 0x0c), write(reg::RCR, 3, 0xf), write(reg::IMR, 1, 0xffff)],
        vec![memory(buffer, 0x0002_0100_0000_0002), memory(buffer + 8, 0x0045_0008_0100_0000)],
        vec![memory(buffer + 16, 0x0640_0040_0000_0000), memory(buffer + 40, 0x1050_0000_0000_0000)],
    ];
    let start = start.concat().concat();
    let dump = write(reg::DTCCR, 7, BASE | 8);
    let serve = [write(reg::TPPOLL, 0, 0x40), step(4, 9, 0, 0), step(7, 3, 20, 0), dump].concat();
    let seed = |bits: u8, first: u64, second: u64| {
        let frame = [memory(tx + 8, buffer), memory(tx + 24, buffer + 0x100)];
        let words = [memory(tx + 16, second), memory(tx, first)];
        [&[bits][..], &start, &frame.concat(), &words.concat(), &serve, &step(6, 0, 0, 0), &serve].concat()
    };
    let (own, first, last) = (1 << 31, 1 << 29, 1 << 28);
    vec![
        seed(4, own | first | last | 60, own | 1 << 30),
        seed(0, own | first | 7 << 16 | 100, own | last | 1 << 30 | 400),
        seed(15, own | first | 1 << 27 | 500 << 16 | 800 | 1 << 49, own | last | 1 << 30 | 900),
    ]
}
