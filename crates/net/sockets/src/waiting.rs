//! Who waits for what.

use ringway_netstack::{Readiness, SocketId};
use std::task::Waker;

/// What a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes, datagrams, connections.
    Read,
    /// Room for bytes, an established connection.
    Write,
    /// Anything that makes the stack send: room in the device, acknowledgments.
    Progress,
}

/// Tasks and threads that wait for one socket.
#[derive(Debug, Default)]
struct Waiters {
    /// Tasks that wait for reading and for writing.
    tasks: [Option<Waker>; 2],
    /// Blocked threads.
    threads: Vec<(Interest, Waker)>,
}

/// Tasks and threads that wait. Their number is bounded by the program's own threads and sockets.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    sockets: Vec<Waiters>,
    progress: Vec<Waker>,
    woken: Vec<Waker>,
    count: usize,
}

impl Waiting {
    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn socket(&mut self, socket: SocketId) -> &mut Waiters {
        let index = socket.index();
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, Waiters::default);
        }
        &mut self.sockets[index]
    }

    /// Adds a thread.
    pub(crate) fn add(&mut self, socket: Option<SocketId>, interest: Interest, waker: &Waker) {
        self.count += 1;
        match socket {
            Some(socket) if interest != Interest::Progress => {
                self.socket(socket).threads.push((interest, waker.clone()));
            }
            _ => self.progress.push(waker.clone()),
        }
    }

    /// Removes a thread, unless it was woken.
    pub(crate) fn remove(&mut self, socket: Option<SocketId>, interest: Interest, waker: &Waker) {
        let removed = match socket {
            Some(socket) if interest != Interest::Progress => {
                let threads = &mut self.socket(socket).threads;
                let place = threads.iter().position(|(of, other)| *of == interest && other.will_wake(waker));
                place.map(|place| threads.swap_remove(place)).is_some()
            }
            _ => {
                let place = self.progress.iter().position(|other| other.will_wake(waker));
                place.map(|place| self.progress.swap_remove(place)).is_some()
            }
        };
        self.count -= usize::from(removed);
    }

    /// Makes a task the one that waits.
    pub(crate) fn set_task(&mut self, socket: SocketId, interest: Interest, waker: &Waker) {
        if interest == Interest::Progress {
            if !self.progress.iter().any(|other| other.will_wake(waker)) {
                self.add(None, interest, waker);
            }
            return;
        }
        let task = &mut self.socket(socket).tasks[usize::from(interest == Interest::Write)];
        let added = task.is_none();
        match task {
            Some(task) => task.clone_from(waker),
            None => *task = Some(waker.clone()),
        }
        self.count += usize::from(added);
    }

    /// A socket became ready.
    pub(crate) fn wake(&mut self, socket: SocketId, ready: Readiness) {
        let Some(waiters) = self.sockets.get_mut(socket.index()) else { return };
        let before = self.woken.len();
        let reads = ready.readable || ready.acceptable || ready.closed;
        let writes = ready.writable || ready.closed;
        for (task, ready) in waiters.tasks.iter_mut().zip([reads, writes]) {
            self.woken.extend(task.take_if(|_| ready));
        }
        let is_ready = |interest: &Interest| if *interest == Interest::Read { reads } else { writes };
        let ready = waiters.threads.extract_if(.., |(interest, _)| is_ready(interest));
        self.woken.extend(ready.map(|(_, waker)| waker));
        self.count -= self.woken.len() - before;
    }

    /// The device has room, or acknowledgments arrived.
    pub(crate) fn wake_progress(&mut self) {
        self.count -= self.progress.len();
        self.woken.append(&mut self.progress);
    }

    /// Nobody needs to wait any more.
    pub(crate) fn wake_all(&mut self) {
        self.wake_progress();
        for waiters in &mut self.sockets {
            self.woken.extend(waiters.tasks.iter_mut().filter_map(Option::take));
            self.woken.extend(waiters.threads.drain(..).map(|(_, waker)| waker));
        }
        self.count = 0;
    }

    /// The socket is closed.
    pub(crate) fn forget(&mut self, socket: SocketId) {
        let Some(waiters) = self.sockets.get_mut(socket.index()) else { return };
        let waiters = std::mem::take(waiters);
        self.count -= waiters.tasks.iter().flatten().count() + waiters.threads.len();
    }

    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    pub(crate) fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }
}
