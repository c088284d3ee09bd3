//! Images of programs: a file of arbitrary bytes that a fabric file names.

use ringway_vmm::{ImageError, check_image};

const MEMORY: u64 = 64 << 20;

/// Checks a file for two sizes of memory.
pub fn run(data: &[u8]) {
    let (large, small) = (check_image(data, MEMORY), check_image(data, MEMORY / 2));
    match (&large, &small) {
        // What fits into less memory fits into more; all else is the same.
        (Ok(()), Err(ImageError::Memory { .. })) => {}
        (Err(ImageError::Memory { .. }), Err(ImageError::Memory { .. })) => {}
        _ => assert_eq!(large, small),
    }
    // Nothing that ends within a segment is good.
    if large.is_ok() {
        assert!(data.starts_with(b"\x7fELF") && data.len() > 64);
    }
}

fn note(kind: u32, name: &[u8], value: u32) -> Vec<u8> {
    let mut note = [name.len() as u32, 4, kind].map(u32::to_le_bytes).concat();
    note.extend_from_slice(name);
    note.resize(note.len().next_multiple_of(4), 0);
    note.extend(value.to_le_bytes());
    note
}

/// An image as the linker lays it out.
pub fn seeds() -> Vec<Vec<u8>> {
    let notes = [note(18, b"Xen\0", 1 << 20), note(1, b"Ringway\0", 1)].concat();
    let mut image = [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[2, 0, 0x3e, 0, 1, 0, 0, 0], &[0; 8]].concat();
    image.extend(64_u64.to_le_bytes());
    image.extend([0; 12]);
    image.extend([64, 0, 56, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let (at, len) = ((64 + 2 * 56) as u64, notes.len() as u64);
    for (kind, offset, address, len) in [(4_u32, at, 0, len), (1, at + len, 1_u64 << 20, 4)] {
        image.extend([kind, 7].map(u32::to_le_bytes).concat());
        image.extend([offset, address, address, len, len, 4].map(u64::to_le_bytes).concat());
    }
    image.extend(notes);
    image.extend([0xf4; 4]);
    vec![image, b"#!/bin/sh\n".to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_an_image() {
        assert_eq!(check_image(&seeds()[0], MEMORY), Ok(()));
    }
}
