//! Images of programs: a file of arbitrary bytes that a fabric file names.

use ringway_vmm::{ImageError, check_image};

const MEMORY: u64 = 64 << 20;
/// What the monitor keeps free for the module at the end of the memory.
const ORDER: u64 = 1 << 20;

/// Checks a file for two sizes of memory.
pub fn run(data: &[u8]) {
    let (large, small) = (check_image(data, MEMORY), check_image(data, MEMORY / 2));
    match (&large, &small) {
        // What fits into less memory fits into more; all else is the same.
        (Ok(()), Err(ImageError::Memory { .. })) => {}
        (Err(ImageError::Memory { .. }), Err(ImageError::Memory { .. })) => {}
        _ => assert_eq!(large, small),
    }
    if large.is_ok() {
        assert!(data.starts_with(b"\x7fELF") && data.len() > 64);
        check_places(data);
    }
}

/// Checks that nothing of an accepted image is outside the file, over another part of it, before the first megabyte,
/// which has the monitor's tables and the stack, or over the module at the end of the memory.
fn check_places(data: &[u8]) {
    let long = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap_or_default());
    let headers = (0..usize::from(data[56])).map(|index| 64 + 56 * index);
    let mut last = 1 << 20;
    for at in headers.filter(|at| data[*at..at + 4] == [1, 0, 0, 0]) {
        let [offset, address, in_file, in_memory] = [8, 24, 32, 40].map(|field| long(at + field));
        // A loader copies the bytes of the file, whatever the size in memory.
        let touched = in_file.max(in_memory);
        if touched == 0 {
            continue;
        }
        assert!(offset.checked_add(in_file).is_some_and(|end| end <= data.len() as u64), "{at}");
        assert!(address >= last, "{at}: {address:#x} is before {last:#x}");
        last = address.checked_add(touched).expect("it ends within the addresses");
    }
    assert!(last <= MEMORY - ORDER, "{last:#x}");
}

fn note(kind: u32, name: &[u8], value: u32) -> Vec<u8> {
    let mut note = [name.len() as u32, 4, kind].map(u32::to_le_bytes).concat();
    note.extend_from_slice(name);
    note.resize(note.len().next_multiple_of(4), 0);
    note.extend(value.to_le_bytes());
    note
}

/// An image as the linker lays it out; the same with a segment that has bytes in the file alone, over the monitor's
/// tables; another file.
pub fn seeds() -> Vec<Vec<u8>> {
    let code = [1 << 20, 4, 4];
    let images = [image(&[code]), image(&[code, [2 << 20, 0, 4096]]), image(&[code, [0x6000, 4, 0]])];
    images.into_iter().chain([b"#!/bin/sh\n".to_vec()]).collect()
}

/// An image with these segments: address, bytes in the file and in memory.
fn image(loads: &[[u64; 3]]) -> Vec<u8> {
    let notes = [note(18, b"Xen\0", 1 << 20), note(1, b"Ringway\0", 1)].concat();
    let mut image = [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[2, 0, 0x3e, 0, 1, 0, 0, 0], &[0; 8]].concat();
    image.extend(64_u64.to_le_bytes());
    image.extend([0; 12]);
    image.extend([64, 0, 56, 0, 1 + loads.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
    let (at, len) = ((64 + (1 + loads.len()) * 56) as u64, notes.len() as u64);
    let mut segment = |kind: u32, offset: u64, [address, len, whole]: [u64; 3]| {
        image.extend([kind, 7].map(u32::to_le_bytes).concat());
        image.extend([offset, address, address, len, whole, 4].map(u64::to_le_bytes).concat());
    };
    segment(4, at, [0, len, len]);
    loads.iter().for_each(|load| segment(1, at + len, *load));
    image.extend(notes);
    image.extend([0xf4; 4]);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_images_and_one_that_is_damaged() {
        let checked = |at: usize| check_image(&seeds()[at], MEMORY);
        assert_eq!((checked(0), checked(1)), (Ok(()), Ok(())));
        assert!(matches!(checked(2), Err(ImageError::Damaged(_))));
    }
}
