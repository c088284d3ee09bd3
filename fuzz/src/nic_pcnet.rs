//! An Am79C970A whose guest writes registers and memory as it likes.

use crate::nic_walk::{BASE, Walk, step};
use ringway_nic::pcnet::{MODEL, Nic};
use ringway_nic::{Area, Chip};

const WALK: Walk<Nic> = Walk {
    register: |what, offset| {
        (Area::Bar(if what % 8 == 0 { 1 } else { what / 8 % 6 }), (offset % 0x24).into())
    },
    bytes: |count| [2, 4, 1, 8][count % 4],
    unit: 33,
    own: |nic, _, count, _, _, now| {
        let _ = nic.set_link(count & 1 != 0, now);
    },
};

/// Runs the model and its engines while `data` is written to its registers and memory.
pub fn run(data: &[u8]) {
    WALK.run_unmapped(&MODEL, data);
}

/// A driver that starts both rings, sends a frame in two parts and receives some; the same with a frame without an end.
pub fn seeds() -> Vec<Vec<u8>> {
    let write = |offset: u32, value: u16| step(0, 0, offset, value.into());
    let csr = |number: u16, value: u16| [write(0x12, number), write(0x10, value)].concat();
    let bcr = |number: u16, value: u16| [write(0x12, number), write(0x16, value)].concat();
    let memory = |at: u64, value: u64| step(3, 0, (at - BASE) as u32, value);
    let (tx, rx, block, buffer) = (BASE, BASE + 0x400, BASE + 0x800, BASE + 0x1000);
    let descriptor = |at: u64, buffer: u64, len: u16, status: u16| {
        let word = buffer | u64::from(len.wrapping_neg()) << 32 | u64::from(status) << 48;
        [memory(at, word), memory(at + 8, 0)].concat()
    };
    let receive = (0..4).map(|number| descriptor(rx + 16 * number, buffer + 0x800 * number, 0x600, 1 << 15));
    let start = [
        [step(1, 0, 4, 7), bcr(20, 2)].concat(),
        receive.collect::<Vec<_>>().concat(),
        // Four descriptors each; the address, the filter, the rings.
        [memory(block, 0x0002_2020_0000), memory(block + 8, 0x0100), memory(block + 16, rx << 32)].concat(),
        memory(block + 24, tx),
        [csr(1, block as u16), csr(2, (block >> 16) as u16), csr(0, 1), csr(0, 0x42)].concat(),
        [memory(buffer, 0x0002_0100_0000_0002), memory(buffer + 8, 0xb588_0100_0000)].concat(),
    ];
    let serve = [csr(0, 0x48), step(4, 9, 0, 0), step(7, 3, 20, 0), csr(5, 1), csr(5, 0)].concat();
    let (own, first, last) = (1 << 15, 1 << 9, 1 << 8);
    let seed = |bits: u8, end: u16| {
        let frame =
            [descriptor(tx + 16, buffer + 60, 400, own | end), descriptor(tx, buffer, 60, own | first)];
        [&[bits][..], &start.concat(), &frame.concat(), &serve, &step(6, 0, 0, 0), &serve].concat()
    };
    vec![seed(4, last), seed(15, 0)]
}
