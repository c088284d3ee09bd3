//! Software completion of frames.

use ringway_frame::{Burst, Caps, LARGEST, Needs, Offload, Storage};
use ringway_mem::Span;
use ringway_port::offload::{Completer, Outcome};
use std::cell::RefCell;

/// Bytes before the frame: the destination's capabilities, the frame's split, and its metadata.
const PREFIX: usize = 2 + Offload::LEN;

thread_local! {
    static MEMORY: RefCell<(Storage, Completer)> = RefCell::default();
}

fn needs(bits: u8) -> Needs {
    [Needs::CSUM, Needs::TSO4, Needs::TSO6, Needs::ECN, Needs::USO]
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 != 0)
        .fold(Needs::NONE, |all, (_, need)| all.with(*need))
}

/// Completes the frame in `data` by its metadata, whether or not a port would have accepted it.
pub fn run(data: &[u8]) {
    let Some((&prefix, frame)) = data.split_first_chunk::<PREFIX>() else { return };
    let [can, cut, rest @ ..] = prefix;
    let raw = Offload::from_bytes(&rest);
    let checked = raw.check(frame.len() as u32, Needs::ALL);
    let largest = if can & 0x80 != 0 { 1514 } else { LARGEST };
    let caps = Caps { offloads: needs(can), largest };
    let size = frame.len() / 60 + 1 + usize::from(cut);
    let pieces: Vec<Span<'_>> = frame.chunks(size).map(Span::of).collect();
    MEMORY.with_borrow_mut(|(storage, completer)| {
        for offload in [Ok(raw), checked].into_iter().flatten() {
            let mut burst = Burst::begin(storage);
            if burst.push_pieces(offload, &pieces).is_err() {
                return;
            }
            let completed = completer.complete(&burst, &[0], caps);
            let outputs = completed.burst.len();
            match completed.outcomes {
                [Outcome::Frames(count)] => assert_eq!(usize::from(*count), outputs),
                outcomes => assert!(outputs == 0 && outcomes.len() == 1),
            }
            for output in 0..outputs {
                let meta = completed.burst.meta(output);
                assert!(caps.offloads.covers(meta.offload.needs()));
                assert!(meta.len <= caps.largest || meta.offload.gso() != Ok(None));
                let mut bytes = vec![0; meta.len as usize];
                assert_eq!(completed.burst.read(output, 0, &mut bytes), bytes.len());
            }
        }
    });
}

/// Large TCP and UDP frames of both IP versions, and one without a checksum.
pub fn seeds() -> Vec<Vec<u8>> {
    let frame = |gso_type, gso_size, start: u16, field, bytes: &[u8]| {
        let offload = Offload { gso_type, gso_size, ..Offload::checksum(start, field) };
        let mut seed = vec![0, 40];
        seed.extend_from_slice(&offload.to_bytes());
        seed.extend_from_slice(bytes);
        seed
    };
    let link = |ethertype: &[u8], behind: &[&[u8]]| {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        bytes.extend_from_slice(ethertype);
        behind.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(&[7; 600]);
        bytes
    };
    let four =
        |protocol, len: u8| [0x45, 0, 2, len, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let mut six = [0xfe; 40];
    six[..8].copy_from_slice(&[0x60, 0, 0, 0, 2, 0x6c, 6, 64]);
    let tcp = b"\xc0\0\0\x50\xff\xff\xff\0\0\0\0\x02\x50\x99\xff\xff\0\0\0\0";
    let udp = b"\xc0\0\0\x50\x02\x60\0\0";
    vec![
        frame(1, 100, 34, 16, &link(&[8, 0], &[&four(6, 0x80), tcp])),
        frame(4, 100, 54, 16, &link(&[0x86, 0xdd], &[&six, tcp])),
        frame(5, 100, 34, 6, &link(&[8, 0], &[&four(17, 0x74), udp])),
        frame(0, 0, 38, 16, &link(&[0x81, 0, 0, 1, 8, 0], &[&four(6, 0x80), tcp])),
    ]
}
