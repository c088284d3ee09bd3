//! Shows `/etc` with a library that each program with the C library loads before its others (ld.so(8)).

use super::prepare::{Failed, failed, in_c};
use crate::tap::last_error;
use rustix::fs::{Mode, chmod, mkdir};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const ETC: &str = "/etc";
/// The list of libraries, and the library, below it.
const LIST: &str = "ld.so.preload";
const LIBRARY: &str = "ringway-preload.so";
/// `OPEN_TREE_CLONE` and `OPEN_TREE_CLOEXEC`; `MOVE_MOUNT_F_EMPTY_PATH`.
const CLONE: libc::c_uint = 1 | libc::O_CLOEXEC as libc::c_uint;
const EMPTY_PATH: libc::c_uint = 4;

/// Shows `/etc` with the list and the library, which lie in `folder`, a folder of a memory file system; and what the
/// program changes there lies there too. A list of the host stays in force.
pub(super) fn show(folder: &Path, library: &[u8]) -> Result<(), Failed> {
    let (upper, work) = (folder.join("etc"), folder.join("work"));
    for made in [&upper, &work] {
        mkdir(made, Mode::RWXU).map_err(|error| failed("creating a folder for /etc", error))?;
    }
    let of_host = std::fs::read(Path::new(ETC).join(LIST)).unwrap_or_default();
    let list = [&of_host[..], b"\n", ETC.as_bytes(), b"/", LIBRARY.as_bytes(), b"\n"].concat();
    for (name, content) in [(LIST, &list[..]), (LIBRARY, library)] {
        let path = upper.join(name);
        let written = std::fs::write(&path, content)
            .and_then(|()| std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)));
        written.map_err(|error| failed("writing what is preloaded", error))?;
    }
    let mode = rustix::fs::stat(ETC).map_or(0o755, |stat| stat.st_mode & 0o7777);
    chmod(&upper, Mode::from_bits_truncate(mode)).map_err(|error| failed("a folder for /etc", error))?;
    // The new mount would hide them.
    let below = mounts_below(ETC).into_iter().map(clone_mount).collect::<Result<Vec<_>, _>>()?;
    overlay(&upper, &work)?;
    below.iter().try_for_each(|(path, mount)| put(path, mount))
}

/// Mounts both over `/etc`.
fn overlay(upper: &Path, work: &Path) -> Result<(), Failed> {
    let mut options = format!("lowerdir={ETC},upperdir=").into_bytes();
    options.extend(escaped(upper));
    options.extend(b",workdir=");
    options.extend(escaped(work));
    let target = in_c(Path::new(ETC))?;
    let mut result = Errno::INVAL;
    // In a user namespace it keeps its notes where users may (Linux 5.11); an older kernel has only the other place.
    for place in [&b",userxattr"[..], b""] {
        let data = CString::new([&options[..], place].concat());
        let data = data.map_err(|error| failed("a path", error))?;
        let (kind, flags) = (c"overlay".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
        // SAFETY: each pointer leads to a string that lives until the call is over.
        let mounted = unsafe { libc::mount(kind, target.as_ptr(), kind, flags, data.as_ptr().cast()) };
        if mounted == 0 {
            return Ok(());
        }
        result = last_error();
        if result != Errno::INVAL {
            break;
        }
    }
    Err(failed("showing /etc with a preloaded library (overlayfs)", result))
}

/// A path as an option of overlayfs.
fn escaped(path: &Path) -> Vec<u8> {
    let escape = |byte: &u8| if b",:\\".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] };
    path.as_os_str().as_bytes().iter().flat_map(escape).collect()
}

/// Places where something is mounted below a folder (proc_pid_mountinfo(5)).
fn mounts_below(folder: &str) -> Vec<PathBuf> {
    let list = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let places = list.split(|byte| *byte == b'\n').filter_map(|line| line.split(|b| *b == b' ').nth(4));
    places.map(unescaped).filter(|path| path.starts_with(folder) && path != Path::new(folder)).collect()
}

/// A path of the list, in which some bytes are three octal digits.
fn unescaped(text: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let [first, more @ ..] = rest {
        let digits =
            more.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[3..] } else { more };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

fn clone_mount(path: PathBuf) -> Result<(PathBuf, OwnedFd), Failed> {
    let name = in_c(&path)?;
    // SAFETY: the path ends with a zero and outlives the call.
    let number = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, name.as_ptr(), CLONE) };
    if number < 0 {
        return Err(failed(
            &format!("keeping what is mounted at {} (open_tree)", path.display()),
            last_error(),
        ));
    }
    // SAFETY: the kernel has just made it.
    Ok((path, unsafe { OwnedFd::from_raw_fd(number as i32) }))
}

fn put(path: &Path, mount: &OwnedFd) -> Result<(), Failed> {
    let (name, number, empty) = (in_c(path)?, mount.as_raw_fd(), c"".as_ptr());
    // SAFETY: the paths end with zeros and outlive the call.
    let moved = unsafe {
        libc::syscall(libc::SYS_move_mount, number, empty, libc::AT_FDCWD, name.as_ptr(), EMPTY_PATH)
    };
    match moved {
        0 => Ok(()),
        _ => {
            Err(failed(&format!("showing what is mounted at {} (move_mount)", path.display()), last_error()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_and_read_as_the_kernel_does() {
        assert_eq!(escaped(Path::new("/a,b:c\\d")), b"/a\\,b\\:c\\\\d");
        assert_eq!(unescaped(b"/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped(b"/a\\0"), Path::new("/a\\0"));
        assert!(mounts_below("/").contains(&"/proc".into()));
    }
}
