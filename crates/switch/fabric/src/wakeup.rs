//! Wake-ups of a worker: a private bit vector for wake-ups by our own threads, epoll for kicks.

use crate::log_limit::LogLimit;
use ringway_host::{Epoll, EventFd, HostError};
use ringway_mem::sync::{AtomicBool, AtomicU64, Ordering::SeqCst};
use ringway_port::Doorbell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of queues per worker.
pub const QUEUES: usize = 8192;
/// The key under which epoll reports the worker's own wake-up.
const WAKE_UP: u64 = u64::MAX;

/// The queues that rang, and whether their worker sleeps.
struct Bits {
    words: Box<[AtomicU64]>,
    any: AtomicBool,
    asleep: AtomicBool,
}

impl Bits {
    fn new(queues: usize) -> Bits {
        let words = (0..queues / 64).map(|_| AtomicU64::new(0)).collect();
        Bits { words, any: AtomicBool::new(false), asleep: AtomicBool::new(false) }
    }

    fn set(&self, bit: usize) {
        if let Some(word) = self.words.get(bit / 64) {
            word.fetch_or(1 << (bit % 64), SeqCst);
        }
    }

    /// Makes the worker begin another turn; returns whether it must be woken.
    fn wake(&self) -> bool {
        self.any.store(true, SeqCst);
        // The worker sets `asleep` before its last check of `any`, so either this thread sees `asleep` or the worker
        // sees `any`.
        self.asleep.load(SeqCst)
    }

    #[inline]
    fn collect(&self, mut each: impl FnMut(usize)) -> bool {
        if !self.any.load(SeqCst) {
            return false;
        }
        self.any.store(false, SeqCst);
        for (index, word) in self.words.iter().enumerate() {
            if word.load(SeqCst) == 0 {
                continue;
            }
            let mut bits = word.swap(0, SeqCst);
            while bits != 0 {
                each(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        true
    }

    /// Calls `wait` unless a thread woke the worker since [`Bits::collect`].
    fn sleep(&self, wait: impl FnOnce()) {
        self.asleep.store(true, SeqCst);
        if !self.any.load(SeqCst) {
            wait();
        }
        self.asleep.store(false, SeqCst);
    }
}

/// A worker's wake-ups. Only our own threads write its bits, so no peer can slow the worker down by them.
pub struct Wakeup {
    bits: Bits,
    epoll: Epoll,
    wake_up: EventFd,
}

impl Wakeup {
    /// A wakeup for [`QUEUES`] queues.
    pub fn new() -> Result<Arc<Wakeup>, HostError> {
        let (epoll, wake_up) = (Epoll::new()?, EventFd::new()?);
        epoll.add_edge(wake_up.as_fd(), WAKE_UP)?;
        Ok(Arc::new(Wakeup { bits: Bits::new(QUEUES), epoll, wake_up }))
    }

    /// Makes the worker poll queue `bit` in its next turn.
    pub fn ring(&self, bit: usize) {
        self.bits.set(bit);
        self.wake();
    }

    /// Makes the worker begin another turn.
    pub fn wake(&self) {
        if self.bits.wake() {
            self.wake_up.signal();
        }
    }

    /// Makes the worker begin another turn, even if a former thread of it consumed a wake-up.
    pub fn rouse(&self) {
        self.bits.wake();
        self.wake_up.signal();
    }

    /// Calls `each` for every queue that rang since the last call; returns whether any queue rang or any thread woke
    /// the worker. Costs one load if none did.
    #[inline]
    pub fn collect(&self, each: impl FnMut(usize)) -> bool {
        self.bits.collect(each)
    }

    /// Sleeps until a watched descriptor becomes readable, a thread rings or wakes, or `timeout` nanoseconds have
    /// passed. Calls `each` for every queue whose descriptor became readable.
    pub fn sleep(&self, timeout: Option<u64>, mut each: impl FnMut(usize)) {
        self.bits.sleep(|| self.wait(timeout, &mut each));
    }

    fn wait(&self, timeout: Option<u64>, each: &mut impl FnMut(usize)) {
        self.epoll.wait(timeout, |key| {
            if key != WAKE_UP {
                each(key as usize);
            }
        });
    }

    /// Polls the watched descriptors without waiting: for kicks of armed queues while the worker is busy with others.
    /// This is a system call, so the worker makes it only at intervals.
    pub fn look(&self, mut each: impl FnMut(usize)) {
        self.wait(Some(0), &mut each);
    }
}

/// One queue's line to its worker.
pub struct Line {
    port: String,
    end: Mutex<End>,
}

/// The worker that a line rings, and the kick descriptor that is watched there.
struct End {
    wakeup: Arc<Wakeup>,
    bit: usize,
    kick: Option<Arc<OwnedFd>>,
    log: LogLimit,
}

impl End {
    fn replace(&mut self, new: Option<Arc<OwnedFd>>, port: &str) {
        if let Some(old) = self.kick.take() {
            // The descriptor can't be closed already: the line holds it open until here.
            let _ = self.wakeup.epoll.delete(old.as_fd());
        }
        if let Some(new) = new {
            if let Err(error) = self.wakeup.epoll.add_edge(new.as_fd(), self.bit as u64)
                && self.log.allows(port)
            {
                tracing::warn!(port, %error, "a kick descriptor can't be watched; others wake its queue");
            }
            self.kick = Some(new);
        }
    }
}

impl Line {
    /// The line of queue `bit`, which is one of `port`'s.
    pub fn new(wakeup: Arc<Wakeup>, bit: usize, port: &str) -> Line {
        let end = End { wakeup, bit, kick: None, log: LogLimit::of_port() };
        Line { port: port.into(), end: Mutex::new(end) }
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, new: Option<Arc<OwnedFd>>) {
        self.end().replace(new, &self.port);
    }

    /// Moves the line to queue `bit` of another worker.
    pub fn move_to(&self, wakeup: Arc<Wakeup>, bit: usize) {
        let mut end = self.end();
        let kick = end.kick.clone();
        end.replace(None, &self.port);
        (end.wakeup, end.bit) = (wakeup, bit);
        end.replace(kick, &self.port);
    }
}

impl Doorbell for Line {
    fn wake(&self) {
        let end = self.end();
        end.wakeup.ring(end.bit);
    }

    fn watch(&self, kick: Arc<OwnedFd>) {
        self.replace(Some(kick));
    }

    fn unwatch(&self) {
        self.replace(None);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.replace(None);
    }
}

/// loom runs these in each order that the memory model permits.
#[cfg(all(test, ringway_loom))]
mod models {
    use super::*;
    use loom::sync::Notify;
    use ringway_mem::sync::Ordering::Relaxed;

    /// Two threads ring a queue each, and wake the worker as `wake` says; it sleeps until both rang. loom finds a sleep
    /// from which nobody wakes.
    fn rung(wake: fn(&Bits) -> bool) {
        loom::model(move || {
            let shared = Arc::new((Bits::new(64), Notify::new()));
            let ring = |bit| {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.0.set(bit);
                    if wake(&shared.0) {
                        shared.1.notify();
                    }
                })
            };
            let threads = [ring(3), ring(7)];
            let mut seen = [0; 8];
            while seen[3] + seen[7] < 2 {
                if !shared.0.collect(|bit| seen[bit] += 1) {
                    shared.0.sleep(|| shared.1.wait());
                }
            }
            assert_eq!((seen[3], seen[7]), (1, 1));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn every_queue_that_rings_is_polled_once() {
        rung(Bits::wake);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_ring_that_looks_for_sleepers_too_early_is_found() {
        rung(|bits| {
            let asleep = bits.asleep.load(SeqCst);
            bits.wake();
            asleep
        });
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_wake_up_without_an_order_is_found() {
        rung(|bits| {
            bits.any.store(true, Relaxed);
            bits.asleep.load(Relaxed)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_kick_line_wakes_its_new_worker() {
        let bells = [Wakeup::new().unwrap(), Wakeup::new().unwrap()];
        let line = Line::new(bells[0].clone(), 3, "p");
        let kick = Arc::new(EventFd::new().unwrap().as_fd().try_clone_to_owned().unwrap());
        line.watch(kick.clone());
        line.move_to(bells[1].clone(), 5);
        rustix::io::write(&kick, &1_u64.to_ne_bytes()).unwrap();
        line.wake();
        let mut rung = Vec::new();
        for (number, wakeup) in (0..).zip(&bells) {
            wakeup.collect(|bit| rung.push((number, bit)));
            wakeup.look(|bit| rung.push((number, bit)));
        }
        assert_eq!(rung, [(1, 5), (1, 5)]);
    }
}
