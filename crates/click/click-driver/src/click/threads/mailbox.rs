//! Messages to a thread that may be sleeping.
use ringway_host::{EventFd, HostError};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Holds letters until the reader takes them.
pub(super) struct Mailbox<T> {
    letters: Mutex<Letters<T>>,
    /// Whether there may be letters; polled by a busy reader.
    filled: AtomicBool,
    /// Wakes a sleeping reader: signalled while there are letters.
    event: EventFd,
}

struct Letters<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Mailbox<T> {
    pub(super) fn new() -> Result<Self, HostError> {
        let letters = Mutex::new(Letters { waiting: VecDeque::new(), closed: false });
        Ok(Self { letters, filled: AtomicBool::new(false), event: EventFd::new()? })
    }

    fn lock(&self) -> MutexGuard<'_, Letters<T>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a letter, unless the reader is gone or `most` are waiting.
    pub(super) fn put_within(&self, most: usize, letter: T) {
        let mut letters = self.lock();
        if !letters.closed && letters.waiting.len() < most {
            letters.waiting.push_back(letter);
            self.filled.store(true, Ordering::Release);
            self.event.signal();
        }
    }

    /// Adds a letter, unless the reader is gone.
    pub(super) fn put(&self, letter: T) {
        self.put_within(usize::MAX, letter);
    }

    /// Takes the first letter; cheap if there is none.
    pub(super) fn take(&self) -> Option<T> {
        if !self.filled.load(Ordering::Acquire) {
            return None;
        }
        let mut letters = self.lock();
        let letter = letters.waiting.pop_front();
        if letters.waiting.is_empty() {
            self.filled.store(false, Ordering::Release);
            self.event.clear();
        }
        letter
    }

    /// Closes the mailbox: waiting and later letters are dropped.
    pub(super) fn close(&self) {
        let mut letters = self.lock();
        letters.closed = true;
        letters.waiting.clear();
    }

    /// Readable while there are letters.
    pub(super) fn descriptor(&self) -> i32 {
        self.event.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_host::{PollFd, poll};
    use std::sync::Arc;
    use std::time::Duration;

    fn rings<T>(mailbox: &Mailbox<T>) -> bool {
        let mut poll_fds = [PollFd { descriptor: mailbox.descriptor(), readable: true, writable: false }];
        poll(&mut poll_fds, Duration::ZERO);
        poll_fds[0].readable
    }

    #[test]
    fn the_mailbox_is_readable_while_it_has_messages() {
        let mailbox = Mailbox::new().unwrap();
        assert!(!rings(&mailbox) && mailbox.take().is_none());
        (0..3).for_each(|letter| mailbox.put_within(2, letter));
        assert!(rings(&mailbox));
        assert_eq!((mailbox.take(), rings(&mailbox)), (Some(0), true));
        assert_eq!((mailbox.take(), rings(&mailbox)), (Some(1), false));
        mailbox.put(3);
        mailbox.close();
        mailbox.put(4);
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn no_message_is_lost_between_threads() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let writers = [0, 1].map(|writer| {
            let mailbox = mailbox.clone();
            std::thread::spawn(move || (0..1000).for_each(|letter| mailbox.put((writer, letter))))
        });
        let mut next = [0, 0];
        while next != [1000, 1000] {
            let mut poll_fds = [PollFd { descriptor: mailbox.descriptor(), readable: true, writable: false }];
            poll(&mut poll_fds, Duration::from_secs(60));
            assert!(poll_fds[0].readable, "it sleeps while letters wait");
            let (writer, letter) = mailbox.take().unwrap();
            assert_eq!(letter, next[writer]);
            next[writer] += 1;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }
}
