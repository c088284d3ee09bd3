//! Checks of the file of a program to which a fabric is to move, and of the client that names it.

use ringway_host::peer;
use rustix::fs::{FileType, fstat};
use rustix::process::geteuid;
use std::fs::symlink_metadata;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bits of a mode: group and others may write (`S_IWGRP`, `S_IWOTH`); only owners remove files of the folder
/// (`S_ISVTX`).
const WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Whether a user is root or the user that the fabric runs as.
fn is_trusted_user(user: u32) -> bool {
    [geteuid().as_raw(), 0].contains(&user)
}

/// Checks that a client is root, or the user that the fabric runs as. The socket's mode says so too.
pub fn check_client(socket: impl AsFd) -> Result<(), String> {
    let user = peer(socket).map_err(|error| error.to_string())?.user;
    match is_trusted_user(user) {
        true => Ok(()),
        false => Err(format!("user {user} may not do this; be root, or the user that started the fabric")),
    }
}

/// Checks that nobody but root and the user that the fabric runs as could have written a program, or put it in its
/// place.
///
/// Attack: another user who changes the program between this check and its start, with the fabric's rights.
///
/// # Errors
/// The reason, for people.
pub fn check_program(file: &OwnedFd) -> Result<(), String> {
    let metadata = fstat(file).map_err(|error| format!("the program: {error}"))?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let path = path.unwrap_or_else(|_| PathBuf::from("the program"));
    let wrong = |what: String| Err(format!("{}: {what}", path.display()));
    if FileType::from_raw_mode(metadata.st_mode) != FileType::RegularFile {
        return wrong("it is no file; name a program".into());
    }
    if metadata.st_mode & 0o111 == 0 {
        return wrong("it is not executable; use `chmod +x`".into());
    }
    if !is_trusted_user(metadata.st_uid) {
        return wrong(format!("it belongs to user {}; copy it, and use the copy", metadata.st_uid));
    }
    if metadata.st_mode & WRITABLE != 0 {
        return wrong("others than its owner can write it; use `chmod go-w`".into());
    }
    // A file that has no name any more is in no folder.
    let has_name =
        symlink_metadata(&path).is_ok_and(|at| (at.dev(), at.ino()) == (metadata.st_dev, metadata.st_ino));
    let folders = path.ancestors().skip(1).filter(|_| has_name);
    folders.filter(|folder| folder.is_absolute()).try_for_each(check_folder)
}

fn check_folder(folder: &Path) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{}: {what}; copy the program elsewhere", folder.display()));
    match symlink_metadata(folder) {
        Err(error) => wrong(&error.to_string()),
        Ok(metadata) if !is_trusted_user(metadata.uid()) => {
            wrong(&format!("the folder belongs to user {}", metadata.uid()))
        }
        Ok(metadata) if metadata.mode() & WRITABLE != 0 && metadata.mode() & STICKY == 0 => {
            wrong("others than the folder's owner can put another program there")
        }
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions, create_dir_all, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_programs_that_nobody_else_can_change_are_accepted() {
        let folder = std::env::temp_dir().join(format!("ringway-binary-{}", std::process::id()));
        let inner = folder.join("inner");
        create_dir_all(&inner).unwrap();
        let program = inner.join("program");
        write(&program, "").unwrap();
        let mode = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let check = || check_program(&File::open(&program).unwrap().into());
        for (bits, expected) in [
            (0o755, None),
            (0o700, None),
            (0o644, Some("not executable")),
            (0o775, Some("others than its owner can write it")),
            (0o757, Some("others than its owner can write it")),
        ] {
            mode(&program, bits);
            let found = check();
            match expected {
                None => assert_eq!(found, Ok(())),
                Some(why) => assert!(found.unwrap_err().contains(why), "{bits:o}"),
            }
        }
        mode(&program, 0o755);
        for (bits, is_good) in [(0o775, false), (0o757, false), (0o1777, true), (0o755, true)] {
            mode(&folder, bits);
            assert_eq!(check().is_ok(), is_good, "{bits:o}: {:?}", check());
        }
        if geteuid().is_root() {
            std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
            assert!(check().unwrap_err().contains("belongs to user 65534"));
            std::os::unix::fs::chown(&program, Some(0), None).unwrap();
            std::os::unix::fs::chown(&inner, Some(65_534), None).unwrap();
            assert!(check().unwrap_err().contains("the folder belongs to user 65534"));
        }
        let open = File::open(&program).unwrap().into();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(check_program(&open), Ok(()), "it has no name any more");
        let null = File::open("/dev/null").unwrap().into();
        assert!(check_program(&null).unwrap_err().contains("no file"));
        let (client, _other) = UnixStream::pair().unwrap();
        assert_eq!(check_client(&client), Ok(()));
    }
}
