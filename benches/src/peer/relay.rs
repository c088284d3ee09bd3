//! The peer of a switched round trip: a process that relays datagrams between two UNIX sockets.

use crate::Failure;
use crate::harness::Pinned;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// The relay process, and the answering thread behind it.
pub struct Relay {
    ping: UnixDatagram,
    pong: UnixDatagram,
    process: Child,
    answer: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts process and thread on `core`.
    pub fn start(core: usize) -> Result<Relay, Failure> {
        let _pinned = Pinned::to(core)?;
        let (ping, near) = UnixDatagram::pair()?;
        ping.set_read_timeout(Some(Duration::from_secs(5)))?;
        let (far, pong) = UnixDatagram::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--relay")
            .stdin(Stdio::from(OwnedFd::from(near)))
            .stdout(Stdio::from(OwnedFd::from(far)));
        let process = command.spawn()?;
        let socket = pong.try_clone()?;
        let answer = std::thread::spawn(move || while pass(&socket, &socket) {});
        Ok(Relay { ping, pong, process, answer: Some(answer) })
    }

    /// One round trip of a frame.
    pub fn ping(&self, frame: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        self.ping.send(frame)?;
        self.ping.recv(out)?;
        Ok(())
    }
}

/// The relay process: forwards between standard input and standard output in both directions until one is
/// closed.
pub fn relay() -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let near = UnixDatagram::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let far = UnixDatagram::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    while pass(&near, &far) && pass(&far, &near) {}
    Ok(())
}

/// Forwards one datagram; `false` when a side is closed.
fn pass(from: &UnixDatagram, to: &UnixDatagram) -> bool {
    let mut bytes = [0; 2048];
    matches!(from.recv(&mut bytes), Ok(len) if len > 0 && to.send(&bytes[..len]).is_ok())
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = self.pong.shutdown(std::net::Shutdown::Both);
        if let Some(answer) = self.answer.take() {
            let _ = answer.join();
        }
    }
}
