//! Passing packets on, and turns.
use super::{Emission, Router, Work};
use crate::{Context, ElementId, PacketBurst};
use alloc::vec::Vec;

/// Attack: push outputs connected in a loop. Largest number of bursts that a task, timer or handler may pass
/// on.
const BUDGET: u32 = 1 << 20;
/// Attack: two scripts that write each other's `run`. Largest number of deferred writes performed at once.
const WRITES: u32 = 10_000;
/// Tasks per turn, as in Click's driver between polls of timers and descriptors.
pub(super) const TASKS: usize = 128;
/// Timers per turn, so that a timer that is repeatedly set to the past does not starve others.
const TIMERS: usize = 64;
/// Attack: a script that never does anything. Maximum number of times that a stopped router's script is asked to
/// continue.
const STEPS: usize = 1000;

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do immediately.
    Busy,
    /// Nothing to do before this moment of the steady clock, unless a descriptor is ready.
    IdleUntil(u64),
    /// Nothing to do unless a descriptor is ready.
    Idle,
    /// The router has stopped.
    Stopped,
}

impl Router {
    /// Passes on the packets that element `id` emitted since `base`, and everything that results.
    pub(crate) fn pass_on(&mut self, id: ElementId, base: usize) {
        if self.emitted.len() > base {
            if self.profile.is_some() {
                self.profile_emitted(id, base, 0);
            }
            let bottom = self.work.len();
            self.route(id, base);
            self.hand_over(bottom);
        }
    }

    /// Converts emissions to work, so that the first one is processed first.
    fn route(&mut self, id: ElementId, base: usize) {
        while self.emitted.len() > base {
            let Some(Emission { port, burst }) = self.emitted.pop() else { return };
            let work = self.onward(id, port, burst);
            self.work.extend(work);
        }
    }

    /// The work for packets emitted from an output; `None`, dropping them, if the output is unconnected.
    #[inline]
    fn onward(
        &mut self,
        id: ElementId,
        port: usize,
        mut burst: alloc::boxed::Box<PacketBurst>,
    ) -> Option<Work> {
        let next = match port {
            0 => self.firsts.get(id.index()).copied().flatten(),
            _ => self.info(id).outputs.get(port).and_then(|port| port.next),
        };
        let Some((to, port)) = next.filter(|_| !burst.is_empty()) else {
            burst.clear();
            self.spare.push(burst);
            return None;
        };
        Some(Work { to, port, burst })
    }

    /// Passes bursts on until no more work is above `bottom`.
    fn hand_over(&mut self, bottom: usize) {
        while self.work.len() > bottom {
            let mut next = self.work.pop();
            while let Some(work) = next {
                next = self.hand(work);
            }
        }
    }

    /// Passes a burst on. Returns the next work if it is known at once.
    #[inline]
    fn hand(&mut self, work: Work) -> Option<Work> {
        if self.budget == 0 {
            return self.hand_profiled(work).unwrap_or_else(|work| {
                self.circle(work);
                None
            });
        }
        self.budget -= 1;
        self.deliver::<false>(work)
    }

    #[inline(always)]
    pub(super) fn deliver<const PROFILED: bool>(&mut self, mut work: Work) -> Option<Work> {
        if self.pool.has_offloads() && self.must_complete(&work) {
            self.complete_work(work);
            return None;
        }
        let Some(mut element) = self.take(work.to) else {
            self.blocked.push_back(work);
            return None;
        };
        let before = if PROFILED { self.profile_enter(work.to, work.burst.len()) } else { None };
        let mut cx = Context::new(self, work.to, false);
        element.push(work.port, &mut work.burst, &mut cx);
        let base = cx.emissions();
        self.put(work.to, element);
        if PROFILED {
            self.profile_leave(before);
            self.profile_emitted(work.to, base, work.burst.len());
        }
        let next = self.onward(work.to, 0, work.burst);
        if self.emitted.len() == base {
            return next;
        }
        self.work.extend(next);
        self.route(work.to, base);
        None
    }

    #[cold]
    fn circle(&mut self, mut work: Work) {
        if self.looped == 0 {
            let name = self.declaration(work.to);
            self.chatter(format_args!("{name}: packets go round in circles, dropped"));
        }
        self.looped += work.burst.len() as u64;
        work.burst.clear();
        self.spare.push(work.burst);
    }

    /// The element that answers a pull at an input, skipping relays.
    pub(super) fn puller_of(&self, id: ElementId, port: usize) -> Option<(ElementId, usize)> {
        let peer = |id: ElementId, port: usize| {
            self.info(id).inputs.get(port).filter(|port| port.pull).and_then(|port| port.peer)
        };
        let mut found = peer(id, port)?;
        // Attack: relays connected in a loop.
        for _ in 0..self.infos.len() {
            match self.class(found.0).relay {
                Some((output, input)) if output == found.1 => found = peer(found.0, input)?,
                _ => return Some(found),
            }
        }
        None
    }

    /// Pulls from upstream of an input.
    pub(crate) fn pull(&mut self, id: ElementId, port: usize, max: usize, burst: &mut PacketBurst) {
        let input = port;
        let Some((from, port)) = self.puller_of(id, input) else { return };
        let max = max.min(self.burst).min(crate::PACKETS - burst.len());
        if burst.is_empty() {
            self.enter(from, |element, cx| element.pull(port, max, burst, cx));
            if self.profile.is_some() {
                self.profile_pulled(id, input, from, burst.len());
            }
            self.complete_pulled(id, burst);
            return;
        }
        let mut more = self.spare.pop().unwrap_or_default();
        self.enter(from, |element, cx| element.pull(port, max, &mut more, cx));
        if self.profile.is_some() {
            self.profile_pulled(id, input, from, more.len());
        }
        self.complete_pulled(id, &mut more);
        for packet in more.drain() {
            burst.push(packet);
        }
        self.spare.push(more);
    }

    /// Performs deferred operations, when no element is running.
    pub(crate) fn settle(&mut self) {
        self.refill(BUDGET);
        let mut writes = 0;
        while !self.blocked.is_empty() || !self.deferred.is_empty() {
            while let Some(work) = self.blocked.pop_back() {
                self.work.push(work);
            }
            self.hand_over(0);
            if let Some(call) = self.deferred.pop_front() {
                if let Err(error) = self.call_write(&call) {
                    self.chatter(format_args!("{error}"));
                }
                writes += 1;
            }
            if writes >= WRITES && !self.deferred.is_empty() {
                self.chatter(format_args!("too many writes that wait for one another, giving up"));
                self.deferred.clear();
            }
            if self.is_spent() {
                self.deferred.clear();
            }
        }
        self.refill(BUDGET);
    }

    pub(super) fn run_tasks(&mut self, most: usize) {
        for _ in 0..=most {
            if self.runcount <= 0 || self.is_replaced() {
                return;
            }
            let Some(task) = self.tasks.next() else { return };
            let id = self.tasks.all[task.0 as usize].element;
            let worked = self.enter(id, |element, cx| element.run_task(task, cx)).unwrap_or(false);
            self.settle();
            if self.tasks.is_scheduled(task) && !self.tasks.again(task, worked) {
                return;
            }
        }
    }

    fn run_timers(&mut self) {
        let now = self.clock.steady();
        for _ in 0..TIMERS {
            if self.runcount <= 0 || self.is_replaced() {
                return;
            }
            let Some(timer) = self.timers.take(now) else { return };
            let id = self.timers.element(timer);
            self.enter(id, |element, cx| element.run_timer(timer, cx));
            self.settle();
        }
    }

    /// Reports a ready descriptor to its element.
    pub fn selected(&mut self, descriptor: i32, readable: bool, writable: bool) {
        for id in self.interested(descriptor, readable, writable) {
            self.enter(id, |element, cx| element.selected(descriptor, readable, writable, cx));
            self.settle();
        }
    }

    /// Signals that elements requested.
    pub fn caught_signals(&self) -> impl Iterator<Item = i32> + '_ {
        self.signals.iter().map(|(_, signal)| *signal)
    }

    /// Reports a signal of the process to elements. Returns whether any requested it.
    pub fn signal_arrived(&mut self, signal: i32) -> bool {
        let watchers: Vec<ElementId> =
            self.signals.iter().filter(|(_, own)| *own == signal).map(|(id, _)| *id).collect();
        for id in &watchers {
            self.enter(*id, |element, cx| element.signalled(signal, cx));
            self.settle();
        }
        !watchers.is_empty()
    }

    /// When the last turn began, on its steady clock in nanoseconds.
    pub fn turn_began(&self) -> u64 {
        self.turn_began
    }

    /// A round of tasks and expired timers. A simulation's clock jumps to the next timer if there is nothing
    /// else to do.
    pub fn turn(&mut self) -> Turn {
        self.turn_of(TASKS)
    }

    /// A round of about `tasks` tasks, and of expired timers.
    pub fn turn_of(&mut self, tasks: usize) -> Turn {
        if self.runcount <= 0 && !self.step_on() {
            return Turn::Stopped;
        }
        self.turn_began = self.clock.glance();
        self.turn_wall = None;
        self.run_tasks(tasks);
        self.run_timers();
        if self.runcount <= 0 || self.tasks.scheduled > 0 {
            return Turn::Busy;
        }
        match self.timers.next_expiry() {
            None => Turn::Idle,
            Some(expiry) if self.clock.is_simulated() => {
                self.clock.jump(expiry);
                Turn::Busy
            }
            Some(expiry) => Turn::IdleUntil(expiry),
        }
    }

    /// Asks the element that manages stops whether to continue.
    fn step_on(&mut self) -> bool {
        let Some(id) = self.stop_element else { return false };
        for _ in 0..STEPS {
            let call =
                crate::HandlerCall { element: Some(id), handler: "step".into(), value: "router".into() };
            let result = self.call_write(&call);
            self.settle();
            if result.is_err() || self.runcount > 0 || self.is_replaced() {
                break;
            }
        }
        self.runcount > 0
    }
}
