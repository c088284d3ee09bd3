//! What placement takes from the fabric of this host: live rates of its ports; and guests that it starts.

use super::{DecisionView, Failed, PlaceRequest, Service};
use crate::api::{StatsView, Trouble};
use crate::engine::{Ask, Failure, Inbox, Message};
use crate::file::Guest;
use ringway_place::engine::Object;
use ringway_place::object::{Fact, Vm};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

/// Rates are of this long at least, in nanoseconds.
const WINDOW: u64 = 1_000_000_000;
/// After so many milliseconds rates are stale.
const FRESH: u64 = 60_000;

/// The fabric of this host.
pub struct Link {
    inbox: Inbox,
    guests: Vec<Guest>,
    last: Mutex<Option<StatsView>>,
}

fn failed(failure: Failure) -> Failed {
    let of = |trouble: Trouble| trouble.error;
    match failure {
        Failure::Unknown(trouble) => Failed::Unknown(of(trouble)),
        Failure::Wrong(trouble) | Failure::Request(_, trouble) => Failed::Wrong(of(trouble)),
        Failure::Conflict(trouble) => Failed::Conflict(of(trouble)),
        Failure::Down => Failed::Conflict("the fabric is going down".into()),
    }
}

impl Link {
    /// The fabric behind `inbox`, with the guests of its file.
    pub fn new(inbox: Inbox, guests: Vec<Guest>) -> Link {
        Link { inbox, guests, last: Mutex::default() }
    }

    /// Asks the fabric. Only where a thread may wait.
    fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<Result<T, Failure>>) -> Ask) -> Result<T, Failed> {
        let (answer, answered) = oneshot::channel();
        let down = || failed(Failure::Down);
        self.inbox.send(Message::Ask(ask(answer))).map_err(|_| down())?;
        answered.blocking_recv().map_err(|_| down())?.map_err(failed)
    }

    /// Rates of the fabric's ports since the last time, as facts about `host`: `fabric_mbps` and `fabric_pps`, of what
    /// enters and leaves all ports. None if too little time passed.
    pub fn rates(&self, host: &str, now: u64) -> Result<Vec<Object>, Failed> {
        let stats = self.ask(Ask::Stats)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = last.as_ref() else {
            *last = Some(stats);
            return Ok(Vec::new());
        };
        let passed = stats.at.saturating_sub(before.at);
        if passed < WINDOW {
            return Ok(Vec::new());
        }
        let sum = |stats: &StatsView| {
            stats.ports.iter().fold((0u64, 0u64), |(frames, bytes), port| {
                let total = &port.total;
                (frames + total.tx_frames + total.rx_frames, bytes + total.tx_bytes + total.rx_bytes)
            })
        };
        let ((frames, bytes), (old_frames, old_bytes)) = (sum(&stats), sum(before));
        // A port that went took its counts along.
        let (frames, bytes) = (frames.saturating_sub(old_frames), bytes.saturating_sub(old_bytes));
        let seconds = passed as f64 / 1e9;
        *last = Some(stats);
        let fact = |name: &str, value: f64| {
            Object::Fact(Fact { host: host.into(), name: name.into(), value, until: Some(now + FRESH) })
        };
        Ok(vec![
            fact("fabric_mbps", bytes as f64 * 8.0 / 1e6 / seconds),
            fact("fabric_pps", frames as f64 / seconds),
        ])
    }

    /// Places a guest of the fabric's file and starts it; what was reserved is given back if it does not start.
    pub fn start(&self, service: &Service, here: &str, name: &str) -> Result<DecisionView, Failed> {
        let guest = self.guests.iter().find(|guest| guest.name == name);
        let guest =
            guest.ok_or_else(|| Failed::Unknown(format!("there is no guest {name} in the fabric's file")))?;
        let known = service.engine.view(|model| model.vm(name).is_some())?;
        let vm = Vm {
            name: name.into(),
            cores: guest.cpus.max(1),
            memory_mb: (guest.memory >> 20).max(1),
            ..Vm::default()
        };
        let request = PlaceRequest {
            vms: vec![name.into()],
            new: if known { Vec::new() } else { vec![vm] },
            // Nobody starts guests on other hosts yet.
            only: BTreeSet::from([here.to_string()]),
            ..PlaceRequest::default()
        };
        let decision = service.place(request)?;
        if let Some(choice) = decision.choices.iter().find(|choice| choice.host.is_none()) {
            return Err(Failed::Conflict(choice.why()));
        }
        match self.ask(|answer| Ask::StartGuest(name.into(), answer)) {
            Ok(()) => service.confirm(name)?,
            Err(error) => {
                service.release(name)?;
                return Err(error);
            }
        }
        Ok(decision)
    }
}
