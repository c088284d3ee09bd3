//! Processes of functions that wait for their order. What is the same for every function in a virtual machine was done
//! before: the program was loaded, and an empty machine was made, which together take longer than the guest's boot.

use super::First;
use ringway_fabric::MessageStream;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time between a start and making the next spare process, which would slow the start down.
const REST: Duration = Duration::from_millis(50);

/// A process that waits for its order. It ends when it is dropped.
#[derive(Debug)]
pub struct Spare(Option<(Child, MessageStream)>);

impl Spare {
    /// Starts `program` with arguments that make it a function's process, and its outputs.
    ///
    /// # Errors
    /// The system's.
    pub fn start(program: &Path, arguments: &[OsString], output: Stdio, errors: Stdio) -> io::Result<Spare> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program);
        // Signals from the terminal must reach `control` only, which ends functions in the right order.
        command
            .arg0("ringway")
            .args(arguments)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        let child = command.spawn()?;
        Ok(Spare(Some((child, MessageStream::new(ours.into())))))
    }

    /// Starts this program, with pipes for its outputs.
    pub fn start_own_program(arguments: &[OsString]) -> io::Result<Spare> {
        Spare::start("/proc/self/exe".as_ref(), arguments, Stdio::piped(), Stdio::piped())
    }

    /// Lets it make an empty virtual machine, unless the host has none.
    pub fn prepare(&self) {
        if let Some((_, stream)) = &self.0 {
            // The process may have ended, which is noticed when it is needed.
            let _ = stream.send(&First::Prepare, &[]);
        }
    }

    /// Whether it waits still.
    fn waits(&mut self) -> bool {
        self.0.as_mut().is_some_and(|(child, _)| matches!(child.try_wait(), Ok(None)))
    }

    /// The process, and the stream to it.
    pub fn take(mut self) -> io::Result<(Child, MessageStream)> {
        self.0.take().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.0.take() {
            // The process may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Debug, Default)]
enum Next {
    #[default]
    None,
    /// A thread will make it.
    Coming,
    Ready(Spare),
}

/// At most one spare process, for functions in virtual machines.
#[derive(Debug, Default)]
pub struct Spares(Arc<Mutex<Next>>);

impl Spares {
    /// The spare process, if there is one.
    pub fn take(&self) -> Option<Spare> {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *next) {
            Next::Ready(mut spare) => spare.waits().then_some(spare),
            other => {
                *next = other;
                None
            }
        }
    }

    /// Makes a spare process soon, unless there is one.
    pub fn refill(&self, arguments: &[OsString]) {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*next, Next::None) {
            return;
        }
        let (place, arguments) = (Arc::downgrade(&self.0), arguments.to_vec());
        let made = std::thread::Builder::new().name("spare".into()).spawn(move || {
            std::thread::sleep(REST);
            let Some(place) = place.upgrade() else { return };
            let spare = Spare::start_own_program(&arguments);
            spare.iter().for_each(Spare::prepare);
            let mut next = place.lock().unwrap_or_else(PoisonError::into_inner);
            // Without one, functions start as fast as their program is loaded.
            if matches!(*next, Next::Coming) {
                *next = spare.map_or(Next::None, Next::Ready);
            }
        });
        *next = if made.is_ok() { Next::Coming } else { Next::None };
    }

    /// Ends the spare process: no function needs it.
    pub fn clear(&self) {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Next::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn run(program: &str) -> Spare {
        Spare::start(program.as_ref(), &[], Stdio::null(), Stdio::null()).unwrap()
    }

    #[test]
    fn a_spare_process_that_has_ended_is_not_used() {
        let spares = Spares::default();
        assert!(spares.take().is_none());
        let ended = run("true");
        *spares.0.lock().unwrap() = Next::Ready(ended);
        let end = Instant::now() + Duration::from_secs(10);
        // Its end is not noticed before it has ended.
        while let Some(spare) = spares.take() {
            assert!(Instant::now() < end, "it does not end");
            *spares.0.lock().unwrap() = Next::Ready(spare);
        }
        let waiting = run("cat");
        waiting.prepare();
        *spares.0.lock().unwrap() = Next::Ready(waiting);
        let (mut child, stream) = spares.take().unwrap().take().unwrap();
        assert!(spares.take().is_none(), "it is taken once");
        drop(stream);
        assert!(child.wait().unwrap().success(), "it ends with its stream");
    }

    #[test]
    fn a_spare_process_that_nobody_needs_any_more_is_ended() {
        let spares = Spares::default();
        *spares.0.lock().unwrap() = Next::Ready(run("cat"));
        spares.clear();
        assert!(spares.take().is_none());
        *spares.0.lock().unwrap() = Next::Coming;
        spares.clear();
        assert!(matches!(*spares.0.lock().unwrap(), Next::None), "and one that comes is not kept");
    }
}
