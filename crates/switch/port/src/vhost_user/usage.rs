//! Memory usage of the files of a guest's memory.
//!
//! Attack: a front-end with a memory limit of its own shares a sparse file, and uses its holes in its rings. The pages
//! that a worker touches first are charged to `data`. Which process touched a page first is not visible, so all growth
//! counts.

use super::device::Mapped;
use ringway_frame::Counters;
use ringway_host::FileId;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

/// Largest number of files that are measured. Attack: one file per region, each of which would need another
/// descriptor.
const FILES: usize = 8;
/// Nanoseconds between measurements.
const INTERVAL: u64 = 250_000_000;

#[derive(Debug)]
struct File {
    id: FileId,
    file: OwnedFd,
    /// Mapped bytes of the file.
    mapped: u64,
    /// Resident bytes when the file was shared, at the last measurement, and at most.
    first: u64,
    last: u64,
    most: u64,
}

impl File {
    fn grown(&self) -> u64 {
        self.most - self.first
    }
}

/// The files that a front-end shares, and their growth.
#[derive(Debug, Default)]
pub(super) struct Usage {
    files: Vec<File>,
    /// Mapped bytes of files that are not measured.
    others: u64,
    /// Bytes by which files grew that this session released, and those of earlier sessions.
    former: u64,
    before: u64,
    looked: u64,
}

impl Usage {
    /// Starts measuring a region's file, if it can be measured. [`Usage::keep`] drops files that are no longer mapped.
    pub fn share(&mut self, file: OwnedFd) -> Option<FileId> {
        let (id, first) = ringway_host::resident(&file).ok()?;
        let is_new = self.files.iter().all(|known| known.id != id);
        if is_new && self.files.len() < FILES {
            self.files.push(File { id, file, mapped: 0, first, last: first, most: first });
        }
        Some(id)
    }

    /// Updates the files to those of the memory table `table`.
    pub fn keep(&mut self, table: &[Mapped]) {
        self.others = table.iter().map(|mapped| mapped.entry.size).sum();
        self.look();
        for file in &mut self.files {
            let regions = table.iter().filter(|mapped| mapped.file == Some(file.id));
            file.mapped = regions.map(|mapped| mapped.entry.size).sum();
            self.others -= file.mapped;
        }
        let gone = self.files.extract_if(.., |file| file.mapped == 0);
        let (grown, files): (Vec<u64>, Vec<OwnedFd>) = gone.map(|file| (file.grown(), file.file)).unzip();
        self.former += grown.iter().sum::<u64>();
        ringway_host::close_memory(files);
    }

    /// Ends the session's measurements.
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

    /// Measures if the interval has passed, and updates the counters. Returns the growth of files in this session in
    /// bytes.
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
