//! Memory usage of the files of a guest's memory.
//!
//! Attack: a front-end with a memory limit of its own shares a sparse file, and uses its holes in its rings.
//! The pages that a worker touches first are charged to `data`. Who touched a page first is not visible, so
//! all growth counts.

use super::device::Mapped;
use ringway_frame::Counters;
use ringway_host::FileId;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

/// Largest number of files that are measured. Attack: one file a region, each of which would need another
/// descriptor.
const FILES: usize = 8;
/// Nanoseconds between looks.
const INTERVAL: u64 = 250_000_000;

#[derive(Debug)]
struct File {
    id: FileId,
    file: OwnedFd,
    /// Bytes of it that are mapped.
    mapped: u64,
    /// Bytes in memory when it was shared, when it was last looked at, and at most.
    first: u64,
    last: u64,
    most: u64,
}

impl File {
    fn grown(&self) -> u64 {
        self.most - self.first
    }
}

/// The files that a front-end shares, and what became of them.
#[derive(Debug, Default)]
pub(super) struct Usage {
    files: Vec<File>,
    /// Bytes mapped of files that are not looked at.
    others: u64,
    /// By how many bytes files grew that this session let go of, and those of sessions before.
    former: u64,
    before: u64,
    looked: u64,
}

impl Usage {
    /// A region's file, which is looked at from now on, if it can be. [`Usage::keep`] ends that.
    pub fn share(&mut self, file: OwnedFd) -> Option<FileId> {
        let (id, first) = ringway_host::resident(&file).ok()?;
        let is_new = self.files.iter().all(|known| known.id != id);
        if is_new && self.files.len() < FILES {
            self.files.push(File { id, file, mapped: 0, first, last: first, most: first });
        }
        Some(id)
    }

    /// The guest's memory is this now.
    pub fn keep(&mut self, table: &[Mapped]) {
        self.others = table.iter().map(|mapped| mapped.said.size).sum();
        self.look();
        for file in &mut self.files {
            let regions = table.iter().filter(|mapped| mapped.file == Some(file.id));
            file.mapped = regions.map(|mapped| mapped.said.size).sum();
            self.others -= file.mapped;
        }
        let gone = self.files.extract_if(.., |file| file.mapped == 0);
        let (grown, files): (Vec<u64>, Vec<OwnedFd>) = gone.map(|file| (file.grown(), file.file)).unzip();
        self.former += grown.iter().sum::<u64>();
        ringway_host::close_memory(files);
    }

    /// The front-end is gone.
    pub fn end(&mut self) {
        self.keep(&[]);
        self.before += std::mem::take(&mut self.former);
    }

    fn look(&mut self) {
        for file in &mut self.files {
            if let Ok((_, resident)) = ringway_host::resident(&file.file) {
                file.last = resident;
                file.most = file.most.max(resident);
            }
        }
    }

    /// Looks, if it is time, and shows what was found. By how many bytes files grew in this session.
    pub fn measure(&mut self, now: u64, counters: &Counters) -> u64 {
        if now.saturating_sub(self.looked) >= INTERVAL {
            self.looked = now;
            self.look();
        }
        let resident: u64 = self.files.iter().map(|file| file.last.min(file.mapped)).sum();
        let grown = self.former + self.files.iter().map(File::grown).sum::<u64>();
        counters.memory_resident.store(resident + self.others, Relaxed);
        counters.memory_grown.store(self.before + grown, Relaxed);
        grown
    }
}
