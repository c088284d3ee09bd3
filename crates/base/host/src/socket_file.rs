//! Listening UNIX sockets in folders of other owners.
//!
//! Attack: a folder's owner replaces a file between two calls, by a link to one of our files. So the folder
//! is opened once, files in it are not changed by name, and no link is followed.

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Temporary name of a socket in a private folder.
const FRESH: &str = "socket";
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Why a socket can't be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketFileError {
    /// Another kind of file has this name.
    #[error("it exists and is not a socket")]
    Taken,
    /// A program listens on a socket of this name.
    #[error("another program listens on this socket")]
    Alive,
    /// The socket of this name has no listener, but belongs to another user.
    #[error("a leftover socket of user {0} is there")]
    Foreign(u32),
    /// The system refused.
    #[error(transparent)]
    System(#[from] Errno),
}

/// Access rights of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketRights {
    /// User id of its owner; ours if none.
    pub owner: Option<u32>,
    /// Its group id; ours if none.
    pub group: Option<u32>,
    /// Its permission bits.
    pub mode: u32,
}

/// A named listening socket, removed when dropped.
#[derive(Debug)]
pub struct SocketFile {
    socket: UnixListener,
    folder: OwnedFd,
    name: OsString,
    inode: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`. Replaces a socket left by an earlier run, but nothing else.
    pub fn bind(path: &Path, rights: SocketRights) -> Result<SocketFile, SocketFileError> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_os_string();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = open_folder(CWD, folder)?;
        remove_dead(&folder, &name)?;
        let (socket, inode) = make_and_move(&folder, &name, rights)?;
        Ok(SocketFile { socket, folder, name, inode })
    }

    /// A socket that another process has bound to `path`, whose name is removed with this.
    pub fn adopt(path: &Path, socket: OwnedFd) -> Result<SocketFile, SocketFileError> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_os_string();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = open_folder(CWD, folder)?;
        // Without a name there is none to remove.
        let inode = seen(&folder, &name).map_or((0, 0), |seen| inode(&seen));
        Ok(SocketFile { socket: socket.into(), folder, name, inode })
    }

    /// The socket.
    pub fn socket(&self) -> &UnixListener {
        &self.socket
    }
}

impl AsFd for SocketFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have replaced the socket.
        if seen(&self.folder, &self.name).is_ok_and(|seen| inode(&seen) == self.inode) {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

fn open_folder(of: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(of, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn seen(folder: &OwnedFd, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn inode(seen: &Stat) -> (u64, u64) {
    (seen.st_dev, seen.st_ino)
}

/// A name in a folder that is open, for calls that take paths only.
fn within(folder: &OwnedFd, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())
}

pub(crate) fn stream() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Creates a listening socket with owner and mode in a private folder, where nobody else can change files,
/// and then moves it to its name.
fn make_and_move(
    folder: &OwnedFd,
    name: &OsStr,
    rights: SocketRights,
) -> Result<(UnixListener, (u64, u64)), SocketFileError> {
    let private = PrivateFolder::new(folder)?;
    let own = &private.descriptor;
    let socket = stream()?;
    // The socket file's mode depends on the umask, so it is set explicitly.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(within(own, FRESH))?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    rustix::fs::chmodat(own, FRESH, Mode::from_bits_truncate(rights.mode), AtFlags::empty())?;
    let (owner, group) = (rights.owner.map(Uid::from_raw), rights.group.map(Gid::from_raw));
    // The owner is set last, since afterwards the file can't be changed any more.
    rustix::fs::chownat(own, FRESH, owner, group, AtFlags::SYMLINK_NOFOLLOW)?;
    let inode = inode(&seen(own, FRESH.as_ref())?);
    match move_to(own, FRESH.as_ref(), folder, name) {
        Err(Errno::EXIST) => Err(SocketFileError::Taken),
        moved => Ok(moved.map(|()| (socket.into(), inode))?),
    }
}

/// Renames a file; fails if the new name exists.
fn move_to(from: &OwnedFd, name: &OsStr, to: &OwnedFd, new: &OsStr) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // Not every file system supports this.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(from, name, to, new, AtFlags::empty())?;
            rustix::fs::unlinkat(from, name, AtFlags::empty())
        }
        moved => moved,
    }
}

/// A private subfolder, removed when dropped.
struct PrivateFolder<'a> {
    above: &'a OwnedFd,
    name: String,
    descriptor: OwnedFd,
}

impl PrivateFolder<'_> {
    fn new(above: &OwnedFd) -> Result<PrivateFolder<'_>, Errno> {
        let number = crate::thread::random().map_err(|_| Errno::IO)?;
        let name = format!(".ringway-{number:016x}");
        rustix::fs::mkdirat(above, &name, Mode::RWXU)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(above, &name, flags, Mode::empty())?;
        let made = PrivateFolder { above, name, descriptor };
        let seen = rustix::fs::fstat(&made.descriptor)?;
        // Attack: a different folder of that name, put there just now.
        let is_ours = seen.st_uid == rustix::process::geteuid().as_raw() && seen.st_mode & 0o077 == 0;
        if is_ours { Ok(made) } else { Err(Errno::PERM) }
    }
}

impl Drop for PrivateFolder<'_> {
    fn drop(&mut self) {
        // Usually it is empty.
        let _ = rustix::fs::unlinkat(&self.descriptor, FRESH, AtFlags::empty());
        let _ = rustix::fs::unlinkat(self.above, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Removes a socket of ours without a listener, left by an earlier run.
fn remove_dead(folder: &OwnedFd, name: &OsStr) -> Result<(), SocketFileError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let left = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        left => left?,
    };
    let dead = rustix::fs::fstat(&left)?;
    if FileType::from_raw_mode(dead.st_mode) != FileType::Socket {
        return Err(SocketFileError::Taken);
    }
    let probe = stream()?;
    // If a socket's queue is full, connecting would block, and the socket is alive.
    rustix::io::ioctl_fionbio(&probe, true)?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", left.as_raw_fd()))?;
    match rustix::net::connect(&probe, &address) {
        Err(Errno::CONNREFUSED) => {}
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => return Err(SocketFileError::Alive),
        Err(error) => return Err(error.into()),
    }
    let us = rustix::process::geteuid();
    if dead.st_uid != us.as_raw() && !us.is_root() {
        return Err(SocketFileError::Foreign(dead.st_uid));
    }
    // Another program may replace the socket between check and removal, so it is moved away first and then
    // checked again.
    let private = PrivateFolder::new(folder)?;
    let own = &private.descriptor;
    rustix::fs::renameat(folder, name, own, FRESH)?;
    if inode(&seen(own, FRESH.as_ref())?) != inode(&dead) {
        move_to(own, FRESH.as_ref(), folder, name)?;
        return Err(SocketFileError::Alive);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    const OURS: SocketRights = SocketRights { owner: None, group: None, mode: 0o600 };

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ringway-sockets-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_socket_has_its_mode_for_any_umask_and_leaves_no_files() {
        let folder = folder("rights");
        let path = folder.join("a");
        let is_root = rustix::process::geteuid().is_root();
        let (owner, group) = (is_root.then_some(1234), is_root.then_some(1235));
        for mode in [0o600, 0o660, 0o666] {
            let socket = SocketFile::bind(&path, SocketRights { owner, group, mode }).unwrap();
            let seen = std::fs::symlink_metadata(&path).unwrap();
            assert_eq!(seen.mode() & 0o777, mode);
            assert!(!is_root || (seen.uid(), seen.gid()) == (1234, 1235));
            assert!(UnixStream::connect(&path).is_ok() && socket.socket().accept().is_ok());
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
            drop(socket);
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
        let long = folder.join("x".repeat(100));
        drop(SocketFile::bind(&long, OURS).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The owner of a folder repeatedly replaces the socket by links to our files.
    #[test]
    fn no_link_is_followed_when_binding_a_socket() {
        let (folder, outside) = (folder("links"), folder("precious"));
        let (path, precious) = (folder.join("a"), outside.join("file"));
        std::fs::write(&precious, "").unwrap();
        std::fs::set_permissions(&precious, PermissionsExt::from_mode(0o600)).unwrap();
        let before = std::fs::metadata(&precious).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let link = folder.join("link");
                while !over.load(Ordering::Relaxed) {
                    let _ = symlink(&precious, &link);
                    let _ = std::fs::rename(&link, &path);
                    let _ = std::fs::remove_file(&path);
                }
            });
            let is_root = rustix::process::geteuid().is_root();
            let owner = is_root.then_some(1234);
            for _ in 0..2000 {
                // Either the link comes first, or it replaces the socket.
                drop(SocketFile::bind(&path, SocketRights { owner, group: None, mode: 0o666 }));
            }
            over.store(true, Ordering::Relaxed);
        });
        let after = std::fs::metadata(&precious).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::remove_dir_all(&outside).unwrap();
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
    }

    #[test]
    fn a_live_socket_with_a_full_queue_is_not_replaced() {
        let folder = folder("alive");
        let path = folder.join("a");
        let first = SocketFile::bind(&path, OURS).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            let probe = stream().unwrap();
            rustix::io::ioctl_fionbio(&probe, true).unwrap();
            match rustix::net::connect(&probe, &SocketAddrUnix::new(&path).unwrap()) {
                Ok(()) => waiting.push(probe),
                Err(error) => break error,
            }
        };
        assert_eq!(full, Errno::AGAIN);
        assert_eq!(SocketFile::bind(&path, OURS).unwrap_err(), SocketFileError::Alive);
        drop(waiting);
        assert!(first.socket().accept().is_ok());
        let datagrams = folder.join("b");
        let other = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
        assert_eq!(SocketFile::bind(&datagrams, OURS).unwrap_err(), SocketFileError::Alive);
        drop(other);
        // The listener is gone.
        SocketFile::bind(&datagrams, OURS).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Two programs find the same dead socket: one gets the name, and the other never removes it.
    #[test]
    fn concurrent_binds_to_a_dead_socket_leave_one() {
        let folder = folder("two");
        let path = folder.join("a");
        for _ in 0..300 {
            drop(UnixListener::bind(&path).unwrap());
            let bound: Vec<SocketFile> = std::thread::scope(|scope| {
                let both = [(); 2].map(|()| scope.spawn(|| SocketFile::bind(&path, OURS)));
                both.into_iter().filter_map(|one| one.join().unwrap().ok()).collect()
            });
            // A socket that was alive only briefly, during the other's check, is replaced by nobody.
            assert_eq!(bound.len(), 1);
            assert!(UnixStream::connect(&path).is_ok());
            drop(bound);
            assert!(!path.exists());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
