//! Closing descriptors whose close may block.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Closes descriptors on a separate thread.
///
/// Attack: a peer sends descriptors on a file system that it serves itself, and never answers when they are
/// closed. The thread and the descriptors are then lost, so nothing more is accepted from the peer until
/// [`BackgroundClose::is_done`].
#[derive(Debug, Default)]
pub struct BackgroundClose(Arc<Mutex<Queue>>);

/// Descriptors to close.
#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<OwnedFd>,
    has_thread: bool,
    /// Whether no thread could be started, and a caller closed its descriptors itself.
    failed: bool,
}

impl BackgroundClose {
    /// Closes them asynchronously.
    pub fn close(&self, descriptors: Vec<OwnedFd>) {
        let mut queue = self.queue();
        queue.waiting.extend(descriptors);
        if queue.waiting.is_empty() || std::mem::replace(&mut queue.has_thread, true) {
            return;
        }
        drop(queue);
        let closer = BackgroundClose(self.0.clone());
        if crate::spawn("closer", None, move || closer.run()).is_err() {
            self.run();
            self.queue().failed = true;
        }
    }

    /// Closes the waiting descriptors until there are none.
    fn run(&self) {
        loop {
            let mut queue = self.queue();
            let waiting = std::mem::take(&mut queue.waiting);
            queue.has_thread = !waiting.is_empty();
            if waiting.is_empty() {
                return;
            }
            drop(queue);
            drop(waiting);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all have been closed.
    pub fn is_done(&self) -> bool {
        let queue = self.queue();
        !queue.has_thread && !queue.failed
    }
}

/// Attack: descriptors without end, each replacing the one before. At this number of duplicates, or at twice
/// the number in use if that is more, the duplicates of replaced descriptors are closed.
const DUPLICATES: usize = 32;
/// Attack: sessions without end, each leaving descriptors that can't be closed. Number of waiting descriptors at
/// which the peer gets no further sessions.
const WAITING: usize = 1024;

/// Duplicates of a peer's descriptors for wake-ups. They are closed last, on a thread of the peer's own.
///
/// Attack: closing an eventfd for the last time waits for the mutex of each epoll instance that watches it. The
/// peer can hold that mutex for as long as it likes: by an `epoll_wait` into memory that is being punched.
#[derive(Debug, Default)]
pub struct Duplicates {
    descriptors: Vec<OwnedFd>,
    /// Number in use when those of replaced descriptors were last closed.
    used: usize,
    closer: BackgroundClose,
}

impl Duplicates {
    /// Keeps a duplicate. `in_use` are the descriptors for which duplicates stay, if there are too many.
    pub fn keep<'a>(
        &mut self,
        descriptor: BorrowedFd<'_>,
        in_use: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<()> {
        if self.descriptors.len() >= DUPLICATES.max(2 * self.used) {
            let kept = in_use.map(|used| used.try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
            self.used = kept.len();
            self.close(kept);
        }
        self.descriptors.push(descriptor.try_clone_to_owned()?);
        Ok(())
    }

    /// Takes ownership of a descriptor, to close it with the duplicates.
    pub fn adopt(&mut self, descriptor: OwnedFd) {
        self.descriptors.push(descriptor);
    }

    /// Closes all duplicates. Call it when the descriptors themselves have been closed.
    pub fn release(&mut self) {
        self.close(Vec::new());
    }

    fn close(&mut self, kept: Vec<OwnedFd>) {
        self.closer.close(std::mem::replace(&mut self.descriptors, kept));
    }

    /// Whether too many of the peer's descriptors wait to be closed.
    pub fn is_stuck(&self) -> bool {
        self.closer.queue().waiting.len() >= WAITING
    }
}

impl Drop for Duplicates {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// A descriptor whose last close blocks until the connection is aborted: a lingering TCP socket with unsent data.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 65536]).is_ok() {}
        ours.set_nonblocking(false).unwrap();
        let minute = Some(std::time::Duration::from_secs(60));
        rustix::net::sockopt::set_socket_linger(&ours, minute).unwrap();
        (ours.into(), theirs)
    }

    #[test]
    fn a_descriptor_that_cannot_be_closed_holds_only_a_thread_of_its_own() {
        let mut duplicates = Duplicates::default();
        let (descriptor, peer) = lingering();
        duplicates.keep(descriptor.as_fd(), std::iter::empty()).unwrap();
        drop(descriptor);
        duplicates.release();
        // Further descriptors wait behind it, up to a limit.
        while !duplicates.is_stuck() {
            duplicates.adopt(crate::EventFd::new().unwrap().into_fd());
            duplicates.release();
        }
        // Closing an aborted connection does not block.
        rustix::net::sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO)).unwrap();
        drop(peer);
        while !duplicates.closer.is_done() {
            std::thread::yield_now();
        }
        assert!(!duplicates.is_stuck());
    }

    #[test]
    fn replaced_descriptors_do_not_pile_up_and_used_ones_keep_their_duplicates() {
        let mut duplicates = Duplicates::default();
        let (used, _peer) = lingering();
        duplicates.keep(used.as_fd(), std::iter::empty()).unwrap();
        for _ in 0..10 * DUPLICATES {
            let other = crate::EventFd::new().unwrap();
            duplicates.keep(other.as_fd(), std::iter::once(used.as_fd())).unwrap();
            assert!(duplicates.descriptors.len() <= DUPLICATES);
        }
        // The duplicate is closed later.
        drop(used);
        duplicates.descriptors.iter().for_each(|kept| drop(kept.try_clone().unwrap()));
    }
}
