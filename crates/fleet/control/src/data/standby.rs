//! The next `data` process, started before it is needed: it waits, confined, for its first request, so that frames wait
//! less when the running one ends.

use super::DataError;
use ringway_host::{EndNotice, wait_readable};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A process, with this side's ends of its sockets.
#[derive(Debug)]
pub struct Parts {
    pub child: Child,
    pub stream: UnixStream,
    /// Its socket for records, and the other end, which the keeper gets.
    pub records: [OwnedFd; 2],
    /// Memory of the notice of its end.
    pub notice: OwnedFd,
}

/// A `data` process without a request; it ends when this is dropped, or with this process.
#[derive(Debug)]
pub struct Standby(Option<Parts>);

impl Standby {
    /// Starts this program with `arguments`, and the stream as standard input.
    ///
    /// # Errors
    /// The system refused.
    pub fn start(arguments: &[OsString]) -> Result<Standby, DataError> {
        let start = || -> io::Result<Parts> {
            let (kept, records) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            let (stream, theirs) = UnixStream::pair()?;
            let notice = EndNotice::memory().map_err(io::Error::other)?;
            let mut command = Command::new("/proc/self/exe");
            // Signals from the terminal must reach `control` only, which ends `data` in the right order.
            command
                .arg0("ringway")
                .args(arguments)
                .stdin(OwnedFd::from(theirs))
                .stdout(Stdio::null())
                .process_group(0);
            Ok(Parts { child: command.spawn()?, stream, records: [records, kept], notice })
        };
        start().map(|parts| Standby(Some(parts))).map_err(DataError::Start)
    }

    /// Whether it waits; it may have been killed.
    pub fn is_there(&self) -> bool {
        // It sends nothing before its first request: what is there to read is the end.
        self.0.as_ref().is_some_and(|parts| {
            wait_readable(&[parts.stream.as_fd()], Some(0)).is_ok_and(|ready| !ready.contains(&true))
        })
    }

    /// The process, unless it has ended.
    pub fn take(mut self) -> Option<Parts> {
        if self.is_there() { self.0.take() } else { None }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let Some(Parts { child, .. }) = &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// A process in place of `data`.
    fn standby(program: &str) -> Standby {
        let (stream, theirs) = UnixStream::pair().unwrap();
        let (kept, records) = UnixStream::pair().unwrap();
        let child = Command::new(program).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn().unwrap();
        let (records, notice) = ([records.into(), kept.into()], EndNotice::memory().unwrap());
        Standby(Some(Parts { child, stream, records, notice }))
    }

    #[test]
    fn one_that_has_ended_is_not_taken() {
        let ended = standby("true");
        ended.0.as_ref().unwrap().stream.try_clone().unwrap().read_to_end(&mut Vec::new()).unwrap();
        assert!(ended.take().is_none());
        let mut taken = standby("cat").take().unwrap();
        taken.stream.write_all(b"request").unwrap();
        drop(taken.stream);
        assert!(taken.child.wait().unwrap().success());
    }

    #[test]
    fn one_that_is_not_needed_ends() {
        let waiting = standby("cat");
        let stream = waiting.0.as_ref().unwrap().stream.try_clone().unwrap();
        drop(waiting);
        assert_eq!((&stream).read(&mut [0]).unwrap(), 0);
    }
}
