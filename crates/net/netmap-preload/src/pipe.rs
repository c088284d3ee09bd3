//! netmap's pipes: `NAME{ID` and `NAME}ID`, between two programs that use this library, without a fabric.
//!
//! Each end listens on a socket of its own in a folder of this user. Whoever opens the second end makes the memory of a
//! ring and passes it to the first one (`RingParts::offer`). The two programs have that memory in common, and nothing
//! else: each copies between it and its own netmap rings. Attack: one writes anything there. Then the other finds the
//! ring broken, takes the end for closed and goes on with the next program that opens it.

use crate::clients::Clients;
use crate::{Result, names};
use ringway_ring_client::{PendingRing, Ring, RingParts};
use std::cell::RefCell;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Slots of the ring between two programs, and bytes of each.
const SLOTS: u32 = 1024;
const SLOT_SIZE: u32 = 2048;
/// How long a program that has connected may take to offer a ring.
const OFFER_TIMEOUT: Duration = Duration::from_secs(2);

/// One end.
#[derive(Debug)]
pub struct PipeEnd {
    /// Programs that open the other one.
    clients: Clients,
    /// A file that is locked as long as a process has this end.
    lock: File,
    /// Where it is, if this process has opened it.
    path: Option<PathBuf>,
}

/// The files of an end: its lock, and its socket. Dropping them removes them, if no process has the end any more.
#[derive(Debug)]
pub struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let Files(path) = self;
        let whole = path.parent().map(whole_folder);
        if matches!(whole, Some(Ok(_))) && lockable_file(path).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = (std::fs::remove_file(socket(path)), std::fs::remove_file(path));
        }
    }
}

/// The text of a pipe's end, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeName<'n> {
    pub parent: &'n str,
    is_second: bool,
    id: &'n str,
}

/// The pipe that a name means, if it means one.
pub fn name(text: &str) -> Option<Result<PipeName<'_>>> {
    let at = text.find(['{', '}'])?;
    let (parent, rest) = text.split_at(at);
    let (sign, id) = rest.split_at(1);
    // A name is part of a file's, so there is no `/` in it.
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-:".contains(letter);
    let is_short = parent.len() + id.len() < 64;
    let is_valid = !id.is_empty() && is_short && parent.chars().chain(id.chars()).all(is_letter);
    let name = PipeName { parent, is_second: sign == "}", id };
    Some(if is_valid && !parent.is_empty() { Ok(name) } else { Err(libc::ENXIO) })
}

impl PipeName<'_> {
    fn file(self, is_second: bool) -> String {
        format!("{}{}{}", self.parent, if is_second { '}' } else { '{' }, self.id)
    }
}

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The folder, which is made if it is missing. Attack: another user has made it, in a folder where everybody may.
pub fn folder(path: &Path) -> Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(errno(&error)),
        _ => own_folder(path),
    }
}

/// Whether a folder is this user's, and nobody else makes files there.
pub fn own_folder(path: &Path) -> Result<()> {
    let data = path.symlink_metadata().map_err(|error| errno(&error))?;
    let is_own = data.is_dir() && data.uid() == names::user() && data.mode() & 0o022 == 0;
    if is_own { Ok(()) } else { Err(libc::EACCES) }
}

fn lockable_file(path: &Path) -> Result<File> {
    let mut options = File::options();
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let file = options.create(true).truncate(false).write(true).mode(0o600).custom_flags(flags).open(path);
    file.map_err(|error| errno(&error))
}

/// The folder, until the file is closed.
fn whole_folder(path: &Path) -> Result<File> {
    let file = lockable_file(&path.join("lock"))?;
    file.lock().map_err(|error| errno(&error))?;
    Ok(file)
}

/// The socket of an end whose lock is at `path`.
fn socket(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".sock");
    name.into()
}

impl PipeEnd {
    /// Opens an end, and a ring to the other one if a program has it.
    pub fn open(name: PipeName<'_>, base: PathBuf) -> Result<(PipeEnd, Option<RingParts>)> {
        folder(&base)?;
        // One opens at a time, so that the second finds the first.
        let _opening = whole_folder(&base)?;
        let [own, other] = [name.is_second, !name.is_second].map(|is_second| base.join(name.file(is_second)));
        let lock = lockable_file(&own)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(libc::EBUSY),
            Err(TryLockError::Error(error)) => return Err(errno(&error)),
        }
        let clients = Clients::bind(&socket(&own), OFFER_TIMEOUT).map_err(|error| errno(&error))?;
        let end = PipeEnd { clients, lock, path: Some(own) };
        let Ok(stream) = ringway_host::listener::connect_now(&socket(&other)) else { return Ok((end, None)) };
        let parts = RingParts::offer(stream.into(), SLOTS, SLOT_SIZE).map_err(|_| libc::ENOMEM)?;
        Ok((end, Some(parts)))
    }

    /// An end that another process has opened.
    pub fn adopt(listener: OwnedFd, lock: OwnedFd) -> PipeEnd {
        PipeEnd { clients: Clients::of(listener.into(), OFFER_TIMEOUT), lock: lock.into(), path: None }
    }

    /// Its files, if this process has opened it.
    pub fn take_files(&mut self) -> Option<Files> {
        self.path.take().map(Files)
    }

    /// Its descriptors, in the order of `adopt`.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.clients.listener(), self.lock.as_fd()]
    }

    /// The program that has connected.
    pub fn pending(&self) -> Option<BorrowedFd<'_>> {
        self.clients.pending()
    }

    /// The ring of a program that has opened the other end, and its memory, if there is one. It does not block.
    pub fn accept(&mut self) -> Option<(Ring, OwnedFd)> {
        let stream = self.clients.next()?;
        let _ = stream.set_nonblocking(false);
        let file = RefCell::new(None);
        let map = |memory: &OwnedFd| {
            *file.borrow_mut() = memory.try_clone().ok();
            Ok(ringway_host::Mapping::sealed(memory)?.region())
        };
        // An offer is one message. Attack: a program that sends a part of it.
        let ring = PendingRing::offered(stream).ring_by(Some(Duration::ZERO), &map).ok()?;
        let file = file.into_inner()?;
        Some((ring, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn files_are_removed_when_nobody_has_the_end() {
        let base = std::env::temp_dir().join(format!("ringway-netmap-files-{}", std::process::id()));
        let name = name("p{1").unwrap().unwrap();
        let (mut end, _) = PipeEnd::open(name, base.clone()).unwrap();
        let (files, other) = (end.take_files(), end.descriptors()[1].try_clone_to_owned().unwrap());
        drop(end);
        drop(files);
        assert!(base.join("p{1.sock").exists() && PipeEnd::open(name, base.clone()).is_err());
        drop(other);
        let (mut end, _) = PipeEnd::open(name, base.clone()).unwrap();
        let files = end.take_files();
        drop(end);
        drop(files);
        assert!(!base.join("p{1.sock").exists() && !base.join("p{1").exists());
        std::fs::remove_dir_all(&base).unwrap();
    }

    /// Attack: programs connect to an end and offer nothing, or a part of a ring.
    #[test]
    fn a_program_that_offers_no_ring_does_not_keep_others_away() {
        let base = std::env::temp_dir().join(format!("ringway-netmap-pipe-{}", std::process::id()));
        let [first, second] = ["p{1", "p}1"].map(|text| name(text).unwrap().unwrap());
        let (mut end, parts) = PipeEnd::open(first, base.clone()).unwrap();
        assert!(parts.is_none());
        let path = socket(&base.join("p{1"));
        let _silent = UnixStream::connect(&path).unwrap();
        UnixStream::connect(&path).unwrap().write_all(b"x").unwrap();
        let (other, parts) = PipeEnd::open(second, base.clone()).unwrap();
        assert!(parts.is_some() && end.accept().is_none());
        let since = end.clients.since().unwrap();
        assert!(end.accept().is_none() && end.clients.since() == Some(since));
        end.clients.age();
        assert!(end.accept().is_none() && end.pending().is_none());
        assert!(end.accept().is_none() && end.pending().is_none());
        assert!(end.accept().is_some());
        drop((end, other));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
