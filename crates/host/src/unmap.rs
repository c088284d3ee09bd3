//! A thread that unmaps peers' memory and closes its files, while nobody waits.
//!
//! Attack: a guest of gigabytes that comes and goes. The kernel takes seconds to take so many pages from the
//! page tables and, where nobody else has the file any more, to free them; the session thread would serve
//! nobody meanwhile. What comes here is in no table of ours any more, so that only its addresses stay in use.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// Something to let go of.
pub(crate) trait Leaving: Send {
    /// Lets go of a piece that takes no more than some milliseconds. Whether more is left that can be let go of in
    /// pieces; once nothing is, it is dropped.
    fn piece(&mut self) -> bool;
}

/// Has the thread let go of something; it is dropped there.
pub(crate) fn later(leaving: Box<dyn Leaving>) {
    static QUEUE: OnceLock<Option<Sender<Box<dyn Leaving>>>> = OnceLock::new();
    let start = || {
        let (queue, queued) = channel();
        crate::spawn("unmap", None, move || run(&queued)).ok().map(|_| queue)
    };
    // Without a thread it is dropped here.
    let _ = QUEUE.get_or_init(start).as_ref().map(|queue| queue.send(leaving));
}

/// Has a thread close memory's descriptors: the last descriptor of a file frees its pages.
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

/// Lets go of one piece. They take turns, so that a large one delays the small ones behind it by a piece each.
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
        // It was received: the thread is in it, and stays there.
        let _ = held.send(());
        Hold(Some(held))
    }

    #[test]
    fn small_ones_do_not_wait_for_large_ones() {
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
        let (told, gone) = channel();
        let pieces = [('a', 100), ('b', 1), ('c', 2)];
        let mut leaving: VecDeque<Box<dyn Leaving>> = VecDeque::new();
        for (name, count) in pieces {
            leaving.push_back(Box::new(Pieces(name, count, told.clone())));
        }
        while !leaving.is_empty() {
            next(&mut leaving);
        }
        drop(told);
        assert_eq!(gone.iter().collect::<String>(), "bca");
    }
}
