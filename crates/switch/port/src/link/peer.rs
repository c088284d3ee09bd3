//! A link port has no peer, but settings that change while it runs.

use super::{GAUGES, Now, Settings, Shared, queue};
use crate::{Context, Opened, Peer, PeerError, PortKind, State};
use ringway_frame::CountersRef;
use ringway_host::Clock;
use ringway_link::{Link, Profile, seed_of};
use ringway_spec::Port;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, PoisonError};

/// One direction of an emulated link.
pub const KIND: PortKind = PortKind { name: "link", open };

struct LinkPeer {
    shared: Arc<Shared>,
}

fn profile(port: &Port) -> Result<(Profile, u64), PeerError> {
    let settings: Settings = port.kind.settings()?;
    settings.profile().map_err(|wrong| PeerError::kind(wrong.what))
}

fn open(context: Context<'_>) -> Opened {
    let clock = Clock::new();
    open_at(context, Box::new(move || clock.now()))
}

/// Opens a port whose frames are stamped by this clock.
pub(super) fn open_at(context: Context<'_>, now: Now) -> Opened {
    let (profile, seed) = profile(context.port)?;
    let doorbell = context.doorbells.first().cloned().ok_or(PeerError::NoPeer(KIND.name))?;
    let shared = Arc::new(Shared {
        exchange: Default::default(),
        armed: Default::default(),
        next: Default::default(),
        is_changed: Default::default(),
        fills: (profile.corrupt > 0.0).into(),
        gauges: Default::default(),
        counters: context.counters.first().cloned().unwrap_or_else(CountersRef::private),
        doorbell,
        now,
    });
    let link = Link::new(profile, seed_of(seed, &context.port.name)).map_err(PeerError::kind)?;
    let queues = vec![queue(&shared, link)?];
    Ok((Box::new(LinkPeer { shared }), queues))
}

impl Peer for LinkPeer {
    fn attach(&mut self, _descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        Err(PeerError::NoPeer(KIND.name))
    }

    fn detach(&mut self) {}

    fn change(&mut self, port: &Port) -> Result<(), PeerError> {
        let (profile, _) = profile(port)?;
        profile.check().map_err(PeerError::kind)?;
        self.shared.fills.store(profile.corrupt > 0.0, Relaxed);
        // A worker only tries this lock, and then changes the profile in a later turn.
        *self.shared.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(profile);
        self.shared.is_changed.store(true, SeqCst);
        self.shared.doorbell.wake();
        Ok(())
    }

    fn gauges(&self) -> BTreeMap<String, u64> {
        let values = self.shared.gauges.iter().map(|gauge| gauge.load(Relaxed));
        GAUGES.iter().map(|name| name.to_string()).zip(values).collect()
    }

    fn state(&self) -> (State, String) {
        (State::Up, String::new())
    }
}
