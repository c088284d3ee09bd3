//! Sleeping and waking. Of all threads that wait for connections, in all processes, one *leads*: it sleeps until the
//! port or the agent notifies, or a timer is due, and runs the stack for all. The others sleep until it, or another one
//! that runs the stack, sees that their connection is ready. A thread that leads no longer wakes one that waits.
//!
//! While nobody waits, the attendant leads, a thread of a process that runs no program. It leaves the lead to whoever
//! begins to wait, and takes it only a while after nobody had it, so that it does not run for each request of a program
//! that waits again and again.

use crate::image::{Image, Locked, Turn};
use ringway_direct_stack::abi::words::{
    ANY, ATTENDANT_LEADS, ATTENDANT_SLEEPS, BITS, FOLLOWER_COUNTS, LEADER_BITS, LEADER_DEADLINE,
    MAX_LEADER_SLEEP, READY_COUNTS, SLEEPER_COUNTS, WITHDRAWN,
};
use ringway_direct_stack::bit;
use ringway_host::{Clock, EventFd, LockError, PollFd, poll, wait_word, wake_word};
use ringway_netstack::{RepairError, SocketError, SocketId};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

/// How long the attendant leaves the lead to others.
const ATTENDANT_DELAY: u64 = 1_000_000;

/// The eventfds by which the port, the agent and the processes notify each other. Each process has descriptors of the
/// same ones, which don't block.
#[derive(Debug)]
pub struct Notifiers {
    /// The port and the agent notify the processes.
    pub call: EventFd,
    /// The processes notify the port.
    pub port: EventFd,
    /// The processes notify the agent.
    pub agent: EventFd,
    /// The processes call the attendant.
    pub attendant: EventFd,
    /// Threads that sleep on descriptors of their programs too, while another one leads, are notified.
    pub followers: EventFd,
}

impl From<[OwnedFd; 5]> for Notifiers {
    /// In the order of the fields.
    fn from(descriptors: [OwnedFd; 5]) -> Notifiers {
        let [call, port, agent, attendant, followers] = descriptors.map(EventFd::from);
        Notifiers { call, port, agent, attendant, followers }
    }
}

/// The connections of which a thread has been told that they became ready, at first none.
#[derive(Clone, Debug)]
pub struct Watch([u32; BITS]);

impl Default for Watch {
    fn default() -> Watch {
        // The words begin at 0: what was before counts as new.
        Watch([u32::MAX; BITS])
    }
}

/// A process that shares the stack, and what its threads wait for.
#[derive(Debug)]
pub struct Member {
    image: Arc<Image>,
    notifiers: Notifiers,
    clock: Clock,
}

impl Member {
    /// A process with the image, whose rings are mapped, and the clock of all processes.
    pub fn new(image: impl Into<Arc<Image>>, notifiers: Notifiers, clock: Clock) -> Member {
        Member { image: image.into(), notifiers, clock }
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The time, of the clock of all processes.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        /// Stands in for a word outside of the image. `Image::map` checks the length, so it is never used.
        static NONE: AtomicU32 = AtomicU32::new(0);
        self.image.data.word(offset).unwrap_or(&NONE)
    }

    fn ready_count(&self, bit: usize) -> &AtomicU32 {
        self.word(READY_COUNTS + 4 * bit)
    }

    fn sleepers(&self, bit: usize) -> &AtomicU32 {
        self.word(SLEEPER_COUNTS + 4 * bit)
    }

    fn followers(&self, bit: usize) -> &AtomicU32 {
        self.word(FOLLOWER_COUNTS + 4 * bit)
    }

    fn long_word(&self, offset: usize) -> &AtomicU64 {
        static NONE: AtomicU64 = AtomicU64::new(0);
        self.image.data.long_word(offset).unwrap_or(&NONE)
    }

    fn leader_deadline(&self) -> &AtomicU64 {
        self.long_word(LEADER_DEADLINE)
    }

    /// Waits for this process's turn. If the stack is lost, all who sleep are to see it.
    fn lock(&self) -> Result<Locked<'_>, LockError> {
        let locked = self.image.lock().and_then(|locked| {
            let is_withdrawn = self.word(WITHDRAWN).load(SeqCst) != 0;
            if is_withdrawn { Err(LockError::Lost) } else { Ok(locked) }
        });
        locked.inspect_err(|error| {
            if *error == LockError::Lost {
                for bit in 0..=ANY {
                    self.ready_count(bit).fetch_add(1, SeqCst);
                    wake_word(self.ready_count(bit), u32::MAX);
                }
                self.notifiers.call.signal();
                self.notifiers.attendant.signal();
                self.notifiers.followers.signal();
            }
        })
    }

    /// Runs a function in a turn, and then notifies and wakes as the turn asks.
    ///
    /// # Errors
    /// If the stack is lost.
    pub fn turn<T>(&self, act: impl FnOnce(&mut Locked<'_>, u64) -> (T, Turn)) -> Result<T, LockError> {
        let mut locked = self.lock()?;
        let (value, turn) = act(&mut locked, self.now());
        drop(locked);
        self.finish(turn);
        Ok(value)
    }

    /// Notifies, and wakes, after a turn of a thread that does not lead.
    fn finish(&self, turn: Turn) {
        self.notify(&turn);
        let planned = self.leader_deadline().load(SeqCst);
        let is_late = turn.deadline.is_some_and(|due| due < planned);
        if is_late {
            // The thread that leads would sleep too long.
            self.leader_deadline().store(turn.deadline.unwrap_or(0), SeqCst);
        }
        // The thread that leads sleeps until the port notifies. The words of its connections were changed before this
        // is read.
        if is_late || turn.ready & self.long_word(LEADER_BITS).load(SeqCst) != 0 {
            self.notifiers.call.signal();
        }
    }

    /// Notifies, and wakes those who follow, after a turn.
    fn notify(&self, turn: &Turn) {
        if turn.kick_port {
            self.notifiers.port.signal();
        }
        if turn.kick_agent {
            self.notifiers.agent.signal();
        }
        let any = (turn.ready != 0).then_some(ANY);
        let mut follows = false;
        for bit in (0..BITS).filter(|bit| turn.ready >> bit & 1 != 0).chain(any) {
            self.ready_count(bit).fetch_add(1, SeqCst);
            if self.sleepers(bit).load(SeqCst) > 0 {
                wake_word(self.ready_count(bit), u32::MAX);
            }
            follows |= bit != ANY && self.followers(bit).load(SeqCst) > 0;
        }
        if follows {
            self.notifiers.followers.signal();
        }
    }

    /// Lets a connection leave the stack, and wakes those who wait for it: its handle is invalid from now on. As
    /// [`Locked::detach`]. Its addresses stay [reserved](Locked::reserve).
    ///
    /// # Errors
    /// If the stack is lost.
    pub fn detach(&self, socket: SocketId) -> Result<Result<Vec<u8>, RepairError>, LockError> {
        self.turn(|locked, now| {
            let (bytes, mut turn) = locked.detach(now, socket);
            if bytes.is_ok() {
                turn.ready |= 1 << bit(socket);
            }
            (bytes, turn)
        })
    }

    /// Lets a listener take no more connections, and those that are established leave the stack: their states, as
    /// [`Locked::detach`], at most `most`, in at most `bytes` bytes. A connection that would need more is closed. Also
    /// returns whether the listener is gone: there are no more, and none that may still be established. Those who wait
    /// for it are woken.
    ///
    /// # Errors
    /// If the stack is lost.
    pub fn stop_listener(
        &self,
        listener: SocketId,
        most: usize,
        bytes: usize,
    ) -> Result<(Vec<Vec<u8>>, bool), LockError> {
        let begun = self.turn(|locked, now| {
            let ran = locked.run(now);
            let (begun, turn) = locked.stop_listening(now, listener);
            let mut turn = ran.merge(turn);
            turn.ready |= 1 << bit(listener);
            (begun, turn)
        })?;
        let (mut states, mut len) = (Vec::new(), 0);
        while states.len() < most
            && let Ok(socket) = self.turn(|locked, now| locked.accept(now, listener, 0))?
        {
            match self.detach(socket)? {
                Ok(state) if state.len() <= bytes.saturating_sub(len) => {
                    len += state.len();
                    states.push(state);
                }
                // Attack: peers that send as much as there is room for, each on many connections.
                Ok(state) => self.turn(|locked, now| {
                    let (_, turn) = locked.attach(now, &state);
                    let (_, after) = locked.close(now, socket);
                    ((), turn.merge(after))
                })?,
                // One that has ended meanwhile is gone.
                Err(_) => _ = self.turn(|locked, now| locked.close(now, socket))?,
            }
        }
        if states.len() == most || begun.is_ok_and(|begun| begun > 0) {
            return Ok((states, false));
        }
        // It may be closed already.
        let _ = self.turn(|locked, now| locked.close(now, listener))?;
        Ok((states, true))
    }

    /// Reads bytes of a connection, and waits for them at most for `timeout`; 0: the end of the stream.
    ///
    /// # Errors
    /// If the stack is lost; or as [`Locked::recv`], with [`SocketError::WouldBlock`] after the time.
    pub fn recv(
        &self,
        socket: SocketId,
        out: &mut [u8],
        timeout: Option<Duration>,
    ) -> Result<Result<usize, SocketError>, LockError> {
        self.wait_for(socket, timeout, |locked, now| locked.recv(now, socket, out))
    }

    /// Sends bytes of a connection, as many as there is room for, and waits for room at most for `timeout`.
    ///
    /// # Errors
    /// As [`Member::recv`].
    pub fn send(
        &self,
        socket: SocketId,
        bytes: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Result<usize, SocketError>, LockError> {
        self.wait_for(socket, timeout, |locked, now| locked.send(now, socket, bytes))
    }

    /// Tries a call on a connection until it does not have to wait.
    fn wait_for<T>(
        &self,
        socket: SocketId,
        timeout: Option<Duration>,
        mut call: impl FnMut(&mut Locked<'_>, u64) -> (Result<T, SocketError>, Turn),
    ) -> Result<Result<T, SocketError>, LockError> {
        let done = self.wait(bit(socket) as usize, timeout, |locked, now| match call(locked, now) {
            (Err(SocketError::WouldBlock), turn) => (None, turn),
            (result, turn) => (Some(result), turn),
        })?;
        Ok(done.unwrap_or(Err(SocketError::WouldBlock)))
    }

    /// Waits at most for `timeout` until connections with one of these [bits](ringway_direct_stack::bit) became ready
    /// that `watch` has not told of; their bits. As with an edge-triggered `epoll`, it may be ready for less than
    /// expected.
    ///
    /// # Errors
    /// If the stack is lost.
    pub fn watch(&self, watch: &mut Watch, bits: u64, timeout: Option<Duration>) -> Result<u64, LockError> {
        let found = self.wait(ANY, timeout, |locked, now| {
            let turn = locked.run(now);
            let changed = |bit: &usize| self.ready_count(*bit).load(SeqCst) != watch.0[*bit];
            let changed = (0..BITS).filter(changed).fold(turn.ready, |bits, bit| bits | 1 << bit);
            (Some(changed & bits).filter(|found| *found != 0), turn)
        })?;
        let found = found.unwrap_or(0);
        // What becomes ready from here on is told of by the next call; what was before is seen by who looks now.
        for bit in (0..BITS).filter(|bit| found >> bit & 1 != 0) {
            watch.0[bit] = self.ready_count(bit).load(SeqCst);
        }
        Ok(found)
    }

    /// Repeats a call until it has a result, at most for `timeout`. `bit` is the number of the count that changes
    /// when the call may have one.
    fn wait<T>(
        &self,
        bit: usize,
        timeout: Option<Duration>,
        mut call: impl FnMut(&mut Locked<'_>, u64) -> (Option<T>, Turn),
    ) -> Result<Option<T>, LockError> {
        let until = timeout.map_or(u64::MAX, |time| self.now().saturating_add(time.as_nanos() as u64));
        let mut has_waited = false;
        let result = loop {
            let mut locked = match self.lock() {
                Ok(locked) => locked,
                Err(error) => break Err(error),
            };
            // Read before the call, so that a connection that becomes ready after the call changes the count.
            let count = self.ready_count(bit).load(SeqCst);
            let now = self.now();
            let (result, turn) = call(&mut locked, now);
            if result.is_some() || now >= until {
                drop(locked);
                self.finish(turn);
                break Ok(result);
            }
            has_waited = true;
            let Some(lead) = self.image.lead.take_over() else {
                drop(locked);
                self.finish(turn);
                self.follow(bit, count, until);
                continue;
            };
            let planned = self.sleep_deadline(&turn, until, now);
            self.leader_deadline().store(planned, SeqCst);
            self.long_word(LEADER_BITS).store(if bit == ANY { u64::MAX } else { 1 << bit }, SeqCst);
            let may_sleep = locked.arm(now) && self.ready_count(bit).load(SeqCst) == count;
            drop(locked);
            self.notify(&turn);
            if may_sleep {
                self.sleep(planned, false);
            }
            self.long_word(LEADER_BITS).store(0, SeqCst);
            self.leader_deadline().store(0, SeqCst);
            drop(lead);
        };
        // This thread led, or was woken to lead. If the lead is not free, the thread that has it passes it on.
        if has_waited && let Some(lead) = self.image.lead.take_over() {
            drop(lead);
            self.pass_lead();
        }
        result
    }

    /// When the thread that leads wakes up at the latest.
    fn sleep_deadline(&self, turn: &Turn, until: u64, now: u64) -> u64 {
        turn.deadline.map_or(u64::MAX, |due| due.min(now + MAX_LEADER_SLEEP)).min(until)
    }

    /// Sleeps until a connection with this bit changed, or until the lead is free.
    fn follow(&self, bit: usize, count: u32, until: u64) {
        if self.word(ATTENDANT_LEADS).swap(0, SeqCst) == 1 {
            // The attendant leaves the lead to this thread.
            self.notifiers.attendant.signal();
        }
        self.sleepers(bit).fetch_add(1, SeqCst);
        // Whoever leaves the lead from here on wakes this thread.
        if self.image.lead.take_over().is_none() {
            let most = (until != u64::MAX).then(|| Duration::from_nanos(until.saturating_sub(self.now())));
            wait_word(self.ready_count(bit), count, most);
        }
        self.sleepers(bit).fetch_sub(1, SeqCst);
    }

    /// Sleeps until the port or the agent notifies, or, for the attendant, until it is called. Returns whether it was.
    fn sleep(&self, until: u64, is_attendant: bool) -> bool {
        let watch = |notifier: &EventFd| PollFd {
            descriptor: notifier.as_fd().as_raw_fd(),
            readable: true,
            writable: false,
        };
        let mut notifiers = [watch(&self.notifiers.call), watch(&self.notifiers.attendant)];
        let notifiers = &mut notifiers[..if is_attendant { 2 } else { 1 }];
        poll(notifiers, Duration::from_nanos(until.saturating_sub(self.now())));
        if notifiers[0].readable {
            self.notifiers.call.clear();
        }
        notifiers.get(1).is_some_and(|notifier| notifier.readable) && self.notifiers.attendant.clear()
    }

    /// Wakes a thread that waits to take the lead, which was left, or else the attendant, which takes it in a while.
    fn pass_lead(&self) {
        for bit in (0..=ANY).filter(|bit| self.sleepers(*bit).load(SeqCst) > 0) {
            self.ready_count(bit).fetch_add(1, SeqCst);
            if wake_word(self.ready_count(bit), 1) > 0 {
                return;
            }
        }
        // A thread that was killed is still counted as one that follows: so the attendant is called too.
        if self.followers(ANY).load(SeqCst) > 0 {
            self.notifiers.followers.signal();
        }
        if self.word(ATTENDANT_SLEEPS).swap(0, SeqCst) == 1 {
            self.notifiers.attendant.signal();
        }
    }

    /// Handles the end of a process that shared the stack: it may have led, or had its turn.
    ///
    /// # Errors
    /// If the stack is lost.
    pub fn handle_process_end(&self) -> Result<(), LockError> {
        drop(self.lock()?);
        self.pass_lead();
        Ok(())
    }

    /// Ends the stack for all processes: its agent has ended.
    pub fn withdraw(&self) {
        self.word(WITHDRAWN).store(1, SeqCst);
        // Whoever sees it tells those who sleep.
        drop(self.lock());
    }

    /// Leads while nobody else does, until `stops`; whoever sets it [calls](Member::call_attendant) the attendant then.
    /// In one thread of all processes.
    ///
    /// # Errors
    /// If the stack is lost.
    pub fn attend(&self, stops: &AtomicBool) -> Result<(), LockError> {
        while !stops.load(SeqCst) {
            let Some(lead) = self.image.lead.take_over() else {
                self.word(ATTENDANT_SLEEPS).store(1, SeqCst);
                // Whoever leaves the lead from here on calls.
                if let Some(lead) = self.image.lead.take_over() {
                    self.word(ATTENDANT_SLEEPS).store(0, SeqCst);
                    drop(lead);
                    self.pass_lead();
                    continue;
                }
                self.wait_for_call(u64::MAX);
                self.yield_lead()?;
                continue;
            };
            let mut locked = self.lock()?;
            let now = self.now();
            let turn = locked.run(now);
            let planned = self.sleep_deadline(&turn, u64::MAX, now);
            self.leader_deadline().store(planned, SeqCst);
            let may_sleep = locked.arm(now);
            self.word(ATTENDANT_LEADS).store(1, SeqCst);
            drop(locked);
            self.notify(&turn);
            let is_called = may_sleep && self.sleep(planned, true);
            let leaves = self.word(ATTENDANT_LEADS).swap(0, SeqCst) == 0 || is_called;
            self.leader_deadline().store(0, SeqCst);
            drop(lead);
            self.pass_lead();
            if leaves {
                self.yield_lead()?;
            }
        }
        Ok(())
    }

    /// Calls the attendant.
    pub fn call_attendant(&self) {
        self.notifiers.attendant.signal();
    }

    /// Sleeps until the attendant is called.
    fn wait_for_call(&self, until: u64) {
        let descriptor = self.notifiers.attendant.as_fd().as_raw_fd();
        let most = Duration::from_nanos(until.saturating_sub(self.now()));
        poll(&mut [PollFd { descriptor, readable: true, writable: false }], most);
        self.notifiers.attendant.clear();
    }

    /// Lets others lead, as the attendant, and handles timers that are due meanwhile.
    fn yield_lead(&self) -> Result<(), LockError> {
        let turn = self.turn(|locked, now| {
            let turn = locked.run(now);
            (turn, turn)
        })?;
        let until = (self.now() + ATTENDANT_DELAY).min(turn.deadline.unwrap_or(u64::MAX));
        self.wait_for_call(until);
        self.turn(|locked, now| ((), locked.run(now)))
    }
}
