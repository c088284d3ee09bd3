//! Attachments to ring ports. Elements of a process that name the same port share one attachment, and so do
//! successive configurations.

use crate::inherited;
use ringway_click::{Context, Failed, Timer};
use ringway_elements::platform::{self, PortRing, Pushed};
use ringway_host::EventFd;
use ringway_ring_client::attachment::{Attachment, State};
use ringway_ring_client::{Received, Ring, RingError, Wait};
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

thread_local! {
    static ALL: RefCell<BTreeMap<String, Weak<RefCell<Shared>>>> = RefCell::default();
}

/// An attachment, and the accesses that share it.
struct Shared {
    port: String,
    attachment: Attachment,
    /// Signals each access that the state has changed.
    changed: Vec<Weak<EventFd>>,
    /// Since when there has been no ring, and whether that was reported.
    absence: Option<(u64, bool)>,
}

/// Time without a ring after which a program says that it waits, in nanoseconds.
const UNANNOUNCED: u64 = 1_000_000_000;

/// How long frames may stay in a ring that is not used any more: they are lost with it.
const LINGER: Duration = Duration::from_millis(500);

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(ring) = self.attachment.ring() {
            let all = Wait { rx: 0, tx: ring.tx.slots() };
            // Frames that the switch has not taken by then are lost, as they are if the port is gone.
            let _ = ring.wait(all, Some(LINGER));
        }
    }
}

impl Shared {
    fn to(port: &str) -> Rc<RefCell<Shared>> {
        ALL.with_borrow_mut(|all| {
            all.retain(|_, shared| shared.strong_count() > 0);
            if let Some(shared) = all.get(port).and_then(Weak::upgrade) {
                return shared;
            }
            let attachment = Attachment::default();
            let shared = Rc::new(RefCell::new(Shared {
                port: port.into(),
                attachment,
                changed: Vec::new(),
                absence: None,
            }));
            all.insert(port.into(), Rc::downgrade(&shared));
            shared
        })
    }

    /// Changes the attachment, and signals all accesses if its state is another one then.
    fn change(&mut self, change: impl FnOnce(&mut Attachment)) {
        let epoch = self.attachment.epoch();
        change(&mut self.attachment);
        if self.attachment.epoch() != epoch {
            self.changed.retain(|access| access.upgrade().inspect(|changed| changed.signal()).is_some());
        }
    }

    /// Says for what a program waits, once there has been no ring for a while. A function's ports are reported by its
    /// fabric. Returns when to call it again.
    fn told_absence(&mut self, is_up: bool, cx: &mut Context<'_>) -> Option<u64> {
        if is_up || inherited::is_set() {
            self.absence = None;
            return None;
        }
        let now = cx.steady();
        let (since, told) = self.absence.get_or_insert((now, false));
        let due = since.saturating_add(UNANNOUNCED);
        if *told || now < due {
            return (!*told).then_some(due);
        }
        *told = true;
        let (name, port) = (cx.declaration(), &self.port);
        match self.attachment.state() {
            State::Requested(_) => cx.chatter(format_args!(
                "{name}: waits for {port}: connected, but the port gives no ring; another program may use it"
            )),
            _ => cx.chatter(format_args!("{name}: waits for {port}: {}", self.attachment.reason())),
        }
        None
    }

    /// Advances the state as far as possible without blocking.
    fn advance(&mut self, now: u64) {
        let port = self.port.clone();
        self.change(|attachment| attachment.advance(now, || inherited::connect(&port)));
    }
}

/// An element's part in an attachment.
#[derive(Default)]
pub(crate) struct PortAccess {
    port: Option<Rc<RefCell<Shared>>>,
    timer: Option<Timer>,
    /// Signalled by other accesses of the port that cause, or detect, a state change.
    changed: Option<Rc<EventFd>>,
    /// The epoch of the descriptors.
    epoch: u64,
    watched: Vec<i32>,
}

impl PortAccess {
    #[cold]
    fn reach(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(shared) = &self.port else { return false };
        let mut port = shared.borrow_mut();
        port.advance(cx.steady());
        let attachment = &port.attachment;
        if attachment.epoch() != self.epoch {
            for descriptor in self.watched.drain(..) {
                cx.select(descriptor, false, false);
            }
            self.watched.extend(attachment.descriptors().iter().map(AsRawFd::as_raw_fd));
            for descriptor in &self.watched {
                cx.select(*descriptor, true, false);
            }
            self.epoch = attachment.epoch();
        }
        let is_up = matches!(attachment.state(), State::Up(_));
        let next = matches!(attachment.state(), State::Away).then(|| attachment.next());
        let told = port.told_absence(is_up, cx);
        if let (Some(next), Some(timer)) = (next.into_iter().chain(told).min(), self.timer) {
            cx.set_timer(timer, next);
        }
        is_up
    }
}

impl platform::PortAccess for PortAccess {
    type Error = RingError;
    type Ring<'a> = Borrowed<'a>;

    fn port_of_device(device: &str) -> Result<String, String> {
        inherited::port_of_device(device)
    }

    fn configure(&mut self, port: &str) -> Result<(), String> {
        inherited::check_port(port)?;
        if port.is_empty() {
            return Err("PORT: empty".into());
        }
        self.port = Some(Shared::to(port));
        Ok(())
    }

    fn shares(&self) -> Option<String> {
        self.port.as_ref().map(|port| format!("port {}", port.borrow().port))
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
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

    fn prefer_offloads(&mut self, offloads: bool) {
        if let Some(port) = &self.port {
            port.borrow_mut().attachment.prefer_offloads(offloads);
        }
    }

    fn want_offloads(&mut self, offloads: bool, cx: &mut Context<'_>) {
        if let Some(port) = &self.port {
            port.borrow_mut().change(|attachment| attachment.want_offloads(offloads, cx.steady()));
        }
    }

    fn ring(&mut self, cx: &mut Context<'_>) -> Option<Borrowed<'_>> {
        let up = {
            let attachment = &self.port.as_ref()?.borrow().attachment;
            attachment.epoch() == self.epoch && matches!(attachment.state(), State::Up(_))
        };
        if !up && !self.reach(cx) {
            return None;
        }
        let port = self.port.as_ref()?.borrow_mut();
        RefMut::filter_map(port, |port| port.attachment.ring()).ok().map(Borrowed)
    }

    fn are_all_up(&self) -> bool {
        let is_up = |shared: Rc<RefCell<Shared>>| {
            // The own attachment may be in use.
            shared.try_borrow().map_or(true, |shared| matches!(shared.attachment.state(), State::Up(_)))
        };
        ALL.with_borrow(|all| all.values().filter_map(Weak::upgrade).all(is_up))
    }

    fn selected(&mut self, descriptor: i32, cx: &mut Context<'_>) {
        if let Some(changed) =
            self.changed.as_ref().filter(|changed| changed.as_fd().as_raw_fd() == descriptor)
        {
            changed.clear();
            return;
        }
        let Some(port) = &self.port else { return };
        let mut port = port.borrow_mut();
        let Some(ring) = port.attachment.ring() else { return };
        if ring.as_fd().as_raw_fd() == descriptor {
            // Another element may have read it.
            let _ = rustix::io::read(ring.as_fd(), &mut [0; 8]);
        } else {
            // The signal may be old: every element is signalled when the ring arrives.
            port.change(|attachment| attachment.check_socket(cx.steady()));
        }
    }

    #[cold]
    fn lose(&mut self, error: &RingError, cx: &mut Context<'_>) {
        if let Some(port) = &self.port {
            port.borrow_mut().change(|attachment| attachment.lose(error, cx.steady()));
        }
        self.reach(cx);
    }

    fn state(&self) -> String {
        let Some(port) = &self.port else { return String::new() };
        let attachment = &port.borrow().attachment;
        match attachment.state() {
            State::Up(_) => "up".into(),
            State::Requested(_) => "requested".into(),
            State::Away => format!("away: {}", attachment.reason()),
        }
    }

    fn losses(&self) -> u64 {
        self.port.as_ref().map_or(0, |port| port.borrow().attachment.losses())
    }
}

/// The ring of an attachment, in use by an element.
pub(crate) struct Borrowed<'a>(RefMut<'a, Ring>);

impl PortRing for Borrowed<'_> {
    type Error = RingError;

    #[inline]
    fn frame_len(&mut self) -> Result<Option<usize>, RingError> {
        self.0.rx.frame_len()
    }

    #[inline]
    fn pop(&mut self, out: &mut [u8]) -> Result<Option<Received>, RingError> {
        self.0.rx.pop(out)
    }

    #[inline]
    fn push(&mut self, frame: &[u8], offload: [u8; 10]) -> Result<Pushed, RingError> {
        match self.0.tx.push_with(frame, offload) {
            Ok(true) => Ok(Pushed::Done),
            Ok(false) => Ok(Pushed::Full),
            Err(RingError::TooLong { .. }) => Ok(Pushed::TooLong),
            Err(error) => Err(error),
        }
    }

    fn sync(&mut self) -> Result<(), RingError> {
        self.0.sync()
    }

    fn tx_slots(&self) -> u32 {
        self.0.tx.slots()
    }

    fn room(&mut self, wanted: u32) -> Result<u32, RingError> {
        self.0.tx.room(wanted)
    }

    fn arm_rx(&mut self) -> Result<bool, RingError> {
        self.0.arm(Wait::RX)
    }

    fn disarm_rx(&mut self) {
        self.0.disarm(Wait::RX);
    }

    fn arm_tx(&mut self, slots: u32) -> Result<bool, RingError> {
        self.0.arm(Wait { rx: 0, tx: slots })
    }

    fn disarm_tx(&mut self) {
        self.0.disarm(Wait::TX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_attachment_wakes_all_users() {
        let port = Shared::to("a socket that nobody listens on");
        let accesses = [(); 2].map(|()| Rc::new(EventFd::new().unwrap()));
        let mut port = port.borrow_mut();
        port.changed.extend(accesses.iter().map(Rc::downgrade));
        port.advance(0);
        assert!(accesses.iter().all(|changed| changed.clear()), "it is away with another reason");
        assert!(!port.attachment.reason().is_empty() && port.attachment.losses() == 0);
        let next = port.attachment.next();
        port.advance(next - 1);
        assert!(!accesses.iter().any(|changed| changed.clear()), "not tried yet");
        let [kept, gone] = accesses;
        drop(gone);
        port.advance(next);
        assert!(kept.clear() && port.changed.len() == 1, "a access that is gone is forgotten");
    }
}
