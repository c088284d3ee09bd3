//! Ports while they live: made known to `data`, given their peers, taken away.

use super::{Engine, EngineError};
use crate::data::DataError;
use crate::file::{self, Kind, Port, Switch};
use crate::open::{Opener, PeerEvent, What};
use ringway_fabric::proto::{self, Event, PortState, Request};
use std::os::fd::OwnedFd;

/// What is known of a running port besides what the file says.
pub struct Live {
    /// First entry of its counters.
    pub counters: u32,
    /// Entries of its counters.
    pub queues: u16,
    /// Brings its peers.
    opener: Option<Opener>,
    /// Which opener that is.
    epoch: u64,
    /// Its peer's number; 0 without one.
    serial: u64,
    /// Duplicates of what `data` has, if another `data` could go on with them.
    kept: Vec<OwnedFd>,
    /// What `data` last said of it.
    pub state: Option<PortState>,
    /// Why it has no peer, or lost the last.
    pub reason: String,
    /// Programs on a pipe.
    pub programs: usize,
}

impl Live {
    /// Closes what is open.
    pub async fn close(self) {
        if let Some(opener) = self.opener {
            opener.stop().await;
        }
    }

    /// Its peer is gone.
    fn gone(&mut self, reason: &str) {
        self.reason = reason.into();
        self.kept.clear();
        if let Some(opener) = &self.opener {
            opener.gone(self.serial);
        }
        self.serial = 0;
    }
}

impl Engine {
    pub(super) async fn add_port(&mut self, port: &Port) -> Result<(), EngineError> {
        let spec = known(port, 0);
        let queues = spec.as_ref().map_or(0, |spec| spec.kind.queues());
        let counters = if queues > 0 { self.page.take(u32::from(queues))? } else { 0 };
        self.epoch += 1;
        let mut live = Live {
            counters,
            queues,
            opener: None,
            epoch: self.epoch,
            serial: 0,
            kept: Vec::new(),
            state: None,
            reason: String::new(),
            programs: 0,
        };
        if let Some(spec) = spec {
            let added = self.call(&port.name, Request::AddPort(proto::Port { counters, ..spec })).await;
            if let Err(error) = added {
                self.page.give(counters);
                return Err(error);
            }
        }
        match Opener::start(port, self.epoch, &self.inbox, self.fabric.huge_pages.into()) {
            Ok(opener) => live.opener = opener,
            Err(error) => {
                if queues > 0 {
                    // The reason to tell is why it can't be opened.
                    let _ = self.call(&port.name, Request::RemovePort { name: port.name.clone() }).await;
                    self.page.give(counters);
                }
                return Err(error.into());
            }
        }
        self.live.insert(port.name.clone(), live);
        Ok(())
    }

    pub(super) async fn remove_port(&mut self, name: &str) {
        let Some(live) = self.live.remove(name) else { return };
        if live.queues > 0 {
            if let Err(error) = self.call(name, Request::RemovePort { name: name.into() }).await {
                tracing::warn!(%error, "removing port {name}");
            }
            self.page.give(live.counters);
        }
        live.close().await;
    }

    /// Gives a new `data` a port that the last one had.
    pub(super) async fn resume_port(&mut self, port: &Port) -> Result<(), EngineError> {
        let Some(live) = self.live.get_mut(&port.name) else { return Ok(()) };
        let Some(spec) = known(port, live.counters) else { return Ok(()) };
        live.state = None;
        let kept: Vec<OwnedFd> = live.kept.iter().filter_map(|kept| kept.try_clone().ok()).collect();
        if kept.is_empty() && live.serial != 0 {
            live.gone("the data process was started again");
        }
        self.call(&port.name, Request::AddPort(spec)).await?;
        if !kept.is_empty() {
            self.attach(&port.name, kept).await?;
        }
        Ok(())
    }

    async fn attach(&mut self, name: &str, descriptors: Vec<OwnedFd>) -> Result<(), EngineError> {
        self.hand(name, Request::Attach { port: name.into() }, descriptors).await.map(drop)
    }

    /// News of a peer.
    pub(super) async fn peer(&mut self, event: PeerEvent) {
        let PeerEvent { port: name, epoch, what } = event;
        let Some(live) = self.live.get_mut(&name).filter(|live| live.epoch == epoch) else { return };
        match what {
            What::Trouble(reason) => {
                tracing::info!(port = name, reason);
                live.reason = reason;
            }
            What::Programs(count) => live.programs = count,
            What::Left { serial, reason } if serial == live.serial => {
                tracing::info!(port = name, reason);
                if let Err(error) = self.call(&name, Request::Detach { port: name.clone() }).await {
                    tracing::warn!(%error, "detaching port {name}");
                }
                self.lost(&name, &reason);
            }
            // It was gone already.
            What::Left { .. } => {}
            What::Arrived { serial, descriptors, keep } => {
                live.serial = serial;
                live.reason.clear();
                if keep {
                    live.kept = descriptors.iter().filter_map(|held| held.try_clone().ok()).collect();
                }
                match self.attach(&name, descriptors).await {
                    Ok(()) => tracing::info!(port = name, "a peer is there"),
                    // The next `data` gets it.
                    Err(EngineError::Data(_, DataError::Gone)) if keep => {}
                    Err(error) => {
                        tracing::warn!(port = name, %error, "the peer is sent away");
                        self.lost(&name, &error.to_string());
                    }
                }
            }
        }
    }

    fn lost(&mut self, name: &str, reason: &str) {
        if let Some(live) = self.live.get_mut(name) {
            live.gone(reason);
        }
    }

    /// `data` says something.
    pub(super) async fn heard(&mut self, event: Event) {
        match event {
            Event::Changed(state) => {
                tracing::info!(port = state.name, state = state.state, detail = state.detail);
                if let Some(live) = self.live.get_mut(&state.name) {
                    live.state = Some(state);
                }
            }
            // Of a port that was removed just now nothing is left to detach.
            Event::Detached { port, .. } if !self.live.contains_key(&port) => {}
            Event::Detached { port, reason, fault } => {
                if fault {
                    tracing::warn!(port, reason, "the peer broke its protocol");
                } else {
                    tracing::info!(port, reason, "the peer is gone");
                }
                // Whatever `data` still has of it goes before the next peer comes.
                if let Err(error) = self.call(&port, Request::Detach { port: port.clone() }).await {
                    tracing::warn!(%error, "detaching port {port}");
                }
                self.lost(&port, &reason);
            }
        }
    }
}

/// The switch as `data` is told it.
pub fn add_switch(switch: &Switch) -> Request {
    let lookup = match &switch.lookup {
        file::Lookup::Learning { ageing, entries } => {
            proto::Lookup::Learning { ageing: *ageing, entries: *entries }
        }
        file::Lookup::Static { entries } => proto::Lookup::Static {
            entries: entries.iter().map(|(mac, port)| (mac.to_string(), port.clone())).collect(),
        },
        file::Lookup::Hash { members, uplink } => {
            proto::Lookup::Hash { members: members.clone(), uplink: uplink.clone() }
        }
    };
    Request::AddSwitch { name: switch.name.clone(), lookup }
}

/// The worker as `data` is told it.
pub fn worker(worker: &file::Worker) -> proto::Worker {
    let poll = match worker.poll {
        file::Poll::Adaptive => proto::Poll::Adaptive,
        file::Poll::Always => proto::Poll::Always,
        file::Poll::Never => proto::Poll::Never,
    };
    proto::Worker { name: worker.name.clone(), core: worker.core, poll, spin: worker.spin, hold: worker.hold }
}

/// The port as `data` is told it; none of a port that `data` has no part in.
fn known(port: &Port, counters: u32) -> Option<proto::Port> {
    let to = match port.to.as_ref()? {
        file::To::Switch(switch) => proto::To::Switch(switch.clone()),
        file::To::Patch(peer) => proto::To::Patch(peer.clone()),
    };
    let kind = match &port.kind {
        Kind::VhostUser(vhost) => proto::Kind::VhostUser {
            queues: vhost.queues,
            mac: vhost.mac.map(|mac| mac.to_string()),
            mtu: vhost.mtu,
            without: vhost.without.clone(),
        },
        Kind::Tap(tap) => proto::Kind::Tap { queues: tap.queues, mtu: tap.mtu, offloads: tap.offloads },
        Kind::Ring { .. } => proto::Kind::Ring,
        Kind::Pipe { .. } => return None,
        Kind::Null => proto::Kind::Null,
        Kind::Source { size, to, from, rate } => {
            proto::Kind::Source { size: *size, to: to.to_string(), from: from.to_string(), rate: *rate }
        }
    };
    let (name, worker) = (port.name.clone(), port.worker.clone());
    Some(proto::Port { name, kind, to, worker, hold: port.hold, notify: port.notify, counters })
}
