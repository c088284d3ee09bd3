//! What a QEMU guest was started with: what another QEMU must have in common with it to take it over while it runs.

use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::Path;

/// The file with them in the guest's folder.
const FILE: &str = "launch.json";
/// Largest size of that file.
const LARGEST: u64 = 1 << 20;
/// Constants of the FNV-1a hash of 64 bits.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// What a QEMU guest was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// QEMU's version, such as `7.2.22`.
    pub qemu: String,
    /// `KVM` or `TCG`.
    pub accelerator: String,
    /// The model of its processor, and what identifies its features.
    pub processor: String,
    /// Memory in MiB.
    pub memory: u64,
    /// Virtual processors.
    pub processors: u32,
    /// Size and hash of its kernel.
    pub kernel: String,
    /// Size and hash of its initial file system.
    pub initrd: String,
    /// Its kernel's command line.
    pub command_line: String,
    /// The addresses of its interfaces, in their order.
    pub macs: Vec<String>,
}

impl Facts {
    /// Writes them to a guest's folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::write(folder.join(FILE), serde_json::to_vec(self)?)
    }

    /// Those of the guest that was last started with this folder.
    ///
    /// # Errors
    /// There are none: it was started by a version without this file.
    pub fn read(folder: &Path) -> io::Result<Facts> {
        let mut text = Vec::new();
        std::fs::File::open(folder.join(FILE))?.take(LARGEST).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Size and hash of a file. Equal files of two hosts have equal ones; it is no protection against forged files.
pub(crate) fn digest(path: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let (mut size, mut hash, mut block) = (0, FNV_START, vec![0; 1 << 16]);
    loop {
        // Whole blocks, so that the hash does not depend on how much a read returns.
        let read = full(&mut file, &mut block)?;
        if read == 0 {
            return Ok(format!("{size} bytes, {hash:016x}"));
        }
        size += read;
        hash = hashed(hash, &block[..read]);
    }
}

fn full(file: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < block.len() {
        match file.read(&mut block[at..]) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

/// FNV-1a over words of eight bytes, the last one filled up with zeros.
fn hashed(hash: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(hash, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(FNV_PRIME)
    })
}

/// The host's processor: its model, and a hash of its features.
pub(crate) fn host_processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    };
    let features = hashed(FNV_START, value("flags").as_bytes());
    format!("{}, features {features:016x}", value("model name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_file_depends_on_each_byte_and_on_its_size() {
        let folder = std::env::temp_dir().join(format!("ringway-digest-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let digest_of = |bytes: &[u8]| {
            let path = folder.join("file");
            std::fs::write(&path, bytes).unwrap();
            digest(&path).unwrap()
        };
        let long = vec![7; 200_000];
        let mut other = long.clone();
        other[150_001] = 8;
        assert_eq!(digest_of(&long), digest_of(&long));
        assert_ne!(digest_of(&long), digest_of(&other));
        assert_ne!(digest_of(&[1, 0]), digest_of(&[1]));
        let facts = Facts {
            qemu: "7.2.22".into(),
            accelerator: "TCG".into(),
            processor: host_processor(),
            memory: 192,
            processors: 1,
            kernel: digest_of(&long),
            initrd: digest_of(&other),
            command_line: "quiet".into(),
            macs: vec!["02:00:00:00:00:01".into()],
        };
        facts.write(&folder).unwrap();
        assert_eq!(Facts::read(&folder).unwrap(), facts);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Facts::read(&folder).is_err());
    }
}
