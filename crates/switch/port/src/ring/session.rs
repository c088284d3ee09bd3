//! A port and the program that is currently attached to it.

use super::{Config, RingRx, RingTx};
use crate::frame_queue::Inside;
use crate::{Doorbell, Queue};
use ringway_frame::{Caps, Counters, LARGEST, Needs, add};
use ringway_host::{Budget, Signal, SignalError};
use ringway_mem::{Published, Turn};
use ringway_ring::{Broken, FRAGMENTS, RX, RingMemory};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a program loses its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The program violated the ring's rules.
    #[error("the program broke its ring: {0}; it must connect again")]
    Broken(Broken),
    /// Waking the program takes too long.
    #[error("waking the program took several milliseconds each time: too many watch its eventfd")]
    Slow,
}

/// The program attached to a port, if any.
pub(super) struct Session {
    /// Unique among the sessions of this port.
    pub number: u64,
    pub open: Option<Open>,
    /// The function of this process that has the port while there is no program.
    pub inside: Option<Arc<Inside>>,
}

/// A program's ring.
pub(super) struct Open {
    pub memory: RingMemory,
    pub caps: Caps,
    /// Wakes the program, if it can be woken.
    call: Option<Arc<Signal>>,
    broken: AtomicBool,
}

impl Open {
    fn new(memory: RingMemory, call: Option<Arc<Signal>>) -> Open {
        let header = memory.header();
        let offloads = [Needs::CSUM, Needs::TSO4, Needs::TSO6, Needs::ECN, Needs::USO];
        let offloads = offloads
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| header.features & (1 << bit) != 0)
            .fold(Needs::NONE, |all, (_, one)| all.with(one));
        let most = (FRAGMENTS as u32).min(memory.slots(RX)) * memory.slot_size();
        let asked = if header.largest == 0 { LARGEST } else { header.largest };
        let caps = Caps { offloads, largest: asked.min(most).min(LARGEST) };
        Open { memory, caps, call, broken: AtomicBool::new(false) }
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Notifies the program.
    pub fn signal(&self, counters: &Counters) {
        let Some(call) = &self.call else { return };
        add(&counters.interrupts, 1);
        call.send();
    }
}

/// Both queues' access to the current session.
#[derive(Clone)]
pub(super) struct Shared {
    pub session: Arc<Published<Session>>,
    pub config: Arc<Config>,
}

impl Shared {
    /// The current session, and its ring unless it is broken.
    #[inline]
    pub fn session<'t>(&self, turn: &'t Turn<'_>) -> (u64, Option<&'t Open>) {
        let session = self.session.read(turn);
        (session.number, session.open.as_ref().filter(|open| !open.is_broken()))
    }

    /// The current session, if a function of this process has the port.
    #[cold]
    pub fn inside<'t>(&self, turn: &'t Turn<'_>) -> Option<(u64, &'t Arc<Inside>)> {
        let session = self.session.read(turn);
        Some((session.number, session.inside.as_ref().filter(|_| session.open.is_none())?))
    }

    /// Ends the use of a ring whose program violated the rules.
    #[cold]
    pub fn fail(&self, open: &Open, why: Broken) {
        if !open.broken.swap(true, Ordering::Relaxed) {
            add(&self.config.counters.faults, 1);
            (self.config.broken)(Fault::Broken(why));
        }
    }
}

/// The handle that attaches programs to a port and detaches them.
pub struct RingPort {
    shared: Shared,
    doorbell: Arc<dyn Doorbell>,
    number: u64,
    /// Budget for waking its programs.
    budget: Arc<Budget>,
    inside: Option<Arc<Inside>>,
    /// The session as the queues see it.
    current: Arc<Session>,
}

impl RingPort {
    /// A port without a program, and its queues.
    pub fn new(config: Config) -> (RingPort, Vec<Queue>) {
        let doorbell = config.doorbell.clone();
        let session = Arc::new(Session { number: 0, open: None, inside: None });
        let config = Arc::new(config);
        let published = Arc::new(Published::new(session.clone()));
        let shared = Shared { session: published, config: config.clone() };
        let budget = Arc::new(Budget::new(move || {
            add(&config.counters.faults, 1);
            (config.broken)(Fault::Slow);
        }));
        let tx = Box::new(RingTx::new(shared.clone()));
        let rx = Box::new(RingRx::new(shared.clone()));
        (
            RingPort { shared, doorbell, number: 0, budget, inside: None, current: session },
            vec![Queue { tx, rx }],
        )
    }

    /// Attaches a program: its ring, the eventfd that it writes and the eventfd that we write. Replaces the previous
    /// one.
    pub fn attach(&mut self, memory: RingMemory, kick: OwnedFd, call: OwnedFd) -> Result<(), SignalError> {
        let call = self.signal(Arc::new(call))?;
        self.budget.renew();
        self.open(memory, Arc::new(kick), Some(call));
        Ok(())
    }

    /// As [`RingPort::attach`], for a program whose budget goes on, and that is woken by `call`, if by anything.
    pub(crate) fn open(&mut self, memory: RingMemory, kick: Arc<OwnedFd>, call: Option<Arc<Signal>>) {
        self.number += 1;
        self.replace(Some(Open::new(memory, call)));
        self.doorbell.watch(kick);
        self.doorbell.wake();
    }

    /// Wakes the program by another descriptor from now on, or by none; its ring stays.
    pub(crate) fn set_call(&mut self, call: Option<Arc<Signal>>) {
        let former = self.current.clone();
        let Some(open) = &former.open else { return };
        let (memory, broken) = (open.memory.clone(), AtomicBool::new(open.is_broken()));
        self.replace(Some(Open { memory, caps: open.caps, call, broken }));
        // A worker may have found the fault in the turn that has just ended.
        if open.is_broken() {
            self.current.open.iter().for_each(|open| open.broken.store(true, Ordering::Relaxed));
        }
    }

    /// A signal by an eventfd of the program, at the expense of its budget.
    pub(crate) fn signal(&self, call: Arc<OwnedFd>) -> Result<Arc<Signal>, SignalError> {
        Ok(Arc::new(Signal::charged_to(call, &self.budget)?))
    }

    /// What waking its program may cost.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Nanoseconds for which no program may attach, since the last one exceeded its budget.
    pub fn rest(&self, now: u64) -> u64 {
        self.budget.rest(now)
    }

    /// Detaches the program, which is gone or must go. Returns when no worker accesses its memory any more.
    pub fn detach(&mut self) {
        // Attack: programs that connect to a function's port and are refused must not disturb its session.
        if self.current.open.is_none() {
            return;
        }
        self.doorbell.unwatch();
        self.number += 1;
        self.replace(None);
        // A function of this process may have frames already.
        self.doorbell.wake();
    }

    /// Gives the port to a function of this process, or to none; as soon as a program that is `attached` leaves.
    pub fn join(&mut self, inside: Option<Arc<Inside>>, attached: bool) {
        if let Some(inside) = &inside {
            inside.from.wakes_receiver(self.doorbell.clone());
        }
        self.inside = inside;
        if attached {
            return;
        }
        self.number += 1;
        self.replace(None);
        self.doorbell.wake();
    }

    /// Takes the port back from a function of this process, unless another one has it by now.
    pub fn leave(&mut self, inside: &Arc<Inside>, attached: bool) {
        if self.inside.as_ref().is_some_and(|own| Arc::ptr_eq(own, inside)) {
            self.join(None, attached);
        }
    }

    /// The function of this process that has the port.
    pub fn function(&self) -> Option<&str> {
        self.inside.as_ref().map(|inside| &*inside.function)
    }

    /// Whether no frame waits in the program's ring, or in the queues of this process' function that has the port.
    pub fn is_quiet(&self) -> bool {
        match (&self.current.open, &self.current.inside) {
            (Some(open), _) => open.memory.is_drained(),
            (None, inside) => inside.as_ref().is_none_or(|inside| inside.is_quiet()),
        }
    }

    /// Whether there is a program, and it has not violated the rules.
    pub fn is_up(&self, turn: &Turn<'_>) -> bool {
        self.shared.session(turn).1.is_some()
    }

    /// Publishes a session; the queues begin anew if its number is new.
    fn replace(&mut self, open: Option<Open>) {
        let session = Arc::new(Session { number: self.number, open, inside: self.inside.clone() });
        self.current = session.clone();
        let retired = self.shared.session.replace(session);
        drop(ringway_host::reclaim(retired));
    }
}
