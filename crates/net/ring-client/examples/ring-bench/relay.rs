//! The peer: a process that relays datagrams between two pairs of UNIX sockets.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::thread::JoinHandle;

/// Threads in place of the relay and the answering process.
pub struct UnixRelay {
    ping: UnixDatagram,
    threads: Vec<JoinHandle<()>>,
}

impl UnixRelay {
    /// Starts both.
    pub fn start() -> io::Result<UnixRelay> {
        let (ping, near) = UnixDatagram::pair()?;
        let (far, pong) = UnixDatagram::pair()?;
        let relay = std::thread::spawn(move || while pass(&near, &far) && pass(&far, &near) {});
        let answer = std::thread::spawn(move || while pass(&pong, &pong) {});
        Ok(UnixRelay { ping, threads: vec![relay, answer] })
    }

    /// One round trip.
    pub fn ping(&self) -> io::Result<()> {
        self.ping.send(&[0x5a; 64])?;
        self.ping.recv(&mut [0; 64]).map(drop)
    }
}

/// Forwards one datagram; `false` after an empty one, which ends both threads.
fn pass(from: &UnixDatagram, to: &UnixDatagram) -> bool {
    let mut bytes = [0; 64];
    matches!(from.recv(&mut bytes), Ok(len) if to.send(&bytes[..len]).is_ok() && len > 0)
}

impl Drop for UnixRelay {
    fn drop(&mut self) {
        let _ = self.ping.send(&[]);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
