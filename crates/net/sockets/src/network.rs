//! A host that threads and tasks share.

use crate::host::events;
use crate::waiting::{Interest, Waiting};
use crate::{Config, Device, DeviceError, Host, query};
use ringway_host::{Epoll, EventFd};
use ringway_netstack::{SocketError, SocketId, Stack};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// How long the stack's thread leaves the device to callers that come again and again.
const CALLERS_POLL: u64 = 500_000;
/// Bytes in that time, of which callers that wait for each of their frames receive less. A stream of more fills the
/// ring while its reader works, unless the thread receives meanwhile.
const FEW: u64 = 64 << 10;
/// The key of the wakeup in the epoll instance; the other keys are the device's descriptors.
const WAKEUP: u32 = 63;

/// A host shared by threads and tasks: the sockets of this crate are on one. Clones are the same host.
///
/// A call does its work on the caller's thread: it sends at once, and receives if it would block otherwise.
/// One blocked caller at a time sleeps on the device itself. While nobody does, a thread of the network
/// handles frames and deadlines; between calls that soon follow each other it leaves them to the next call, for at
/// most half a millisecond. It ends with the last clone and the last socket; bytes that were not sent by then are lost,
/// see [`Network::drain`].
#[derive(Clone, Debug)]
pub struct Network(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread of the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// The thread handles frames, or is about to.
    Working,
    /// The thread sleeps until a blocked caller, which sleeps on the device, returns.
    Resting,
    /// The thread sleeps on the device until `until`; if `room`, it is woken when the device has room.
    Sleeping { until: u64, room: bool },
    /// The thread leaves the device to callers until `until`.
    Pausing { until: u64 },
}

/// Wakes the thread that sleeps on the device.
#[derive(Debug)]
struct Wakeup {
    event: EventFd,
    #[cfg(test)]
    signals: std::sync::atomic::AtomicU64,
}

impl Wakeup {
    fn new() -> Result<Wakeup, DeviceError> {
        let event = EventFd::new()?;
        Ok(Wakeup {
            event,
            #[cfg(test)]
            signals: Default::default(),
        })
    }

    fn signal(&self) {
        #[cfg(test)]
        self.signals.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.event.signal();
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.signal();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.signal();
    }
}

/// Wakes a blocked caller that does not sleep on the device.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static UNPARK: Waker = Arc::new(Unpark(std::thread::current())).into();
}

#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    epoll: Arc<Epoll>,
    wakeup: Arc<Wakeup>,
    /// The wakeup, as the waker of the caller that sleeps on the device.
    waker: Waker,
    /// The thread is needed, which rests or pauses.
    needed: Condvar,
}

#[derive(Debug)]
struct Core {
    host: Host,
    waiting: Waiting,
    failed: Option<Arc<DeviceError>>,
    /// Until when a blocked caller sleeps on the device.
    leader: Option<u64>,
    thread: Activity,
    /// Calls that may be followed by others.
    calls: u64,
    /// The wakeup was signaled, and may have woken another thread than the one that it was for.
    signaled: bool,
    stop: bool,
    #[cfg(test)]
    sleeps: Sleeps,
}

/// How often threads slept and were woken.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sleeps {
    /// Callers, on the device.
    pub leading: u64,
    /// Callers, until another thread wakes them.
    pub following: u64,
    /// The thread of the network, until a frame, a deadline or a caller wakes it; not while it leaves the device to
    /// callers.
    pub thread: u64,
    /// Wakeups of threads that sleep on the device.
    pub signals: u64,
}

type Guard<'a> = MutexGuard<'a, Core>;

impl Network {
    /// A network with a thread of its own.
    ///
    /// # Errors
    /// If the operating system has no descriptors, random numbers or threads.
    pub fn new(device: impl Device + 'static, config: Config) -> Result<Network, DeviceError> {
        Network::start(Host::new(device, config)?)
    }

    /// As [`Network::new`], from a host.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn start(host: Host) -> Result<Network, DeviceError> {
        let (epoll, wakeup) = (host.epoll().clone(), Arc::new(Wakeup::new()?));
        // Each signal wakes one thread, and is never read.
        epoll.add_edge(wakeup.event.as_fd(), WAKEUP.into())?;
        let core = Core {
            host,
            waiting: Waiting::default(),
            failed: None,
            leader: None,
            thread: Activity::Working,
            calls: 0,
            signaled: false,
            stop: false,
            #[cfg(test)]
            sleeps: Sleeps::default(),
        };
        let waker = wakeup.clone().into();
        let shared =
            Arc::new(Shared { core: Mutex::new(core), epoll, wakeup, waker, needed: Condvar::new() });
        let theirs = shared.clone();
        let thread = ringway_host::spawn("ringway-sockets", None, move || theirs.run())?;
        Ok(Network(Arc::new(Handle { shared, thread: Some(thread) })))
    }

    /// Calls the stack, for what the sockets don't offer: statistics, routes.
    pub fn with<R>(&self, call: impl FnOnce(&mut Stack) -> R) -> R {
        let shared = &self.0.shared;
        let mut core = shared.lock();
        let result = call(core.host.stack());
        shared.leave(core);
        result
    }

    /// Offers tables of the stack, its sockets, counters, settings, to other programs of this user, such as `ringway
    /// stack`, by a UNIX socket at `path`, until the server is dropped or the network ends.
    ///
    /// # Errors
    /// The socket can't be made, or another program has it.
    pub fn offer(&self, path: &Path, about: query::About) -> io::Result<query::Server> {
        let handle = Arc::downgrade(&self.0);
        query::Server::start(path, about, move |request| {
            let network = Network(handle.upgrade()?);
            Some(network.with(|stack| query::answer(stack, &request)))
        })
    }

    /// Why the device is away, until it comes back by itself; `None` if it can be used. See [`Host::away`].
    pub fn away(&self) -> Option<String> {
        let core = self.0.shared.lock();
        let away = core.host.away().map(String::from);
        self.0.shared.leave(core);
        away
    }

    /// Waits until everything that was sent has been acknowledged, also on closed sockets.
    ///
    /// # Errors
    /// After `timeout`, or if the device fails.
    pub fn drain(&self, timeout: Duration) -> io::Result<()> {
        self.block(None, Interest::Progress, Some(timeout), |host| match host.stack().is_drained() {
            true => Ok(()),
            false => Err(SocketError::WouldBlock),
        })
    }

    /// Tries once. This, [`Network::block`], [`Network::poll`] and [`Network::close`] are for interfaces of sockets
    /// that this crate does not have.
    ///
    /// # Errors
    /// Those of the call, as std reports them; [`io::ErrorKind::NetworkDown`] if the device failed.
    pub fn attempt<T>(&self, mut call: impl FnMut(&mut Host) -> Result<T, SocketError>) -> io::Result<T> {
        let shared = &self.0.shared;
        let mut core = shared.lock();
        let result = core.attempt(&mut call);
        shared.leave(core);
        result?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Tries until the call does not return [`SocketError::WouldBlock`].
    ///
    /// # Errors
    /// As [`Network::attempt`]; [`io::ErrorKind::TimedOut`] after `timeout`.
    pub fn block<T>(
        &self,
        socket: Option<SocketId>,
        interest: Interest,
        timeout: Option<Duration>,
        mut call: impl FnMut(&mut Host) -> Result<T, SocketError>,
    ) -> io::Result<T> {
        let shared = &*self.0.shared;
        let mut core = shared.lock();
        let begin = core.host.now();
        let end = timeout.map_or(u64::MAX, |timeout| begin.saturating_add(timeout.as_nanos() as u64));
        let spun = begin + core.host.spin.as_nanos() as u64;
        let result = loop {
            match core.attempt(&mut call) {
                Ok(None) => {}
                Ok(Some(value)) => break Ok(value),
                Err(error) => break Err(error),
            }
            let now = core.host.now();
            if now >= end {
                break Err(io::ErrorKind::TimedOut.into());
            }
            if now < spun {
                core = shared.pause(core);
                std::hint::spin_loop();
            } else if core.leader.is_some() {
                core = shared.follow(core, socket, interest, end);
            } else {
                core = shared.lead(core, socket, interest, end);
            }
        };
        shared.leave(core);
        result
    }

    /// As [`Network::block`], for a task; one task for each socket and interest.
    pub fn poll<T>(
        &self,
        cx: &Context<'_>,
        socket: SocketId,
        interest: Interest,
        mut call: impl FnMut(&mut Host) -> Result<T, SocketError>,
    ) -> Poll<io::Result<T>> {
        let shared = &self.0.shared;
        let mut core = shared.lock();
        let result = core.attempt(&mut call);
        if matches!(result, Ok(None)) {
            core.waiting.set_task(socket, interest, cx.waker());
        }
        shared.leave(core);
        match result {
            Ok(None) => Poll::Pending,
            Ok(Some(value)) => Poll::Ready(Ok(value)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// How often threads have slept.
    #[cfg(test)]
    pub(crate) fn sleeps(&self) -> Sleeps {
        let shared = &self.0.shared;
        let signals = shared.wakeup.signals.load(std::sync::atomic::Ordering::Relaxed);
        Sleeps { signals, ..shared.lock().sleeps }
    }

    /// Closes a socket.
    pub fn close(&self, socket: SocketId) {
        let shared = &self.0.shared;
        let mut core = shared.lock();
        core.waiting.forget(socket);
        let now = core.host.now();
        // Closed already if the device failed; a failure now shows at the next call.
        let _ = core.host.stack().close(now, socket);
        let _ = core.attempt(&mut |_| Ok(()));
        shared.leave(core);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        (core.stop, core.thread) = (true, Activity::Working);
        drop(core);
        self.shared.needed.notify_one();
        self.shared.wakeup.signal();
        let Some(thread) = self.thread.take() else { return };
        // A task's last socket may be dropped when that thread wakes the task.
        if thread.thread().id() != std::thread::current().id() {
            // A panic there was printed.
            let _ = thread.join();
        }
    }
}

impl Core {
    fn fail(&mut self, error: DeviceError) -> Arc<DeviceError> {
        let error = Arc::new(error);
        self.failed = Some(error.clone());
        self.waiting.wake_all();
        error
    }

    /// Receives if it should, handles deadlines and sends. Returns whether frames were received.
    fn turn(&mut self, receive: bool) -> Result<bool, Arc<DeviceError>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let busy = self.host.turn(receive).map_err(|error| self.fail(error))?;
        self.collect();
        Ok(busy)
    }

    /// Collects the wakers of sockets that are ready.
    fn collect(&mut self) {
        while let Some((socket, ready)) = self.host.stack().next_event() {
            self.waiting.wake(socket, ready);
        }
        if !self.host.is_full() {
            self.waiting.wake_progress();
        }
    }

    /// `None`: the call would block.
    fn attempt<T>(
        &mut self,
        call: &mut impl FnMut(&mut Host) -> Result<T, SocketError>,
    ) -> io::Result<Option<T>> {
        let down = |error| io::Error::new(io::ErrorKind::NetworkDown, error);
        for again in [false, true] {
            if again {
                // Not again if the first call has received.
                let receive = self.host.permit_read(false);
                self.turn(receive).map_err(down)?;
            } else if let Some(error) = &self.failed {
                return Err(down(error.clone()));
            } else {
                self.host.permit_read(true);
            }
            match call(&mut self.host) {
                Err(SocketError::WouldBlock) => {}
                Err(error) => return Err(crate::error::io(error)),
                Ok(value) => {
                    let now = self.host.now();
                    self.host.send(now).map_err(|error| down(self.fail(error)))?;
                    return Ok(Some(value));
                }
            }
        }
        Ok(None)
    }

    /// Handles what the epoll instance reported.
    fn notified(&mut self, events: u64) {
        self.signaled |= events >> WAKEUP != 0;
        if let Err(error) = self.host.notified(events & !(1 << WAKEUP)) {
            self.fail(error);
        }
    }

    /// Whether the thread may leave the device to callers, after one came while `bytes` were received: nobody waits who
    /// does not receive, and what arrives while they work has room in the device.
    fn is_left_to_callers(&self, bytes: u64) -> bool {
        let is_alone = self.waiting.count() == usize::from(self.leader.is_some());
        is_alone && !self.host.is_full() && (self.leader.is_none() || bytes < FEW)
    }

    /// Until when the device needs no polling, since it notifies. `None`: there is work.
    fn arm(&mut self) -> Option<u64> {
        let until = self.host.arm_until();
        until.unwrap_or_else(|error| {
            self.fail(error);
            None
        })
    }
}

impl Shared {
    fn lock(&self) -> Guard<'_> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks, and wakes the threads and tasks whose sockets are ready.
    fn release(mut core: Guard<'_>) {
        let woken = core.waiting.take_woken();
        drop(core);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Unlocks and locks again, so that another thread can lock.
    fn pause<'a>(&'a self, core: Guard<'a>) -> Guard<'a> {
        Shared::release(core);
        self.lock()
    }

    /// Sleeps on the device.
    fn lead<'a>(
        &'a self,
        mut core: Guard<'a>,
        socket: Option<SocketId>,
        interest: Interest,
        end: u64,
    ) -> Guard<'a> {
        let now = core.host.now();
        let Some(until) = core.arm() else { return core };
        let until = until.min(end);
        core.leader = Some(until);
        core.waiting.add(socket, interest, &self.waker);
        Shared::release(core);
        let mut core = self.wait(now, until);
        core.leader = None;
        #[cfg(test)]
        {
            core.sleeps.leading += 1;
        }
        core.waiting.remove(socket, interest, &self.waker);
        core
    }

    /// Sleeps until another thread wakes this one.
    fn follow<'a>(
        &'a self,
        mut core: Guard<'a>,
        socket: Option<SocketId>,
        interest: Interest,
        end: u64,
    ) -> Guard<'a> {
        UNPARK.with(|waker| {
            core.waiting.add(socket, interest, waker);
            let now = core.host.now();
            // This caller may have received the frame of which the leader wanted to be notified.
            let wake = core.arm().is_none();
            Shared::release(core);
            if wake {
                self.wakeup.signal();
            }
            match remaining(end, now) {
                u64::MAX => std::thread::park(),
                left => std::thread::park_timeout(Duration::from_nanos(left)),
            }
            let mut core = self.lock();
            #[cfg(test)]
            {
                core.sleeps.following += 1;
            }
            core.waiting.remove(socket, interest, waker);
            core
        })
    }

    /// Wakes the thread, which rests or pauses.
    fn need(&self, core: &mut Core) {
        (core.thread, core.signaled) = (Activity::Working, false);
        #[cfg(test)]
        {
            core.sleeps.thread += 1;
        }
        self.needed.notify_one();
    }

    /// Ends a call: another thread handles frames and deadlines from now on.
    fn leave(&self, mut core: Guard<'_>) {
        core.collect();
        let (due, full) = (core.host.deadline().unwrap_or(u64::MAX), core.host.is_full());
        let wake = match (core.leader, core.thread) {
            (Some(until), _) => due < until || core.arm().is_none(),
            // A leader took a wakeup that was the thread's.
            (None, Activity::Working) => std::mem::take(&mut core.signaled),
            (None, Activity::Resting) => {
                core.calls += 1;
                self.need(&mut core);
                false
            }
            (None, Activity::Pausing { until }) => {
                core.calls += 1;
                if due < until || full || core.waiting.count() > 0 {
                    self.need(&mut core);
                }
                false
            }
            (None, Activity::Sleeping { until, room }) => {
                (core.calls, core.signaled) = (core.calls + 1, false);
                let wake = due < until || full && !room || core.arm().is_none();
                if wake {
                    core.thread = Activity::Working;
                }
                wake
            }
        };
        Shared::release(core);
        if wake {
            self.wakeup.signal();
        }
    }

    /// The thread of the network.
    fn run(&self) {
        let (mut calls, mut received, mut signaled) = (0, 0, false);
        let mut core = self.lock();
        while !core.stop {
            core.thread = Activity::Working;
            signaled |= std::mem::take(&mut core.signaled);
            match core.turn(true) {
                Ok(false) if !core.waiting.has_woken() => {}
                Ok(_) => {
                    core = self.pause(core);
                    continue;
                }
                Err(_) => break,
            }
            let is_active = std::mem::replace(&mut calls, core.calls) != core.calls;
            let count = core.host.received() - std::mem::replace(&mut received, core.host.received());
            // A wakeup that was the leader's, while this thread slept on the device too.
            let is_leaders = std::mem::take(&mut signaled) && core.leader.is_some();
            if is_active && core.is_left_to_callers(count) {
                core = self.leave_to_callers(core, is_leaders);
                continue;
            }
            let room = core.host.is_full();
            let Some(until) = core.arm() else {
                signaled = is_leaders;
                core = self.pause(core);
                continue;
            };
            if core.leader.is_some() {
                // The leader has the earliest deadline, and a new one wakes it.
                core.thread = Activity::Resting;
                if is_leaders {
                    self.wakeup.signal();
                }
                let needed = self.needed.wait_while(core, |core| core.thread == Activity::Resting);
                core = needed.unwrap_or_else(PoisonError::into_inner);
            } else {
                core.thread = Activity::Sleeping { until, room };
                let now = core.host.now();
                drop(core);
                core = self.wait(now, until);
                #[cfg(test)]
                {
                    core.sleeps.thread += 1;
                }
            }
        }
        core.thread = Activity::Working;
        Shared::release(core);
    }

    /// Sleeps while callers receive for themselves, or until one needs this thread.
    fn leave_to_callers<'a>(&self, mut core: Guard<'a>, is_leaders: bool) -> Guard<'a> {
        if core.leader.is_none() {
            core.host.disarm();
        } else if is_leaders {
            self.wakeup.signal();
        }
        let now = core.host.now();
        let until = core.host.deadline().unwrap_or(u64::MAX).min(now + CALLERS_POLL);
        core.thread = Activity::Pausing { until };
        let left = Duration::from_nanos(until.saturating_sub(now));
        let pauses = |core: &mut Core| matches!(core.thread, Activity::Pausing { .. });
        let needed = self.needed.wait_timeout_while(core, left, pauses);
        needed.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for events of the device until `until`, and handles them.
    fn wait(&self, now: u64, until: u64) -> Guard<'_> {
        let events = if until > now { events(&self.epoll, remaining(until, now)) } else { 0 };
        let mut core = self.lock();
        core.notified(events);
        core
    }
}

/// The time left; the largest number means no limit.
fn remaining(until: u64, now: u64) -> u64 {
    if until == u64::MAX { u64::MAX } else { until.saturating_sub(now) }
}
