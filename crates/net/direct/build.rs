//! Builds the image, which the library contains in two parts: the segment that is never written, and the other one.
#[path = "../../base/bare/image.rs"]
mod image;

use image::Image;
use std::path::Path;
use std::process::ExitCode;

/// The image.
const NAME: &str = "direct";

fn main() -> ExitCode {
    let package = &image::folder("CARGO_MANIFEST_DIR").join("../direct-stack");
    // Its address is beyond what the code for fixed places can name.
    let flags = &["-Crelocation-model=pic"];
    let script = &package.join("link.ld");
    let script = Some(script.as_path());
    let image = Image { package, script, name: NAME, profile: NAME, features: "image", flags };
    let Some(built) = image.build() else { return ExitCode::FAILURE };
    match split(&built, &image::folder("OUT_DIR")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the image can't be split: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes what the two segments have in the file, and their places in memory.
fn split(image: &Path, out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    /// Offsets and sizes of ELF's headers for 64 bits (elf(5)).
    const ENTRY: usize = 24;
    const HEADERS: usize = 32;
    const COUNT: usize = 56;
    const SIZE: usize = 56;
    let bytes = std::fs::read(image)?;
    let number = |at: usize| -> Result<u64, std::array::TryFromSliceError> {
        Ok(u64::from_le_bytes(bytes[at..at + 8].try_into()?))
    };
    println!("cargo::rustc-env=DIRECT_ENTRY={}", number(ENTRY)?);
    let first = number(HEADERS)? as usize;
    let mut flags = Vec::new();
    for at in (0..usize::from(bytes[COUNT])).map(|index| first + index * SIZE) {
        // A segment to load.
        if bytes[at] != 1 {
            continue;
        }
        let name = if flags.is_empty() { "text" } else { "data" };
        flags.push(bytes[at + 4]);
        let (offset, address, len) = (number(at + 8)? as usize, number(at + 16)?, number(at + 32)? as usize);
        let end = address + number(at + 40)?;
        if !address.is_multiple_of(4096) {
            return Err(format!("its {name} begins at {address:#x}, within a page").into());
        }
        let path = out.join(format!("direct.{name}"));
        std::fs::write(&path, &bytes[offset..offset + len])?;
        let name = name.to_uppercase();
        println!("cargo::rustc-env=DIRECT_{name}={}", path.display());
        println!("cargo::rustc-env=DIRECT_{name}_AT={address}");
        println!("cargo::rustc-env=DIRECT_{name}_END={}", end.next_multiple_of(4096));
    }
    // May be read and executed, and read and written.
    if flags == [5, 6] { Ok(()) } else { Err(format!("it has segments with the flags {flags:?}").into()) }
}
