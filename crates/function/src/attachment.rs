//! Attachments to ring ports. Elements of a process that name the same port share one attachment, and so do
//! successive configurations.

use crate::handed;
use ringway_click::{Context, Failed, Timer};
use ringway_client::{Coming, Ring, RingError, RingKind, RingOptions};
use ringway_host::{EventFd, PollFd, poll};
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Delays in nanoseconds before a port is retried: the first one, and the largest.
const PAUSES: (u64, u64) = (10_000_000, 1_000_000_000);
/// Time limit for receiving a ring once the reply has begun.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    static ALL: RefCell<BTreeMap<String, Weak<RefCell<Attachment>>>> = RefCell::default();
}

enum State {
    Away,
    Requested(Coming),
    Up(Ring),
}

/// A port's ring, or the request for one.
struct Attachment {
    port: String,
    options: RingOptions,
    state: State,
    /// A pipe's end that waits for a new other end.
    kept: Option<Coming>,
    /// Counts state changes.
    epoch: u64,
    /// Time of the next attempt, and the last delay.
    next: u64,
    pause: u64,
    /// Time at which the ring was received.
    since: u64,
    losses: u64,
    reason: String,
    /// Signals each plug that the state has changed.
    changed: Vec<Weak<EventFd>>,
}

impl Attachment {
    fn to(port: &str) -> Rc<RefCell<Attachment>> {
        ALL.with_borrow_mut(|all| {
            all.retain(|_, attachment| attachment.strong_count() > 0);
            if let Some(attachment) = all.get(port).and_then(Weak::upgrade) {
                return attachment;
            }
            let attachment = Rc::new(RefCell::new(Attachment {
                port: port.into(),
                options: RingOptions::default(),
                state: State::Away,
                kept: None,
                epoch: 1,
                next: 0,
                pause: 0,
                since: 0,
                losses: 0,
                reason: "not asked for yet".into(),
                changed: Vec::new(),
            }));
            all.insert(port.into(), Rc::downgrade(&attachment));
            attachment
        })
    }

    fn become_as(&mut self, state: State) -> State {
        self.epoch += 1;
        self.changed.retain(|plug| plug.upgrade().inspect(|changed| changed.signal()).is_some());
        std::mem::replace(&mut self.state, state)
    }

    /// Advances the state as far as possible without blocking.
    fn tend(&mut self, now: u64) {
        if matches!(self.state, State::Away) && now >= self.next {
            let options = self.kept.take().map_or_else(|| self.ask(), Ok);
            match options {
                Ok(coming) => drop(self.become_as(State::Requested(coming))),
                Err(error) => self.lose(&error, now),
            }
        }
        if !matches!(&self.state, State::Requested(coming) if is_readable(coming.as_fd())) {
            return;
        }
        if let State::Requested(coming) = std::mem::replace(&mut self.state, State::Away) {
            match coming.ring(Some(PATIENCE)) {
                Ok(ring) => {
                    self.since = now;
                    self.become_as(State::Up(ring));
                }
                Err(error) => self.lose(&error, now),
            }
        }
    }

    fn ask(&self) -> Result<Coming, RingError> {
        Coming::over(handed::connect(&self.port).map_err(RingError::System)?, self.options)
    }

    /// The ring was lost, or could not be received.
    fn lose(&mut self, error: &RingError, now: u64) {
        let was_up = matches!(self.state, State::Up(_));
        self.losses += u64::from(was_up);
        // Attack: a port that closes each ring as soon as it is received.
        let lasted = was_up && now.saturating_sub(self.since) > PAUSES.1;
        self.pause = if lasted { PAUSES.0 } else { (self.pause * 2).clamp(PAUSES.0, PAUSES.1) };
        self.next = now.saturating_add(self.pause);
        self.reason = error.to_string();
        // A pipe's next program may already be connected to this end, which must not leave.
        self.kept = match (self.become_as(State::Away), error) {
            (State::Up(ring), RingError::Closed) if ring.kind() == RingKind::Pipe => Some(ring.another()),
            _ => None,
        };
    }
}

fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let descriptor = socket.as_raw_fd();
    let mut poll_fds = [PollFd { descriptor, readable: true, writable: false }];
    poll(&mut poll_fds, Duration::ZERO);
    poll_fds[0].readable
}

/// An element's part in an attachment.
#[derive(Default)]
pub(crate) struct Plug {
    port: Option<Rc<RefCell<Attachment>>>,
    timer: Option<Timer>,
    /// Signalled by other plugs of the port that cause, or detect, a state change.
    changed: Option<Rc<EventFd>>,
    /// The epoch of the descriptors.
    epoch: u64,
    watched: Vec<i32>,
}

impl Plug {
    /// Call in the element's `configure`, with its argument.
    pub(crate) fn configure(&mut self, port: &str) -> Result<(), String> {
        if let Some(known) = handed::ports()
            && !known.iter().any(|own| own == port)
        {
            let list = known.join(", ");
            return Err(format!("PORT: this function has no port '{port}'; it has {list}"));
        }
        if port.is_empty() {
            return Err("PORT: empty".into());
        }
        self.port = Some(Attachment::to(port));
        Ok(())
    }

    /// Call in its `shares`.
    pub(crate) fn shares(&self) -> Option<String> {
        self.port.as_ref().map(|port| format!("port {}", port.borrow().port))
    }

    /// Call in its `initialize`.
    pub(crate) fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if let Some(port) = &self.port {
            let changed = Rc::new(EventFd::new().map_err(|error| cx.error(error.to_string()))?);
            cx.select(changed.as_fd().as_raw_fd(), true, false);
            port.borrow_mut().changed.push(Rc::downgrade(&changed));
            self.changed = Some(changed);
        }
        let timer = cx.new_timer();
        // Deferred, since another configuration may still be running.
        cx.set_timer_after(timer, 0);
        self.timer = Some(timer);
        Ok(())
    }

    /// Call in `initialize` with the later value of [`Plug::want_offloads`], so that the first request to the
    /// port already has it.
    pub(crate) fn prefer_offloads(&mut self, offloads: bool) {
        let Some(port) = &self.port else { return };
        let mut port = port.borrow_mut();
        if matches!(port.state, State::Away) {
            port.options.offloads = offloads;
        }
    }

    /// Sets whether the ring accepts frames with checksums to fill and segmentation to do. Requests another ring if
    /// that changes.
    pub(crate) fn want_offloads(&mut self, offloads: bool, cx: &mut Context<'_>) {
        let Some(port) = &self.port else { return };
        let mut port = port.borrow_mut();
        if port.options.offloads != offloads {
            port.options.offloads = offloads;
            port.kept = None;
            if !matches!(port.state, State::Away) {
                port.become_as(State::Away);
            }
            port.next = cx.steady();
        }
    }

    /// The ring, if there is one. If not, the element's timer or a descriptor signals when to try again.
    pub(crate) fn ring(&mut self, cx: &mut Context<'_>) -> Option<RefMut<'_, Ring>> {
        let up = {
            let port = self.port.as_ref()?.borrow();
            port.epoch == self.epoch && matches!(port.state, State::Up(_))
        };
        if !up && !self.reach(cx) {
            return None;
        }
        let port = self.port.as_ref()?.borrow_mut();
        RefMut::filter_map(port, |port| match &mut port.state {
            State::Up(ring) => Some(ring),
            _ => None,
        })
        .ok()
    }

    #[cold]
    fn reach(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(shared) = &self.port else { return false };
        let mut port = shared.borrow_mut();
        port.tend(cx.steady());
        if port.epoch != self.epoch {
            for descriptor in self.watched.drain(..) {
                cx.select(descriptor, false, false);
            }
            match &port.state {
                State::Away => {}
                State::Requested(coming) => self.watched.push(coming.as_fd().as_raw_fd()),
                // The socket hangs up when the ring is revoked.
                State::Up(ring) => {
                    self.watched.extend([ring.as_fd(), ring.socket()].map(|fd| fd.as_raw_fd()))
                }
            }
            for descriptor in &self.watched {
                cx.select(*descriptor, true, false);
            }
            self.epoch = port.epoch;
        }
        if let (State::Away, Some(timer)) = (&port.state, self.timer) {
            cx.set_timer(timer, port.next);
        }
        matches!(port.state, State::Up(_))
    }

    /// Handles a ready descriptor: clears the notification; if the ring's socket hung up, the ring is lost.
    pub(crate) fn selected(&mut self, descriptor: i32, cx: &mut Context<'_>) {
        if let Some(changed) =
            self.changed.as_ref().filter(|changed| changed.as_fd().as_raw_fd() == descriptor)
        {
            changed.clear();
            return;
        }
        let Some(port) = &self.port else { return };
        let mut port = port.borrow_mut();
        let State::Up(ring) = &mut port.state else { return };
        if ring.as_fd().as_raw_fd() == descriptor {
            // Another element may have read it.
            let _ = rustix::io::read(ring.as_fd(), &mut [0; 8]);
        } else if is_readable(ring.socket()) {
            // The signal may be old: every element is signalled when the ring arrives.
            port.lose(&RingError::Closed, cx.steady());
        }
    }

    /// The ring can't be used any more.
    #[cold]
    pub(crate) fn lose(&mut self, error: &RingError, cx: &mut Context<'_>) {
        if let Some(port) = &self.port {
            port.borrow_mut().lose(error, cx.steady());
        }
        self.reach(cx);
    }

    /// The value of the handler: `up`, `options`, or why the port is away.
    pub(crate) fn state(&self) -> String {
        let Some(port) = &self.port else { return String::new() };
        let port = port.borrow();
        match &port.state {
            State::Up(_) => "up".into(),
            State::Requested(_) => "requested".into(),
            State::Away => format!("away: {}", port.reason),
        }
    }

    /// Number of lost rings.
    pub(crate) fn losses(&self) -> u64 {
        self.port.as_ref().map_or(0, |port| port.borrow().losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_attachment_wakes_all_users() {
        let port = Attachment::to("a socket that nobody listens on");
        let plugs = [(); 2].map(|()| Rc::new(EventFd::new().unwrap()));
        let mut port = port.borrow_mut();
        port.changed.extend(plugs.iter().map(Rc::downgrade));
        port.tend(0);
        assert!(plugs.iter().all(|changed| changed.clear()), "it is away with another reason");
        assert!(!port.reason.is_empty() && port.next == PAUSES.0 && port.losses == 0);
        port.tend(PAUSES.0 - 1);
        assert!(!plugs.iter().any(|changed| changed.clear()), "not tried yet");
        let [kept, gone] = plugs;
        drop(gone);
        port.tend(PAUSES.0);
        assert!(kept.clear() && port.changed.len() == 1, "a plug that is gone is forgotten");
    }
}
