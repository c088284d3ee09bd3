//! Users of guests: each guest has its own user, so that it can't access another's processes and files.

use ringway_host::random;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// The users of guests without a configured one: ids that no distribution assigns.
pub const USERS: Range<u32> = 1_900_000_000..1_900_065_536;
/// A file for each user of a guest, locked by the process that started the guest.
const LEASES: &str = "/run/ringway-guests";

/// A user that no other guest of this host has while this exists.
#[derive(Debug)]
pub struct Lease {
    user: u32,
    lock: File,
}

impl Lease {
    /// Leases one of [`USERS`].
    pub fn any() -> io::Result<Lease> {
        let mapped = std::fs::read_to_string("/proc/self/uid_map")?;
        if !is_mapped(&mapped, USERS.start) || !is_mapped(&mapped, USERS.end - 1) {
            return Err(io::Error::other(format!(
                "this user namespace has no users {} to {}; name one of its own by `user` in [guest.NAME]",
                USERS.start,
                USERS.end - 1
            )));
        }
        // Not the most recently used one, which may have leftover files.
        let first = random().map_err(io::Error::other)? % u64::from(USERS.end - USERS.start);
        let from = USERS.start + first as u32;
        for user in (from..USERS.end).chain(USERS.start..from) {
            match Lease::of(user) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                lease => return lease,
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// This user. [`io::ErrorKind::WouldBlock`]: another guest has it.
    pub fn of(user: u32) -> io::Result<Lease> {
        Lease::within(Path::new(LEASES), user)
    }

    fn within(folder: &Path, user: u32) -> io::Result<Lease> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = folder.join(user.to_string());
        let lock = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(io::ErrorKind::WouldBlock.into()),
            locked => locked?,
        }
        // Processes of a killed fabric may still be ending.
        if is_used(user) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(Lease { user, lock }) }
    }

    /// A lease that another process has, by its lock.
    pub fn adopted(user: u32, lock: OwnedFd) -> Lease {
        Lease { user, lock: lock.into() }
    }

    /// The lock; the user is leased while any copy of it is open.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// The user's number, which is its group's too.
    pub fn user(&self) -> u32 {
        self.user
    }
}

/// Whether a user exists in a user namespace; `map` as in user_namespaces(7).
fn is_mapped(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, count) = (words.next().unwrap_or(0), words.nth(1).unwrap_or(0));
        (first..first + count).contains(&u64::from(user))
    })
}

/// Whether a process runs as this user.
fn is_used(user: u32) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        .any(|entry| entry.metadata().is_ok_and(|seen| seen.uid() == user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_one_guest_at_a_time() {
        let folder = std::env::temp_dir().join(format!("ringway-leases-{}", std::process::id()));
        let user = USERS.start + 7;
        let first = Lease::within(&folder, user).unwrap();
        assert_eq!(Lease::within(&folder, user).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(Lease::within(&folder, user + 1).unwrap().user(), user + 1);
        drop(first);
        drop(Lease::within(&folder, user).unwrap());
        let ours = rustix::process::geteuid().as_raw();
        assert_eq!(Lease::within(&folder, ours).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn mapped_users_of_a_namespace_are_recognized() {
        assert!(is_mapped("         0          0 4294967295\n", USERS.start));
        assert!(!is_mapped("0 100000 65536\n", USERS.start) && is_mapped("0 100000 65536\n", 65_535));
        assert!(is_mapped("0 1000 1\n1 100000 65536\n", 65_536) && !is_mapped("0 1000 1\n", 1));
    }
}
