//! Ports while they live: made known to `data`, given their peers, taken away.

use super::{Engine, EngineError, Message};
use crate::data::DataError;
use crate::kinds;
use crate::open::{Opener, PeerEvent, What};
use crate::pages;
use ringway_fabric::LogLimit;
use ringway_fabric::proto::{Event, PortState, Request};
use ringway_spec::Port;
use std::os::fd::OwnedFd;
use std::time::Duration;

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
    /// Its last peer cost too much, and the next is to come after a while.
    resting: bool,
    /// What is logged about it.
    log: LogLimit,
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
        self.resting = false;
        self.kept.clear();
        if let Some(opener) = &self.opener {
            opener.gone(self.serial);
        }
        self.serial = 0;
    }
}

impl Engine {
    /// Makes a port, and opens it as `owned`: with the owner that its socket is to have.
    pub(super) async fn add_port(&mut self, port: &Port, owned: &Port) -> Result<(), EngineError> {
        let unknown = || EngineError::Kind(port.name.clone(), port.kind.name().into());
        let kind = kinds::find(port.kind.name(), self.host.kinds).ok_or_else(unknown)?;
        let queues = if kind.is_in_data() { port.queues } else { 0 };
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
            resting: false,
            log: LogLimit::of_port(),
        };
        if queues > 0 {
            let request = Request::AddPort { port: port.clone(), counters };
            if let Err(error) = self.call(&port.name, request).await {
                self.page.give(counters);
                return Err(error);
            }
        }
        match Opener::start(owned, kind, self.epoch, &self.inbox, pages::choice(self.fabric.huge_pages)) {
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

    /// Has another worker serve a port.
    pub(super) async fn move_port(&mut self, port: &Port) -> Result<(), EngineError> {
        if self.live.get(&port.name).is_none_or(|live| live.queues == 0) {
            return Ok(());
        }
        let (name, worker) = (port.name.clone(), port.worker.clone());
        self.call(&port.name, Request::MovePort { name, worker }).await.map(drop)
    }

    /// Gives a new `data` a port that the last one had.
    pub(super) async fn resume_port(&mut self, port: &Port) -> Result<(), EngineError> {
        let Some(live) = self.live.get_mut(&port.name) else { return Ok(()) };
        if live.queues == 0 {
            return Ok(());
        }
        let request = Request::AddPort { port: port.clone(), counters: live.counters };
        live.state = None;
        let kept: Vec<OwnedFd> = live.kept.iter().filter_map(|kept| kept.try_clone().ok()).collect();
        if kept.is_empty() && live.serial != 0 {
            live.gone("the data process was started again");
        }
        self.call(&port.name, request).await?;
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
                if live.log.allows(&name) {
                    tracing::info!(port = name, reason);
                }
                live.reason = reason;
            }
            What::Programs(count) => live.programs = count,
            What::Left { .. } if live.resting => {}
            What::Left { serial, reason } if serial == live.serial => {
                if live.log.allows(&name) {
                    tracing::info!(port = name, reason);
                }
                self.detach(&name);
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
                let (inbox, request) = (self.inbox.clone(), Request::Attach { port: name.clone() });
                self.post(request, descriptors, move |attached| {
                    // Once nobody listens, the fabric is going down.
                    let _ = inbox.send(Message::Attached { port: name, epoch, serial, attached });
                });
            }
        }
    }

    /// `data` has a peer, or hasn't.
    pub(super) fn attached(&mut self, name: &str, epoch: u64, serial: u64, attached: Result<(), DataError>) {
        let is_it = |live: &&mut Live| live.epoch == epoch && live.serial == serial;
        let Some(live) = self.live.get_mut(name).filter(is_it) else { return };
        let is_logged = live.log.allows(name);
        match attached {
            Ok(()) if is_logged => tracing::info!(port = name, "a peer is there"),
            Ok(()) => {}
            // The next `data` gets it.
            Err(DataError::Gone) if !live.kept.is_empty() => {}
            Err(error) => {
                if is_logged {
                    tracing::warn!(port = name, %error, "the peer is sent away");
                }
                live.gone(&error.to_string());
            }
        }
    }

    /// Has `data` let go of a port's peer, before the next comes.
    fn detach(&mut self, name: &str) {
        let port = name.to_string();
        self.post(Request::Detach { port: port.clone() }, Vec::new(), move |detached| {
            let _ = detached.inspect_err(|error| tracing::warn!(port, %error, "detaching its peer"));
        });
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
                let Some(live) = self.live.get_mut(&state.name) else { return };
                if live.log.allows(&state.name) {
                    tracing::info!(port = state.name, state = state.state, detail = state.detail);
                }
                live.state = Some(state);
            }
            Event::Worker { worker, thread } => self.watch(worker, thread).await,
            Event::Detached { port, reason, fault, rest } => {
                // Of a port that was removed just now nothing is left to detach.
                let Some(live) = self.live.get_mut(&port) else { return };
                match live.log.allows(&port) {
                    true if fault => tracing::warn!(port, reason, "the peer broke its protocol"),
                    true => tracing::info!(port, reason, "the peer is gone"),
                    false => {}
                }
                // Whatever `data` still has of it goes before the next peer comes.
                self.detach(&port);
                if rest > 0 {
                    self.rest(&port, &reason, Duration::from_nanos(rest));
                } else {
                    self.lost(&port, &reason);
                }
            }
        }
    }

    /// A port's peer is gone, and the next is to come after `time`.
    ///
    /// Attack: a peer that is let go for what it costs, and comes again at once.
    fn rest(&mut self, name: &str, reason: &str, time: Duration) {
        let Some(live) = self.live.get_mut(name) else { return };
        live.reason = format!("{reason}; the next may come {} s later", time.as_millis().div_ceil(1000));
        live.kept.clear();
        live.resting = true;
        let (inbox, port, epoch) = (self.inbox.clone(), name.to_string(), live.epoch);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            // Once nobody listens, the fabric is going down.
            let _ = inbox.send(Message::Rested { port, epoch });
        });
    }

    /// A port rested for as long as it was to.
    pub(super) fn rested(&mut self, port: &str, epoch: u64) {
        if let Some(live) = self.live.get_mut(port).filter(|live| live.epoch == epoch && live.resting) {
            let reason = live.reason.clone();
            live.gone(&reason);
        }
    }

    /// Opens for `data` what it reads about a worker's thread.
    async fn watch(&mut self, worker: String, thread: i32) {
        let Some(pid) = self.data.as_ref().map(|data| data.pid) else { return };
        let watched = match ringway_host::open_thread_files(pid, thread) {
            Ok(files) => {
                let request = Request::Watch { worker: worker.clone(), thread };
                self.hand(&worker, request, files.into()).await.map(drop).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = watched {
            tracing::warn!(worker, error, "a peer that holds this worker by its memory can't be told");
        }
    }
}
