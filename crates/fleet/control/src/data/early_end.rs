//! Noticing the end of `data` before the kernel has taken down its memory.

use crate::keeper::Outliving;
use ringway_fabric::MessageStream;
use ringway_host::{EndNotice, HostError, exiting};
use rustix::process::{Signal, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long the threads of a process that ends may take until the last one executes nothing any more. A thread that a
/// peer's memory blocks in the kernel may take for ever: then the process's end counts, as without this.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// How often that is looked at, at first and at most.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(2)];

/// Watches a `data` process.
pub struct EarlyEnd {
    notice: Arc<EndNotice>,
    status: Arc<OnceLock<ExitStatus>>,
}

impl EarlyEnd {
    /// Shuts `stream` down as soon as no thread of the process can do anything any more; what it had sent before can
    /// still be received.
    ///
    /// Attack: a `data` process that was taken over, and that marks its notice and goes on. It is killed, and its end
    /// is believed only if the kernel says so of each thread.
    pub fn watch(notice: &OwnedFd, process: &Outliving, stream: &Arc<MessageStream>) -> io::Result<EarlyEnd> {
        let failed = |error: HostError| io::Error::other(error);
        let notice = Arc::new(EndNotice::map(notice).map_err(failed)?);
        let early = EarlyEnd { notice: notice.clone(), status: Arc::default() };
        let (process, stream, status) = (process.clone(), stream.clone(), early.status.clone());
        std::thread::Builder::new().name("data-end".into()).spawn(move || {
            if !notice.wait() {
                return;
            }
            // From now on it starts no threads.
            let _ = pidfd_send_signal(&process, Signal::KILL);
            if let Some(ended) = wait_for_threads(&process) {
                let _ = status.set(ended);
                let _ = rustix::net::shutdown(stream.as_fd(), rustix::net::Shutdown::Both);
            }
        })?;
        Ok(early)
    }

    /// The status of the process if its end was noticed early. To be called once its stream has ended.
    pub fn status(self) -> Option<ExitStatus> {
        self.notice.cancel();
        self.status.get().copied()
    }
}

/// Waits until no thread of a killed process executes anything any more; its status, unless that takes too long.
fn wait_for_threads(process: &Outliving) -> Option<ExitStatus> {
    let (until, [mut interval, most]) = (Instant::now() + EXIT_TIMEOUT, POLL_INTERVALS);
    loop {
        if let Some(status) = exiting(process.pid()) {
            return Some(ExitStatus::from_raw(status));
        }
        if Instant::now() >= until || process.has_ended() {
            return None;
        }
        std::thread::sleep(interval);
        interval = (interval * 2).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::Keeper;
    use rustix::process::Pid;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command};

    /// A process that runs, and what watches it with a notice of this value; with the other end of its stream.
    fn watched(value: u32) -> (Child, EarlyEnd, UnixStream) {
        let notice = EndNotice::memory().unwrap();
        rustix::io::pwrite(&notice, &value.to_ne_bytes(), 0).unwrap();
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Outliving::started(Pid::from_child(&child), &Keeper::thread().unwrap()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = Arc::new(MessageStream::new(ours.into()));
        (child, EarlyEnd::watch(&notice, &process, &stream).unwrap(), theirs)
    }

    #[test]
    fn a_process_that_marks_its_notice_and_goes_on_is_killed_before_another_one_takes_over() {
        let (mut child, early, mut theirs) = watched(1 << 30);
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0, "the stream is shut down");
        assert_eq!(early.status().unwrap().signal(), Some(Signal::KILL.as_raw()));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn a_process_without_a_mark_is_left_alone() {
        let (mut child, early, theirs) = watched(7);
        assert!(early.status().is_none());
        theirs.set_nonblocking(true).unwrap();
        assert!((&theirs).read(&mut [0; 1]).is_err(), "the stream is open");
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
