//! A port of a netmap program, while others write anything to the memory that it has in common with its program, with
//! other processes and with its ring's other side; and descriptors that look like a handle of it.

use ringway_fuzz_netmap::fuzzing::{Shared, Step, pass};

/// One byte for what is done, two for where and four for a number.
const STEP: usize = 7;
/// Steps of an input.
const MOST: usize = 300;

/// Does what `data` says.
pub fn run(data: &[u8]) {
    let Some((what, rest)) = data.split_first() else { return };
    let shared = match what % 3 {
        0 => Shared::copied(),
        1 => Shared::in_place(),
        _ => return look_like_a_handle(rest),
    };
    steps(shared, rest);
}

fn steps(mut shared: Shared, data: &[u8]) {
    for &[what, a0, a1, value @ ..] in data.as_chunks::<STEP>().0.iter().take(MOST) {
        let (at, value) = (u16::from_le_bytes([a0, a1]), u32::from_le_bytes(value));
        let (dir, at_word) = (usize::from(at % 2), u64::from(at));
        shared.step(match what % 8 {
            0 => Step::Program(at_word % 5000, value),
            1 => Step::State(at_word, value),
            2 => Step::Other(at_word % 3000, value),
            3 => Step::Positions(dir, value & 0xff, value >> 8 & 0xff),
            4 => Step::Sync(dir),
            5 => Step::Poll(at as i16),
            6 => Step::Send(at % 9000),
            _ => Step::Take,
        });
    }
}

/// The number of a handle's interface, the kinds of up to seven descriptors, and words.
fn look_like_a_handle(data: &[u8]) {
    let Some((&[number, count], rest)) = data.split_first_chunk() else { return };
    let Some((kinds, rest)) = rest.split_at_checked(usize::from(count % 8)) else { return };
    let mut words = [0; 11];
    for (word, bytes) in words.iter_mut().zip(rest.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let kinds: Vec<u8> = kinds.iter().map(|kind| kind % 3).collect();
    pass(words, &kinds, u64::from(number % 70));
}

/// Frames both ways, by each kind of port; and what a port stores.
pub fn seeds() -> Vec<Vec<u8>> {
    let step = |what: u8, at: u16, value: u32| {
        [&[what][..], &at.to_le_bytes()[..], &value.to_le_bytes()[..]].concat()
    };
    let frames = [
        // The length of the first slot to send, which it gives, and both rings.
        step(0, 65, 60),
        step(3, 0, 0x0101),
        step(4, 0, 0),
        step(7, 0, 0),
        step(6, 2500, 0),
        step(4, 1, 0),
        step(3, 1, 0x0202),
        step(5, 5, 0),
        step(1, 9, 3),
        step(2, 64, u32::MAX),
        step(4, 1, 0),
    ]
    .concat();
    // A ring, at its place, of these sizes; and no other descriptors than its memory.
    let words = [0_u64, 16_384, 20_480, 1, 33_000, 64, 128, 3, 2, 0, 7].map(u64::to_le_bytes).concat();
    let of = |head: &[u8], rest: &[u8]| [head, rest].concat();
    vec![of(&[0], &frames), of(&[1], &frames), of(&[2, 0, 1, 0], &words)]
}
