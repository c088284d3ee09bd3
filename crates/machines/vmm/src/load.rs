//! Loading a PVH image and the tables that it finds.

use linux_loader::configurator::pvh::PvhBootConfigurator;
use linux_loader::configurator::{BootConfigurator, BootParams};
use linux_loader::loader::elf::start_info::{hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info};
use linux_loader::loader::elf::{Elf, PvhBootCapability};
use linux_loader::loader::{KernelLoader, KernelLoaderResult};
use std::fs::File;
use std::io::Cursor;
use std::os::fd::OwnedFd;
use vm_memory::{Address, Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// Addresses of the tables and of the module, below the image.
const START_INFO: u64 = 0x6000;
const MODULES: u64 = 0x7000;
const MEMORY_MAP: u64 = 0x8000;
const MODULE: u64 = 0x9000;
/// Largest module: a command line.
const MODULE_MAX: usize = 4096;
/// First number of the start information.
const MAGIC: u32 = 0x336e_c578;
/// Memory that an image with a second module needs at least for its heap.
const HEAP_MIN: u64 = 2 << 20;
/// Memory, in the memory map.
const RAM: u32 = 1;

/// A PVH image.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The ELF file of what is loaded.
    pub file: &'a [u8],
    /// What is never written.
    pub shared: Option<Shared>,
    /// Tells it from other images: a snapshot is of one image.
    pub mark: u64,
}

/// Pages that guests share with the monitor's program, and can't write.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Their guest-physical address.
    pub address: u64,
    /// Whole pages.
    pub bytes: &'static [u8],
}

impl<'a> Image<'a> {
    /// An image of which guests share nothing.
    pub fn of(file: &'a [u8]) -> Image<'a> {
        // Two images of one size differ in what follows the code: FNV-1a of some words is enough to tell them apart.
        let words = file.chunks(64).filter_map(|chunk| chunk.first_chunk::<8>());
        let mark = words.fold(file.len() as u64 ^ 0xcbf2_9ce4_8422_2325, |mark, word| {
            (mark ^ u64::from_le_bytes(*word)).wrapping_mul(0x100_0000_01b3)
        });
        Image { file, shared: None, mark }
    }

    /// The ELF file as it was built, for another monitor.
    pub fn elf(&self) -> Vec<u8> {
        // Offsets and sizes of ELF's headers for 64 bits (elf(5)).
        const COUNT: usize = 56;
        const HEADER: usize = 64;
        const ENTRY: usize = 56;
        const LOAD: u32 = 1;
        let mut file = self.file.to_vec();
        let Some(Shared { bytes, .. }) = self.shared else { return file };
        // The build script took the first segment out: its entry still says where it was.
        let offset = |file: &[u8], entry: usize| -> Option<u64> {
            file.get(HEADER + entry * ENTRY + 8..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
        };
        let Some(first) = offset(&file, 0) else { return file };
        for entry in 1..usize::from(file.get(COUNT).copied().unwrap_or_default()) {
            let moved = offset(&file, entry).unwrap_or_default() + bytes.len() as u64;
            let at = HEADER + entry * ENTRY + 8;
            file.splice(at..at + 8, moved.to_le_bytes());
        }
        file.splice(HEADER..HEADER + 4, LOAD.to_le_bytes());
        let at = (first as usize).min(file.len());
        file.splice(at..at, bytes.iter().copied());
        file
    }

    /// Bytes of the file and of the shared pages.
    pub fn size(&self) -> usize {
        self.file.len() + self.shared.map_or(0, |shared| shared.bytes.len())
    }
}

/// The number that a build script wrote.
pub(crate) const fn decimal(text: &str) -> u64 {
    let (digits, mut number, mut at) = (text.as_bytes(), 0, 0);
    while at < digits.len() {
        number = number * 10 + (digits[at] - b'0') as u64;
        at += 1;
    }
    number
}

/// Why an image can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is no ELF image, or does not fit into the memory.
    #[error("the image can't be loaded: {0}")]
    Image(#[from] linux_loader::loader::Error),
    /// The image has no PVH entry.
    #[error("the image has no PVH entry")]
    NoEntry,
    /// The PVH entry is not in the memory.
    #[error("the image's entry {0:#x} is outside the memory")]
    Entry(u64),
    /// The command line is too long.
    #[error("the command line has {0} bytes, at most 4096 are allowed")]
    Line(usize),
    /// The second module and the image leave no memory.
    #[error("{size} bytes of memory are too few for the image and {module} bytes of configuration")]
    Module {
        /// Bytes of the module.
        module: usize,
        /// Bytes of the memory.
        size: usize,
    },
    /// The memory is too small.
    #[error("the tables do not fit into the memory: {0}")]
    Tables(String),
}

/// The end of a loaded image.
fn image_end(loaded: &KernelLoaderResult) -> u64 {
    loaded.kernel_end
}

/// Where the image begins.
pub(crate) struct Entry {
    pub entry: u64,
    pub start_info: u64,
}

/// Loads an image into a machine's memory, with `line` as its first module, and `module` as its second unless that is
/// empty.
pub(crate) fn load(
    memory: OwnedFd,
    size: usize,
    image: &[u8],
    line: &str,
    module: &[u8],
) -> Result<Entry, LoadError> {
    if line.len() > MODULE_MAX {
        return Err(LoadError::Line(line.len()));
    }
    let tables = |error: &dyn std::fmt::Display| LoadError::Tables(error.to_string());
    let file = FileOffset::new(File::from(memory), 0);
    let memory = GuestMemoryMmap::<()>::from_ranges_with_files([(GuestAddress(0), size, Some(file))]);
    let memory = memory.map_err(|error| tables(&error))?;
    let loaded = Elf::load(&memory, None, &mut Cursor::new(image), None)?;
    let PvhBootCapability::PvhEntryPresent(entry) = loaded.pvh_boot_cap else {
        return Err(LoadError::NoEntry);
    };
    let entry = entry.raw_value();
    if entry >= size as u64 {
        return Err(LoadError::Entry(entry));
    }
    let mut modules =
        vec![hvm_modlist_entry { paddr: MODULE, size: line.len() as u64, ..Default::default() }];
    if !module.is_empty() {
        // At the end of the memory: what is before it is the guest's heap.
        let at = (size as u64).saturating_sub(module.len() as u64) & !0xfff;
        if at < image_end(&loaded).saturating_add(HEAP_MIN) {
            return Err(LoadError::Module { module: module.len(), size });
        }
        memory.write_slice(module, GuestAddress(at)).map_err(|error| tables(&error))?;
        modules.push(hvm_modlist_entry { paddr: at, size: module.len() as u64, ..Default::default() });
    }
    let start = hvm_start_info {
        magic: MAGIC,
        version: 1,
        nr_modules: modules.len() as u32,
        modlist_paddr: MODULES,
        memmap_paddr: MEMORY_MAP,
        memmap_entries: 1,
        ..hvm_start_info::default()
    };
    let map = hvm_memmap_table_entry { addr: 0, size: size as u64, type_: RAM, reserved: 0 };
    let mut parameters = BootParams::new(&start, GuestAddress(START_INFO));
    parameters.set_sections(&[map], GuestAddress(MEMORY_MAP));
    parameters.set_modules(&modules, GuestAddress(MODULES));
    PvhBootConfigurator::write_bootparams(&parameters, &memory).map_err(|error| tables(&error))?;
    memory.write_slice(line.as_bytes(), GuestAddress(MODULE)).map_err(|error| tables(&error))?;
    Ok(Entry { entry, start_info: START_INFO })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_functions_is_whole_again_for_another_monitor() {
        let elf = crate::click().elf();
        let mark = elf.iter().fold(0xcbf2_9ce4_8422_2325, |mark, byte| {
            (mark ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(mark, crate::click().mark, "the build script's mark of the file");
        assert_eq!(Image::of(&elf).elf(), elf);
    }
}
