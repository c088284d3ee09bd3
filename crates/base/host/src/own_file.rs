//! Files of this program's own, which may be in folders where others can write.

use crate::file::word;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, getxattr, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{File, Metadata, symlink_metadata};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

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
    let (seen, ours) = (symlink_metadata(path)?, rustix::process::geteuid().as_raw());
    match seen.is_dir() && [ours, 0].contains(&seen.uid()) {
        true => Ok(()),
        false => Err(Error::other(format!("belongs to user {} or is a link; remove it", seen.uid()))),
    }
}

/// Symbolic links on the way to a file, as many as the kernel follows.
const LINKS: usize = 40;

/// Checks that no other user can change what a path leads to, now or later: each folder on the way, and each link that
/// is followed, is this user's or root's, and others can't write the folders. In one where everybody can make files but
/// rename only their own (the sticky bit, as `/tmp` has it), only names of others are refused. The last folder of the
/// path may not even be such a one. What is not there yet ends the way: this program makes it.
///
/// Attack: the owner of a folder above ours renames ours, and puts one with links in its place; files that root opens
/// by their names are files of the owner's choice from then on.
///
/// # Errors
/// The operating system's, or why another user can change it.
pub fn check_own_path(path: &Path) -> Result<()> {
    let mut left: Vec<OsString> = Vec::new();
    push_words(&mut left, &std::path::absolute(path)?);
    // Whoever owns the root folder can replace everything; in a user namespace, nobody there is its owner.
    let owners = [rustix::process::geteuid().as_raw(), 0, symlink_metadata("/")?.uid()];
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(word) = left.pop() {
        match Path::new(&word).components().next() {
            None | Some(Component::CurDir) => continue,
            Some(Component::RootDir | Component::Prefix(_)) => at = "/".into(),
            Some(Component::ParentDir) => _ = at.pop(),
            Some(Component::Normal(name)) => at.push(name),
        }
        let seen = match symlink_metadata(&at) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            seen => seen?,
        };
        let refused = |why: String| Err(Error::other(format!("{} {why}", at.display())));
        if !owners.contains(&seen.uid()) {
            return refused(format!("belongs to user {}, who can put links in its place", seen.uid()));
        }
        if seen.is_symlink() {
            links += 1;
            if links > LINKS {
                return refused("is one of too many symbolic links".into());
            }
            let to = std::fs::read_link(&at)?;
            at.pop();
            push_words(&mut left, &to);
        } else if seen.is_dir() && others_write(&at, &seen) && (left.is_empty() || seen.mode() & 0o1000 == 0)
        {
            return refused("can be written by others, who can put links there; `chmod go-w` it".into());
        }
    }
    Ok(())
}

/// Puts the parts of a path on a stack, the first at its top.
fn push_words(words: &mut Vec<OsString>, path: &Path) {
    words.extend(path.components().rev().map(|part| part.as_os_str().to_owned()));
}

/// Whether other users than the owner can make and remove files in a folder. A user's own group, which has no other
/// members as a rule, and root's are not others, unless the folder has a list of further users.
fn others_write(path: &Path, seen: &Metadata) -> bool {
    let is_own = [rustix::process::getegid().as_raw(), 0].contains(&seen.gid());
    let has_list =
        || getxattr(path, c"system.posix_acl_access", &mut [0u8; 0]).is_ok_and(|length| length > 0);
    seen.mode() & 0o002 != 0 || seen.mode() & 0o020 != 0 && (!is_own || has_list())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_path_that_others_can_change_is_refused() {
        let top = std::env::temp_dir().join(format!("ringway-own-path-{}", std::process::id()));
        let (open, run) = (top.join("open"), top.join("open/run"));
        std::fs::create_dir_all(&run).unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let why = |path: &Path| check_own_path(path).err().map(|error| error.to_string()).unwrap_or_default();
        symlink(&run, top.join("link")).unwrap();
        symlink("open/run", top.join("short")).unwrap();
        symlink(top.join("loop"), top.join("loop")).unwrap();
        let ways = ["open/run", "open/run/not/yet", "link", "short", "link/../run", "./open/../link/x"];
        for (bits, good, in_open) in [(0o755, true, true), (0o1777, true, false), (0o777, false, false)] {
            mode(bits);
            for path in ways.map(|way| top.join(way)) {
                assert_eq!(why(&path).is_empty(), good, "{bits:o} {}: {}", path.display(), why(&path));
            }
            assert_eq!(why(&open).is_empty(), in_open, "{bits:o}: {}", why(&open));
        }
        assert!(why(&top.join("loop")).contains("too many symbolic links"));
        if rustix::process::geteuid().is_root() {
            mode(0o755);
            std::os::unix::fs::chown(&open, Some(65_534), None).unwrap();
            for path in ways.map(|way| top.join(way)) {
                assert!(why(&path).contains("open belongs to user 65534"), "{}", why(&path));
            }
            std::os::unix::fs::chown(&open, Some(0), Some(65_534)).unwrap();
            mode(0o775);
            assert!(why(&run).contains("written by others"), "{}", why(&run));
            std::os::unix::fs::chown(&open, Some(0), Some(0)).unwrap();
            std::os::unix::fs::lchown(top.join("link"), Some(65_534), None).unwrap();
            assert!(why(&run).is_empty() && why(&top.join("link")).contains("link belongs to user 65534"));
        }
        std::fs::remove_dir_all(&top).unwrap();
    }

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
