//! A thread that unmaps peers' memory and closes its files asynchronously.
//!
//! Attack: a guest of gigabytes that connects and disconnects. The kernel takes seconds to remove that many
//! pages from the page tables and to free them; the session thread would be blocked meanwhile. Memory passed
//! here is no longer in any of our tables; only its addresses stay in use.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// A resource to release.
pub(crate) trait Leaving: Send {
    /// Releases a part, which takes at most some milliseconds. Returns whether more parts remain; otherwise
    /// it is dropped.
    fn piece(&mut self) -> bool;
}

/// Releases a resource on the thread; it is dropped there.
pub(crate) fn later(leaving: Box<dyn Leaving>) {
    static QUEUE: OnceLock<Option<Sender<Box<dyn Leaving>>>> = OnceLock::new();
    let start = || {
        let (queue, queued) = channel();
        crate::spawn("unmap", None, move || run(&queued)).ok().map(|_| queue)
    };
    // If no thread could be started, it is dropped here.
    let _ = QUEUE.get_or_init(start).as_ref().map(|queue| queue.send(leaving));
}

/// Closes memory's descriptors on a thread: closing the last descriptor of a file frees its pages.
pub fn close_memory(files: Vec<OwnedFd>) {
    if !files.is_empty() {
        later(Box::new(Files(files)));
    }
}

struct Files(Vec<OwnedFd>);

impl Leaving for Files {
    fn piece(&mut self) -> bool {
        drop(self.0.pop());
        !self.0.is_empty()
    }
}

fn run(queued: &Receiver<Box<dyn Leaving>>) {
    let mut leaving = VecDeque::new();
    loop {
        match queued.try_recv() {
            Ok(next) => leaving.push_back(next),
            Err(TryRecvError::Empty) if leaving.is_empty() => match queued.recv() {
                Ok(next) => leaving.push_back(next),
                Err(_) => return,
            },
            Err(_) => next(&mut leaving),
        }
    }
}

/// Releases one part of the next resource. Resources take turns, so that a large one delays the others by one
/// part each.
fn next(leaving: &mut VecDeque<Box<dyn Leaving>>) {
    if let Some(mut first) = leaving.pop_front()
        && first.piece()
    {
        leaving.push_back(first);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// Holds the thread until the result is dropped.
    pub(crate) fn hold() -> impl Drop {
        struct Held(Receiver<()>);
        impl Leaving for Held {
            fn piece(&mut self) -> bool {
                self.0.recv().is_ok()
            }
        }
        struct Hold(Option<std::sync::mpsc::SyncSender<()>>);
        impl Drop for Hold {
            fn drop(&mut self) {
                self.0 = None;
            }
        }
        let (held, holds) = sync_channel(0);
        later(Box::new(Held(holds)));
        // The message was received: the thread is blocked in the closure.
        let _ = held.send(());
        Hold(Some(held))
    }

    #[test]
    fn small_unmappings_do_not_wait_for_large_ones() {
        struct Pieces(char, usize, Sender<char>);
        impl Leaving for Pieces {
            fn piece(&mut self) -> bool {
                self.1 -= 1;
                self.1 > 0
            }
        }
        impl Drop for Pieces {
            fn drop(&mut self) {
                let _ = self.2.send(self.0);
            }
        }
        let (sender, gone) = channel();
        let pieces = [('a', 100), ('b', 1), ('c', 2)];
        let mut leaving: VecDeque<Box<dyn Leaving>> = VecDeque::new();
        for (name, count) in pieces {
            leaving.push_back(Box::new(Pieces(name, count, sender.clone())));
        }
        while !leaving.is_empty() {
            next(&mut leaving);
        }
        drop(sender);
        assert_eq!(gone.iter().collect::<String>(), "bca");
    }
}
