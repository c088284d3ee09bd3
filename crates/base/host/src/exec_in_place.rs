//! Another program in place of this one, in the same process.

use crate::error::{HostError, Named};
use crate::tap::last_error;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Runs the program in `file` in place of this one, with these arguments, the same environment, the signals that are
/// blocked now, and `descriptors`, which keep their numbers; others that this process opened are closed. Returns only
/// if the system refuses it; nothing has changed then. To be called while no other thread starts processes.
pub fn exec_in_place(
    file: BorrowedFd<'_>,
    arguments: &[CString],
    descriptors: &[BorrowedFd<'_>],
) -> HostError {
    if let Err(error) = descriptors.iter().try_for_each(|fd| fcntl_setfd(fd, FdFlags::empty())) {
        descriptors.iter().for_each(|fd| _ = fcntl_setfd(fd, FdFlags::CLOEXEC));
        return HostError::Call { call: "fcntl", error };
    }
    let environment: Vec<CString> = std::env::vars_os()
        .filter_map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok())
        .collect();
    let list = |texts: &[CString]| {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, environment) = (list(arguments), list(&environment));
    // SAFETY: both lists end with a null pointer, and their texts, which end with a zero byte, live until the call
    // returns, if it does.
    unsafe { libc::fexecve(file.as_raw_fd(), arguments.as_ptr(), environment.as_ptr()) };
    let error = last_error();
    descriptors.iter().for_each(|fd| _ = fcntl_setfd(fd, FdFlags::CLOEXEC));
    HostError::Call { call: "running the program", error }
}

/// Takes descriptors that the program before this one in the same process left open, by their numbers. To be called
/// once, before this program opens any, and with numbers from that program only.
///
/// # Errors
/// One of them is not open, or it is named twice. None is closed.
pub fn take_inherited(numbers: &[i32]) -> Result<Vec<OwnedFd>, HostError> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let is_twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    if is_twice || sorted.first().is_some_and(|first| *first <= 2) {
        return Err(HostError::Call { call: "taking descriptors", error: rustix::io::Errno::INVAL });
    }
    for number in numbers {
        // SAFETY: the number is borrowed for these calls only, which fail if it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(*number) };
        fcntl_getfd(fd).named("taking descriptors")?;
        fcntl_setfd(fd, FdFlags::CLOEXEC).named("taking descriptors")?;
    }
    // SAFETY: they are open, each is named once, and no other value of this program has them, since it has just begun.
    Ok(numbers.iter().map(|number| unsafe { OwnedFd::from_raw_fd(*number) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start_child;
    use rustix::io::Errno;
    use std::fs::File;
    use std::os::fd::{AsFd, IntoRawFd};
    use std::os::unix::net::UnixStream;

    fn is_kept(file: &impl AsFd) -> bool {
        !fcntl_getfd(file).unwrap().contains(FdFlags::CLOEXEC)
    }

    #[test]
    fn a_file_that_is_no_program_changes_nothing() {
        let (text, kept) = (File::open("Cargo.toml").unwrap(), File::open("/dev/null").unwrap());
        let words = [CString::new("none").unwrap()];
        let error = exec_in_place(text.as_fd(), &words, &[kept.as_fd()]);
        assert!(matches!(error, HostError::Call { error: Errno::ACCESS | Errno::NOEXEC, .. }), "{error}");
        assert!(!is_kept(&kept));
    }

    #[test]
    fn descriptors_that_are_not_open_or_named_twice_are_refused() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let number = ours.into_raw_fd();
        assert!(take_inherited(&[number, number]).is_err());
        assert!(take_inherited(&[number, 1_000_000]).is_err());
        assert!(take_inherited(&[2]).is_err());
        let taken = take_inherited(&[number]).unwrap();
        assert!(!is_kept(&taken[0]));
    }

    #[test]
    fn the_next_program_has_the_descriptors_that_it_is_given() {
        let (child, ours) = start_child(|socket| {
            let Ok(shell) = File::open("/bin/sh") else { return 1 };
            let number = socket.as_raw_fd();
            let words = ["sh", "-c", &format!("echo \"$0 $1\" >&{number}"), "one", "two"];
            let words = words.map(|word| CString::new(word).unwrap_or_default());
            let _ = exec_in_place(shell.as_fd(), &words, &[socket.as_fd()]);
            2
        })
        .unwrap();
        let mut text = [0; 16];
        let count = rustix::io::read(&ours, &mut text).unwrap();
        assert_eq!(&text[..count], b"one two\n");
        let status = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
        assert_eq!(status.unwrap().unwrap().1.exit_status(), Some(0));
    }
}
