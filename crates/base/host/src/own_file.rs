//! Files of this program's own, which may be in folders where others can write.

use crate::file::word;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnFile {
    /// To read; it must be there.
    Read,
    /// To read and to write at its end.
    Append,
    /// To read and write; it is emptied once it is known to be ours.
    Rewrite,
    /// To read and write, and to lock; its content stays.
    Keep,
}

/// Opens a regular file of this user or root, and makes it with `mode` if it is written and not there. Nothing is read
/// or written before the checks.
///
/// Attack: a symbolic or hard link to another file, a FIFO, a device, or a file that another user can change, in a
/// folder where others can write: this program may be root.
///
/// # Errors
/// An error of the operating system, or the file is not a regular one of this user or root.
pub fn open_own(path: &Path, what: OwnFile, mode: u32) -> Result<File> {
    let access = match what {
        OwnFile::Read => OFlags::RDONLY,
        OwnFile::Append => OFlags::RDWR | OFlags::CREATE | OFlags::APPEND,
        OwnFile::Rewrite | OwnFile::Keep => OFlags::RDWR | OFlags::CREATE,
    };
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::from_bits_truncate(mode)).map_err(|error| match error {
        Errno::LOOP => Error::other("a symbolic link, which is not followed; remove it"),
        // A FIFO without a reader, or a socket.
        Errno::NXIO => Error::other("not a file; remove it"),
        error => error.into(),
    })?;
    let seen = fstat(&file)?;
    let (kind, ours) = (FileType::from_raw_mode(seen.st_mode), rustix::process::geteuid().as_raw());
    if kind != FileType::RegularFile {
        return Err(Error::other(format!("{}, not a file; remove it", word(kind))));
    }
    if ![ours, 0].contains(&seen.st_uid) {
        return Err(Error::other(format!("it belongs to user {}; remove it", seen.st_uid)));
    }
    if seen.st_mode & 0o002 != 0 {
        return Err(Error::other("everybody can write it; remove it, or `chmod o-w` it"));
    }
    if seen.st_nlink != 1 {
        return Err(Error::other("the file has another name too, a hard link; remove it"));
    }
    let file = File::from(file);
    if what == OwnFile::Rewrite {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Checks that a folder is this user's or root's, and not a symbolic link, so that nobody else chose what is in it.
///
/// # Errors
/// The operating system's, or it is another user's or a link.
pub fn check_own_folder(path: &Path) -> Result<()> {
    let (seen, ours) = (std::fs::symlink_metadata(path)?, rustix::process::geteuid().as_raw());
    match seen.is_dir() && [ours, 0].contains(&seen.uid()) {
        true => Ok(()),
        false => Err(Error::other(format!("belongs to user {} or is a link; remove it", seen.uid()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_regular_files_of_our_own_are_opened() {
        let folder = std::env::temp_dir().join(format!("ringway-own-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [precious, link, dangling, hard, fifo, open, log] =
            ["precious", "link", "dangling", "hard", "fifo", "open", "log"].map(|name| folder.join(name));
        std::fs::write(&precious, "precious").unwrap();
        symlink(&precious, &link).unwrap();
        symlink(folder.join("nowhere"), &dangling).unwrap();
        std::fs::hard_link(&precious, &hard).unwrap();
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::fs::write(&open, "anybody's").unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
        let all = [OwnFile::Read, OwnFile::Append, OwnFile::Rewrite, OwnFile::Keep];
        for what in all {
            let why = |path: &Path| open_own(path, what, 0o600).unwrap_err().to_string();
            assert!(why(&link).contains("symbolic link") && why(&dangling).contains("symbolic link"));
            assert!(why(&hard).contains("hard link"), "{what:?}");
            assert!(why(&fifo).contains("not a file"), "{what:?}: {}", why(&fifo));
            assert!(why(&open).contains("everybody can write it"), "{what:?}: {}", why(&open));
            assert!(
                open_own(&folder, what, 0o600).is_err() && open_own(Path::new("/dev/null"), what, 0).is_err()
            );
        }
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        assert_eq!(std::fs::read(&open).unwrap(), b"anybody's");
        assert!(!folder.join("nowhere").exists());
        for text in ["one", "two"] {
            open_own(&log, OwnFile::Append, 0o600).unwrap().write_all(text.as_bytes()).unwrap();
        }
        let mut text = String::new();
        open_own(&log, OwnFile::Read, 0).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "onetwo");
        open_own(&log, OwnFile::Rewrite, 0o600).unwrap();
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
        assert!(check_own_folder(&folder).is_ok());
        symlink(&folder, folder.join("to")).unwrap();
        assert!(check_own_folder(&folder.join("to")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_of_another_user_is_not_opened() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let path = std::env::temp_dir().join(format!("ringway-other-{}", std::process::id()));
        std::fs::write(&path, "theirs").unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        let why = open_own(&path, OwnFile::Rewrite, 0o600).unwrap_err().to_string();
        let left = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(why.contains("belongs to user 65534") && left == b"theirs", "{why}");
    }
}
