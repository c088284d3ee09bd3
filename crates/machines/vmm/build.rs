//! Builds the tiny guests' images, which the library contains.
#[path = "../../base/bare/image.rs"]
mod image;

use image::Image;
use std::path::Path;
use std::process::ExitCode;

/// The images, with their features; each has a profile of its name.
const TINY: [&str; 2] = ["tiny", "image"];
const CLICK: [&str; 2] = ["click", "image,click"];

fn main() -> ExitCode {
    let out = image::folder("OUT_DIR");
    // Functions with the same code are one: sorts and tables of several crates, for example. Nothing compares addresses
    // of functions. The guest's entry enables vector registers.
    let flags = ["-Crelocation-model=static", "-Clink-arg=--icf=all"];
    let package = &image::folder("CARGO_MANIFEST_DIR").join("../tiny");
    let script = &package.join("link.ld");
    for [name, features] in [TINY, CLICK] {
        let image = Image { package, script: Some(script), name, profile: name, features, flags: &flags };
        let Some(from) = image.build() else { return ExitCode::FAILURE };
        // A copy, since a later build of another profile may replace the original meanwhile.
        let to = out.join(name);
        if let Err(error) = std::fs::copy(&from, &to) {
            eprintln!("{}: {error}", from.display());
            return ExitCode::FAILURE;
        }
        println!("cargo::rustc-env={}={}", name.to_uppercase(), to.display());
    }
    match split(&out.join(CLICK[0]), &out) {
        Ok(address) => {
            for part in ["text", "rest"] {
                let path = out.join(format!("click.{part}"));
                println!("cargo::rustc-env=CLICK_{}={}", part.to_uppercase(), path.display());
            }
            println!("cargo::rustc-env=CLICK_ADDRESS={address}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the image of functions can't be split: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes an image's first segment, which is never written, in whole pages, to `click.text`, and the image without it
/// to `click.rest`; returns the segment's address.
fn split(image: &Path, out: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    const PAGE: usize = 4096;
    /// Offsets and sizes of ELF's headers for 64 bits (elf(5)).
    const HEADERS: usize = 32;
    const COUNT: usize = 56;
    const HEADER: usize = 64;
    const ENTRY: usize = 56;
    let mut bytes = std::fs::read(image)?;
    // FNV-1a: starting a function then need not read all pages of its image.
    let mark = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |mark, byte| {
        (mark ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    println!("cargo::rustc-env=CLICK_MARK={mark}");
    let number = |bytes: &[u8], at: usize| -> Result<u64, std::array::TryFromSliceError> {
        Ok(u64::from_le_bytes(bytes[at..at + 8].try_into()?))
    };
    let first = number(&bytes, HEADERS)? as usize;
    let (kind, flags) = (bytes[first], bytes[first + 4]);
    let [offset, _, address, len] = [8, 16, 24, 32].map(|at| number(&bytes, first + at));
    let (offset, address, len) = (offset? as usize, address?, len? as usize);
    // A segment to load, which may be read and executed.
    if first != HEADER || kind != 1 || flags != 5 || !offset.is_multiple_of(PAGE) || address % 4096 != 0 {
        return Err("its first segment is not the one that is never written".into());
    }
    let mut text = bytes[offset..offset + len].to_vec();
    text.resize(len.next_multiple_of(PAGE), 0);
    std::fs::write(out.join("click.text"), &text)?;
    // The entry of the first segment becomes one without a meaning, and those behind it move to its place.
    let moved = text.len();
    for entry in 0..usize::from(bytes[COUNT]) {
        let at = first + entry * ENTRY;
        let begin = number(&bytes, at + 8)? as usize;
        if entry == 0 {
            bytes[at..at + 4].fill(0);
        } else if begin >= offset + len {
            let begin =
                begin.checked_sub(moved).filter(|begin| *begin >= offset).ok_or("overlapping segments")?;
            bytes[at + 8..at + 16].copy_from_slice(&(begin as u64).to_le_bytes());
        } else {
            return Err("a segment within the first".into());
        }
    }
    bytes.drain(offset..offset + moved);
    Ok(std::fs::write(out.join("click.rest"), &bytes).map(|()| address)?)
}
