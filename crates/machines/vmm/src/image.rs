//! Whether a file is the image of a program: an ELF file for this processor with a PVH entry, of this version of what
//! images and monitors say to each other. Whoever wrote it is not trusted; what it does once it runs is bounded by the
//! machine.

use ringway_tiny::{NOTE, VERSION};
use std::ops::Range;

/// Largest image in bytes. Attack: an endless file.
pub const LARGEST_IMAGE: usize = 16 << 20;
/// Memory that an image needs besides its own: its heap, and the order that it gets, of whose settings a fabric file
/// has at most 64 KB.
const HEAP: u64 = 3 << 20;
const ORDER: u64 = 1 << 20;
/// Where images begin: the monitor's tables and the stack are before.
const FIRST: u64 = 1 << 20;
/// Offsets, sizes and values of ELF (elf(5)).
const HEADER: usize = 64;
const ENTRY: usize = 56;
const LOAD: u32 = 1;
const NOTES: u32 = 4;
const X86_64: u16 = 62;
const EXECUTABLE: u16 = 2;
/// Attack: a header that names sections without end.
const SEGMENTS: u16 = 64;
/// Xen's note with the entry of PVH, its number and the name with its zero.
const PVH: (u32, &[u8]) = (18, b"Xen\0");
/// The number of our own.
const OWN: u32 = 1;

/// Why a file is not an image that can run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The file is not an image of a program.
    #[error("it is no image of a program: it is no ELF file; `ringway tiny build` makes images")]
    NoElf,
    /// Too large.
    #[error("it has {0} bytes; an image has at most {LARGEST_IMAGE}")]
    Large(usize),
    /// The image is for another processor.
    #[error("it is for another machine ({0}), not for x86-64; build it with `ringway tiny build`")]
    Machine(String),
    /// A library, an object file, or a program for an operating system that is loaded anywhere.
    #[error("it is no program at fixed addresses; build it with `ringway tiny build`")]
    NoExecutable,
    /// The image ends early, or contradicts itself.
    #[error("it is damaged: {0}; build it again")]
    Damaged(&'static str),
    /// A program for an operating system.
    #[error(
        "it has no entry for a VM: it is a program for an operating system, or lacks \
         `ringway_tiny_program::main!`; build it with `ringway tiny build`"
    )]
    NoEntry,
    /// The image was built with another version.
    #[error("it was built with another version of Ringway ({found}, this is {VERSION}); build it again")]
    Version {
        /// The version with which the image was built.
        found: String,
    },
    /// Not enough memory.
    #[error("it needs {needed} MB of memory; the function has {has} MB: set a larger `memory`")]
    Memory {
        /// Memory in MB that the image needs.
        needed: u64,
        /// The function's memory in MB.
        has: u64,
    },
}

/// The name of a processor by ELF's number.
fn machine(number: u16) -> String {
    match number {
        3 => "32-bit x86".into(),
        40 => "32-bit ARM".into(),
        183 => "ARM64".into(),
        243 => "RISC-V".into(),
        number => format!("ELF's number {number}"),
    }
}

/// A file's bytes, of which none past the end are read.
struct File<'a>(&'a [u8]);

impl<'a> File<'a> {
    fn part(&self, at: u64, len: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(at).ok()?;
        self.0.get(at..at.checked_add(usize::try_from(len).ok()?)?)
    }

    fn number<const N: usize>(&self, at: usize) -> Result<[u8; N], ImageError> {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk::<N>());
        bytes.copied().ok_or(ImageError::Damaged("it ends within its headers"))
    }

    fn short(&self, at: usize) -> Result<u16, ImageError> {
        Ok(u16::from_le_bytes(self.number(at)?))
    }

    fn word(&self, at: usize) -> Result<u32, ImageError> {
        Ok(u32::from_le_bytes(self.number(at)?))
    }

    fn long(&self, at: usize) -> Result<u64, ImageError> {
        Ok(u64::from_le_bytes(self.number(at)?))
    }
}

/// What the notes say.
#[derive(Default)]
struct Notes {
    entry: Option<u64>,
    version: Option<u32>,
}

impl Notes {
    /// Reads a segment of notes.
    fn read(&mut self, mut rest: &[u8]) {
        while let Some((head, after)) = rest.split_first_chunk::<12>() {
            let file = File(head);
            let number = |at| file.word(at).unwrap_or_default();
            let (name, len, kind) = (number(0) as usize, number(4) as usize, number(8));
            let (padded, whole) = (name.next_multiple_of(4), len.next_multiple_of(4));
            let Some((named, after)) = after.split_at_checked(padded) else { return };
            let Some(value) = after.get(..len) else { return };
            let short = || value.first_chunk().map(|value| u32::from_le_bytes(*value));
            match (kind, &named[..name]) {
                // The loader takes the first one, and its first 32 bits.
                own if own == PVH => self.entry = self.entry.or_else(|| short().map(u64::from)),
                own if own == (OWN, NOTE) => self.version = short(),
                _ => {}
            }
            rest = after.get(whole..).unwrap_or_default();
        }
    }
}

/// What a file's program headers say.
#[derive(Default)]
struct Layout {
    notes: Notes,
    /// Addresses that loading the image writes or zeroes, in ascending order.
    segments: Vec<Range<u64>>,
}

impl Layout {
    fn of(file: &File<'_>, count: u16) -> Result<Layout, ImageError> {
        let (mut layout, mut has_notes) = (Layout::default(), false);
        for index in 0..usize::from(count) {
            let at = HEADER + index * ENTRY;
            let (kind, offset, len) = (file.word(at)?, file.long(at + 8)?, file.long(at + 32)?);
            let part = file.part(offset, len).ok_or(ImageError::Damaged("it ends within a segment"))?;
            match kind {
                // The loader would take the entry of the last ones.
                NOTES if has_notes => return Err(ImageError::Damaged("its notes are in several segments")),
                NOTES => {
                    has_notes = true;
                    layout.notes.read(part);
                }
                LOAD => layout.add(file, at)?,
                _ => {}
            }
        }
        Ok(layout)
    }

    /// Adds the segment to load whose program header is at `at`.
    fn add(&mut self, file: &File<'_>, at: usize) -> Result<(), ImageError> {
        let (offset, runs_at, address) = (file.long(at + 8)?, file.long(at + 16)?, file.long(at + 24)?);
        let (len, whole, align) = (file.long(at + 32)?, file.long(at + 40)?, file.long(at + 48)?);
        // Attack: bytes in the file for a segment that has none in memory, which the loader would copy all the same.
        if len > whole {
            return Err(ImageError::Damaged("a segment has more bytes in the file than in memory"));
        }
        if whole == 0 {
            return Ok(());
        }
        // Attack: a segment over the monitor's tables, over another one, or around the end of the addresses.
        let end = address.checked_add(whole).filter(|_| address >= FIRST);
        let end = end.ok_or(ImageError::Damaged("a segment has no place in the memory"))?;
        if self.segments.last().is_some_and(|last| address < last.end) {
            return Err(ImageError::Damaged("its segments overlap, or are not in ascending order"));
        }
        if runs_at != address {
            return Err(ImageError::Damaged("a segment runs at another address than it is loaded at"));
        }
        if align > 1 && (!align.is_power_of_two() || offset % align != address % align) {
            return Err(ImageError::Damaged("a segment is not aligned as it says"));
        }
        self.segments.push(address..end);
        Ok(())
    }
}

/// Checks that a file is the image of a program that runs with so many bytes of memory.
///
/// # Errors
/// Why not.
pub fn check_image(bytes: &[u8], memory: u64) -> Result<(), ImageError> {
    if bytes.len() > LARGEST_IMAGE {
        return Err(ImageError::Large(bytes.len()));
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Err(ImageError::NoElf);
    }
    let file = File(bytes);
    let [class, order]: [u8; 2] = file.number(4)?;
    let number = file.short(18)?;
    if order == 1 && number != X86_64 {
        return Err(ImageError::Machine(machine(number)));
    }
    if (class, order) != (2, 1) {
        return Err(ImageError::Machine("not 64 bits, little-endian".into()));
    }
    if file.short(16)? != EXECUTABLE {
        return Err(ImageError::NoExecutable);
    }
    let (first, size, count) = (file.long(32)?, file.short(54)?, file.short(56)?);
    if first != HEADER as u64 || usize::from(size) != ENTRY || count > SEGMENTS {
        return Err(ImageError::Damaged("its segments are listed elsewhere"));
    }
    let Layout { notes, segments } = Layout::of(&file, count)?;
    let end = segments.last().map_or(0, |last| last.end);
    let entry = notes.entry.ok_or(ImageError::NoEntry)?;
    if notes.version != Some(VERSION) {
        let found = notes.version.map_or("none is named".into(), |version| version.to_string());
        return Err(ImageError::Version { found });
    }
    if !segments.iter().any(|segment| segment.contains(&entry)) {
        return Err(ImageError::Damaged("its entry is in no segment"));
    }
    match end.checked_add(HEAP + ORDER) {
        Some(needed) if needed <= memory => Ok(()),
        needed => {
            let mb = |bytes: u64| bytes.div_ceil(1 << 20);
            Err(ImageError::Memory { needed: mb(needed.unwrap_or(u64::MAX)), has: memory >> 20 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 32 << 20;

    fn note(kind: u32, name: &[u8], value: u32) -> Vec<u8> {
        let mut note = [name.len() as u32, 4, kind].map(u32::to_le_bytes).concat();
        note.extend_from_slice(name);
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(value.to_le_bytes());
        note
    }

    /// A program header: its kind, the offset in the file, the addresses where it runs and where it is loaded, the
    /// bytes in the file and in memory, the alignment.
    type Segment = (u32, [u64; 6]);

    /// A file with these program headers, followed by `contents`.
    fn file(segments: &[Segment], contents: &[u8]) -> Vec<u8> {
        let mut image =
            [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[2, 0, 0x3e, 0, 1, 0, 0, 0], &[0; 8]].concat();
        image.extend(64_u64.to_le_bytes());
        image.extend([0; 12]);
        image.extend([64, 0, 56, 0, segments.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
        for (kind, numbers) in segments {
            image.extend([*kind, 7].map(u32::to_le_bytes).concat());
            image.extend(numbers.map(u64::to_le_bytes).concat());
        }
        image.extend(contents);
        image
    }

    /// An image with these notes, 4 bytes of code, and segments to load: offset from the code, the addresses where it
    /// runs and where it is loaded, bytes in the file and in memory, alignment.
    fn image_of(notes: &[Vec<u8>], loads: &[[u64; 6]]) -> Vec<u8> {
        let notes = notes.concat();
        let (at, len) = ((HEADER + (1 + loads.len()) * ENTRY) as u64, notes.len() as u64);
        let load = |[offset, rest @ ..]: [u64; 6]| {
            let [runs_at, address, len_in_file, whole, align] = rest;
            (LOAD, [at + len + offset, runs_at, address, len_in_file, whole, align])
        };
        let segments: Vec<Segment> =
            [(NOTES, [at, 0, 0, len, len, 4])].into_iter().chain(loads.iter().copied().map(load)).collect();
        file(&segments, &[notes, [0xf4; 4].to_vec()].concat())
    }

    /// An image with these notes, and a segment of so many bytes in memory.
    fn image(notes: &[Vec<u8>], whole: u64) -> Vec<u8> {
        image_of(notes, &[[0, FIRST, FIRST, 4, whole, 4]])
    }

    fn notes() -> [Vec<u8>; 2] {
        [note(18, b"Xen\0", 1 << 20), note(1, NOTE, VERSION)]
    }

    fn good() -> Vec<u8> {
        image(&notes(), 4)
    }

    #[test]
    fn an_image_of_this_version_is_good() {
        assert_eq!(check_image(&good(), MEMORY), Ok(()));
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let why = |image: &[u8]| check_image(image, MEMORY).unwrap_err();
        assert_eq!(why(b"#!/bin/sh\n"), ImageError::NoElf);
        assert_eq!(why(b""), ImageError::NoElf);
        assert_eq!(why(&vec![0; LARGEST_IMAGE + 1]), ImageError::Large(LARGEST_IMAGE + 1));
        let changed = |at: usize, byte: u8| {
            let mut image = good();
            image[at] = byte;
            image
        };
        assert_eq!(why(&changed(18, 183)), ImageError::Machine("ARM64".into()));
        assert_eq!(why(&changed(18, 3)), ImageError::Machine("32-bit x86".into()));
        assert!(matches!(why(&changed(5, 2)), ImageError::Machine(_)), "big-endian");
        assert_eq!(why(&changed(16, 3)), ImageError::NoExecutable, "a library");
        assert_eq!(why(&image(&[note(1, NOTE, VERSION)], 4)), ImageError::NoEntry);
        let pvh = || note(18, b"Xen\0", 1 << 20);
        let version = |found: &str| ImageError::Version { found: found.into() };
        assert_eq!(why(&image(&[pvh()], 4)), version("none is named"));
        assert_eq!(why(&image(&[pvh(), note(1, NOTE, 77)], 4)), version("77"));
        let outside = [note(18, b"Xen\0", 2 << 20), note(1, NOTE, VERSION)];
        assert_eq!(why(&image(&outside, 4)), ImageError::Damaged("its entry is in no segment"));
        let notes = [pvh(), note(1, NOTE, VERSION)];
        assert_eq!(why(&image(&notes, 40 << 20)), ImageError::Memory { needed: 45, has: 32 });
        assert!(matches!(why(&image(&notes, u64::MAX)), ImageError::Damaged(_)));
        assert!(matches!(why(&image(&notes, 3)), ImageError::Damaged(_)), "more in the file than in memory");
    }

    #[test]
    fn every_segment_has_a_place_of_its_own_behind_the_tables() {
        let code = [0, FIRST, FIRST, 4, 4, 4];
        let with = |more: &[[u64; 6]]| check_image(&image_of(&notes(), &[&[code], more].concat()), MEMORY);
        let behind = FIRST + 4096;
        let page = [0, behind, behind, 4, 4096, 4];
        assert_eq!(with(&[page, [0, behind + 4096, behind + 4096, 0, 4096, 1]]), Ok(()), "zeros alone");
        assert_eq!(with(&[[0; 6]]), Ok(()), "an empty segment is nowhere");
        let damaged = |what| Err(ImageError::Damaged(what));
        let larger = damaged("a segment has more bytes in the file than in memory");
        assert_eq!(with(&[[0, 0x6000, 0x6000, 4, 0, 4]]), larger, "over the monitor's tables");
        assert_eq!(with(&[[0, behind, behind, 4, 0, 4]]), larger);
        assert_eq!(with(&[[0, behind, behind, 4, 3, 4]]), larger);
        let nowhere = damaged("a segment has no place in the memory");
        assert_eq!(with(&[[0, 0x6000, 0x6000, 4, 4, 4]]), nowhere);
        assert_eq!(with(&[[0, FIRST - 4, FIRST - 4, 4, 8, 4]]), nowhere, "into the image");
        assert_eq!(with(&[[0, 0x6000, 0x6000, 0, 4, 4]]), nowhere, "zeros alone");
        assert_eq!(with(&[[0, u64::MAX - 3, u64::MAX - 3, 4, 8, 4]]), nowhere, "around the end");
        let overlap = damaged("its segments overlap, or are not in ascending order");
        assert_eq!(with(&[[0, FIRST, FIRST, 4, 4, 4]]), overlap);
        assert_eq!(with(&[page, [0, behind + 4092, behind + 4092, 0, 8, 4]]), overlap);
        assert_eq!(with(&[[0, behind + 4096, behind + 4096, 0, 8, 4], page]), overlap);
        let elsewhere = damaged("a segment runs at another address than it is loaded at");
        assert_eq!(with(&[[0, behind + 4096, behind, 4, 4, 4]]), elsewhere);
        let aligned = damaged("a segment is not aligned as it says");
        assert_eq!(with(&[[0, behind, behind, 4, 4, 3]]), aligned);
        assert_eq!(with(&[[2, behind, behind, 2, 4, 4]]), aligned);
        let large = [0, behind, behind, 0, MEMORY, 4];
        assert!(matches!(with(&[large]), Err(ImageError::Memory { .. })), "over the end of the memory");
    }

    #[test]
    fn the_entry_that_is_checked_is_the_one_that_is_used() {
        let [pvh, own] = notes();
        let second = note(18, b"Xen\0", 0x6000);
        let twice = image(&[pvh.clone(), second.clone(), own.clone()], 4);
        assert_eq!(check_image(&twice, MEMORY), Ok(()), "the first one counts");
        let twice = image(&[second.clone(), pvh.clone(), own.clone()], 4);
        assert_eq!(check_image(&twice, MEMORY), Err(ImageError::Damaged("its entry is in no segment")));
        let contents = [pvh, own, second].concat();
        let (at, first) = ((HEADER + 3 * ENTRY) as u64, (contents.len() - 20) as u64);
        let segments = [
            (NOTES, [at, 0, 0, first, first, 4]),
            (NOTES, [at + first, 0, 0, 20, 20, 4]),
            (LOAD, [at, FIRST, FIRST, 4, 4, 4]),
        ];
        let several = Err(ImageError::Damaged("its notes are in several segments"));
        assert_eq!(check_image(&file(&segments, &contents), MEMORY), several);
    }

    #[test]
    fn an_image_that_ends_anywhere_is_refused() {
        let good = good();
        for len in 0..good.len() {
            assert!(check_image(&good[..len], MEMORY).is_err(), "{len}");
        }
    }
}
