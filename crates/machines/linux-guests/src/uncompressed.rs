//! Kernels without their compression: QEMU's translator takes seconds to decompress one, and boots the rest in less.
use crate::image;
use ringway_host::{OwnFile, check_own_folder, open_own, read_file};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Attack: a device as a kernel. Largest size in bytes of a kernel, compressed or not.
const LARGEST: usize = 1 << 30;
/// The first bytes of what a program decompresses.
const PROGRAMS: [(&[u8], &str); 4] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b", "gzip"),
    (b"\x02\x21\x4c\x18", "lz4"),
];
/// An ELF note with the entry for PVH (XEN_ELFNOTE_PHYS32_ENTRY), as Linux has it: lengths of name and value, type,
/// name. QEMU boots no uncompressed kernel without it.
const PVH: &[u8] = b"\x04\0\0\0\x04\0\0\0\x12\0\0\0Xen\0";
const PVH_LONG: &[u8] = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0";

/// The uncompressed form of a kernel, in the cache folder; the kernel itself if there is none.
pub fn uncompressed(kernel: PathBuf) -> PathBuf {
    // Guests that start at the same time wait for one file.
    static MADE: Mutex<()> = Mutex::new(());
    let _one = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    kept(&kernel, &image::cache()).unwrap_or_else(|error| {
        tracing::debug!("{} stays compressed: {error}", kernel.display());
        kernel
    })
}

/// The file in `cache`, which is made unless it is there.
fn kept(kernel: &Path, cache: &Path) -> io::Result<PathBuf> {
    let seen = kernel.metadata()?;
    let name = kernel.file_name().unwrap_or_default().to_string_lossy();
    let key = format!("{name}-{:x}-{:x}-{:x}-{:x}", seen.dev(), seen.ino(), seen.size(), seen.mtime());
    let to = cache.join(format!("vmlinux-{key}"));
    if !to.is_file() {
        fs::create_dir_all(cache)?;
        // Attack: another user's folder, such as in /tmp if there is no home.
        check_own_folder(cache)?;
        let new = cache.join(format!("new-{}-{key}", std::process::id()));
        let made = decompress(&read_file(kernel, LARGEST)?, &new).and_then(|()| fs::rename(&new, &to));
        if let Err(error) = made {
            // The file may not be there.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
    }
    Ok(to)
}

/// Decompresses a kernel image into a new file.
fn decompress(image: &[u8], new: &Path) -> io::Result<()> {
    let unknown = || io::Error::other("its compression is unknown");
    let payload = payload(image).ok_or_else(unknown)?;
    let program = PROGRAMS.iter().find(|(magic, _)| payload.starts_with(magic));
    let (_, program) = program.ok_or_else(unknown)?;
    // All but gzip's, which has it too, are followed by the length.
    let payload = if *program == "gzip" { payload } else { &payload[..payload.len().saturating_sub(4)] };
    let mut command = Command::new(program);
    command
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(open_own(new, OwnFile::Rewrite, 0o644)?)
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(payload));
    let status = child.wait()?;
    written?;
    let kernel = read_file(new, LARGEST)?;
    let has = |note: &[u8]| kernel.windows(note.len()).any(|bytes| bytes == note);
    match status.success() && kernel.starts_with(b"\x7fELF") {
        true if has(PVH) || has(PVH_LONG) => Ok(()),
        true => Err(io::Error::other("it can't be booted by PVH")),
        false => Err(io::Error::other(format!("{program} fails"))),
    }
}

/// The compressed kernel in an image for PCs (boot protocol 2.08, Documentation/arch/x86/boot.rst).
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let begin = ((sectors + 1) * 512).checked_add(number(0x248)?)?;
    image.get(begin..begin.checked_add(number(0x24c)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image with this payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&8u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(&[0; 8]);
        image.extend_from_slice(payload);
        image
    }

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut gzip =
            Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        gzip.stdin.take().unwrap().write_all(text).unwrap();
        gzip.wait_with_output().unwrap().stdout
    }

    #[test]
    fn a_kernel_is_decompressed_once_if_it_can_be_booted_so() {
        let folder = std::env::temp_dir().join(format!("ringway-uncompressed-{}", std::process::id()));
        let (cache, kernel) = (folder.join("cache"), folder.join("vmlinuz-1"));
        fs::create_dir_all(&folder).unwrap();
        let elf = [b"\x7fELF rest ", PVH_LONG, b"more"].concat();
        fs::write(&kernel, image(&compressed(&elf))).unwrap();
        let made = kept(&kernel, &cache).unwrap();
        assert_eq!(fs::read(&made).unwrap(), elf);
        assert!(made.starts_with(&cache) && kept(&kernel, &cache).unwrap() == made);
        // Wrong images leave nothing, and say why.
        for (wrong, why) in [
            (image(&compressed(b"\x7fELF without the note")), "PVH"),
            (image(&compressed(b"no ELF")), "gzip fails"),
            (image(b"what is this"), "unknown"),
            (b"short".to_vec(), "unknown"),
            (image(&compressed(&elf))[..1050].to_vec(), "unknown"),
        ] {
            let kernel = folder.join("vmlinuz-2");
            fs::write(&kernel, wrong).unwrap();
            let said = kept(&kernel, &cache).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
