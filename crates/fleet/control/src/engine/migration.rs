//! Guests that move to another fabric, or come from one, while they run.

use super::command::guest_failure;
use super::{Answer, Engine, EngineRequest, Failure};
use crate::guests::{GuestError, Started};
use crate::kinds;
use crate::migration::arrival::Arriving;
use crate::migration::identity::FabricIdentity;
use crate::migration::source::{Departing, Outcome};
use crate::migration::{GuestArrival, MigrationEnd, MovingPort, NewMigration, Progress, check};
use ringway_fabric::proto::{ArrivalStep, DeliveredFrames, DepartureStep, Reply, Request};
use ringway_linux_guests::{Arrival, steady_now};
use ringway_spec::MacAddress;
use std::path::PathBuf;
use std::sync::Arc;

/// Requests about guests that move.
#[derive(Debug)]
pub enum MigrationRequest {
    /// Begin to migrate a guest.
    Depart(String, NewMigration, Answer<Departing>),
    /// The guest with these addresses is about to leave.
    Leaving(String, Vec<MacAddress>, Answer<()>),
    /// The other fabric, with this identity, is about to be asked to activate the guest with this ticket, which has
    /// stopped at this time of CLOCK_MONOTONIC, if that is known. Returns what the guest had got until then.
    Asking(String, String, Option<FabricIdentity>, Option<u64>, Answer<Option<DeliveredFrames>>),
    /// An operator decides where a guest runs, since the other fabric does not say it.
    Resolve(String, MigrationEnd, Answer<Arc<Progress>>),
    /// The guest with this ticket is to go on here, whatever the other fabric says.
    Staying(String, String, Answer<()>),
    /// Cancel a guest's migration from here or to here. The answer comes when the QEMU of one that arrives has ended.
    Cancel(String, Answer<()>),
    /// A guest has left with this ticket, or stays.
    Departed(String, String, Outcome, Answer<()>),
    /// How far a guest's migration is.
    Progress(String, Answer<Arc<Progress>>),
    /// Prepare a guest that is to arrive: its folder, and who is told once its QEMU runs.
    Arrive(Box<GuestArrival>, Answer<(PathBuf, Started)>),
    /// The guest that arrives with this ticket; none if it has arrived.
    Arriving(String, String, Answer<Option<Arc<Arriving>>>),
    /// The guest that arrives with this ticket is to run here.
    Decide(String, String, Answer<()>),
    /// The guest with this ticket runs here.
    Arrived(String, String, Answer<()>),
    /// The guest with this ticket does not arrive. The answer comes when its QEMU has ended.
    Abandon(String, String, Answer<()>),
    /// The guest with this ticket, which did not arrive, has ended.
    Unblock(String, String, Answer<()>),
}

impl Engine {
    pub(super) async fn migration(&mut self, ask: MigrationRequest) {
        // The client may have disconnected before its answer is ready.
        match ask {
            MigrationRequest::Depart(name, new, answer) => drop(answer.send(self.depart_guest(&name, new))),
            MigrationRequest::Leaving(name, macs, answer) => {
                let ports = self.fabric.guest(&name).map(|guest| guest.ports.clone()).unwrap_or_default();
                self.leaving_ports.insert(name.clone(), ports.into_iter().zip(macs).collect());
                self.tell_departure(&name, DepartureStep::Watch);
                drop(answer.send(Ok(())));
            }
            MigrationRequest::Asking(name, ticket, fabric, stopped, answer) => {
                let kept = self.guests.keep_departure(&name, &ticket, (true, fabric));
                let delivered = match (&kept, stopped) {
                    (Ok(()), Some(stopped)) => self.delivered(&name, stopped).await,
                    _ => None,
                };
                drop(answer.send(kept.map(|()| delivered).map_err(guest_failure)));
            }
            MigrationRequest::Resolve(name, end, answer) => {
                drop(answer.send(self.guests.resolve(&name, end).map_err(guest_failure)));
            }
            MigrationRequest::Staying(name, ticket, answer) => {
                let kept = self.guests.keep_departure(&name, &ticket, (false, None));
                drop(answer.send(kept.map_err(guest_failure)));
            }
            MigrationRequest::Cancel(name, answer) => match self.guests.cancel(&name) {
                Ok(Some(ticket)) => self.abandon_guest(name, &ticket, answer),
                Ok(None) => drop(answer.send(Ok(()))),
                Err(error) => drop(answer.send(Err(guest_failure(error)))),
            },
            MigrationRequest::Departed(name, ticket, outcome, answer) => {
                self.guests.departed(&name, &ticket, outcome);
                self.tell_departure(&name, DepartureStep::End);
                drop(answer.send(Ok(())));
            }
            MigrationRequest::Progress(name, answer) => {
                drop(answer.send(self.guests.progress(&name).map_err(guest_failure)));
            }
            MigrationRequest::Arrive(arrival, answer) => drop(answer.send(self.arrive_guest(*arrival).await)),
            MigrationRequest::Arriving(name, ticket, answer) => {
                drop(answer.send(self.guests.arriving(&name, &ticket).map_err(arrival_failure)));
            }
            MigrationRequest::Decide(name, ticket, answer) => {
                drop(answer.send(self.guests.decide(&name, &ticket).map_err(arrival_failure)));
            }
            MigrationRequest::Arrived(name, ticket, answer) => {
                if let Ok(Some(arriving)) = self.guests.arriving(&name, &ticket) {
                    let (stopped_ago, delivered) = (arriving.stopped_ago(), arriving.delivered());
                    self.tell_arrival(&name, ArrivalStep::Deliver { stopped_ago, delivered });
                }
                let arrived = self.guests.arrived(&name, &ticket);
                self.block_guest(&name, false);
                drop(answer.send(arrived.map_err(arrival_failure)));
            }
            MigrationRequest::Abandon(name, ticket, answer) => self.abandon_guest(name, &ticket, answer),
            MigrationRequest::Unblock(name, ticket, answer) => {
                self.guests.abandoned(&name, &ticket);
                // Another one may arrive by now.
                if self.guests.place(&name).is_ok() {
                    self.tell_arrival(&name, ArrivalStep::Abandon);
                    self.block_guest(&name, false);
                }
                drop(answer.send(Ok(())));
            }
        }
    }

    /// The ports of a guest.
    fn moving_ports(&self, name: &str) -> Result<Vec<MovingPort>, GuestError> {
        let guest = self.fabric.guest(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        let moving = |name: &String| {
            let port = self.fabric.port(name)?;
            kinds::find(port.kind.name(), self.host.kinds)?.moving(port)
        };
        let kind = |name: &str| self.fabric.port(name).map_or("", |port| port.kind.name()).to_string();
        let failed =
            |port: &String| GuestError::Port { guest: name.into(), port: port.clone(), kind: kind(port) };
        guest.ports.iter().map(|port| moving(port).ok_or_else(|| failed(port))).collect()
    }

    fn depart_guest(&mut self, name: &str, new: NewMigration) -> Result<Departing, Failure> {
        let ports = self.moving_ports(name).map_err(guest_failure)?;
        self.guests.depart(name, new.to, (ports, new.bandwidth)).map_err(guest_failure)
    }

    /// Checks a guest that is to arrive, and starts its QEMU. Its ports send nothing until it has arrived.
    async fn arrive_guest(&mut self, arrival: GuestArrival) -> Result<(PathBuf, Started), Failure> {
        let name = &arrival.name;
        let wrong = |why: String| guest_failure(GuestError::Differs(why));
        let (machine, macs) = check::taken(&arrival).map_err(wrong)?;
        let (spec, folder) = self.guests.place(name).map_err(arrival_failure)?;
        let ports = self.moving_ports(name).map_err(arrival_failure)?;
        let place = folder.clone();
        // Images are read and written.
        let facts = tokio::task::spawn_blocking(move || ringway_linux_guests::facts(&spec, &place));
        let facts = self.await_with_queries(facts).await;
        let facts = facts.map_err(Failure::conflict)?;
        let facts = facts.map_err(|error| guest_failure(error.into()))?;
        let differences = check::differences(&arrival, &facts, &ports);
        if !differences.is_empty() {
            return Err(wrong(differences.join("; ")));
        }
        let GuestArrival { name, ticket, .. } = arrival;
        let ports = ports.into_iter().map(|port| port.name);
        self.arriving_ports.insert(name.clone(), ports.zip(macs.iter().copied()).collect());
        self.block_guest(&name, true);
        self.tell_arrival(&name, ArrivalStep::Keep);
        let macs = macs.iter().map(ToString::to_string).collect();
        let started = self.guests.arrive(&name, &ticket, Arrival { machine, macs });
        if started.is_err() {
            self.tell_arrival(&name, ArrivalStep::Abandon);
            self.block_guest(&name, false);
        }
        Ok((folder, started.map_err(arrival_failure)?))
    }

    fn abandon_guest(&mut self, name: String, ticket: &str, answer: Answer<()>) {
        let (arriving, ending) = match self.guests.abandon(&name, ticket) {
            Ok(ending) => ending,
            Err(error) => return drop(answer.send(Err(arrival_failure(error)))),
        };
        let (inbox, ticket) = (self.inbox.clone(), ticket.to_string());
        tokio::spawn(async move {
            if let Some(ending) = ending {
                // A panic of the task was reported by its thread.
                let _ = ending.await;
                let unblock = |answer| MigrationRequest::Unblock(name, ticket, answer);
                // Once nobody listens, the fabric is going down.
                let _ = inbox.ask(|answer| EngineRequest::Migration(unblock(answer))).await;
                arriving.set_ended();
            }
            arriving.until_ended().await;
            let _ = answer.send(Ok(()));
        });
    }

    /// Tells `data` how far the arrival of a guest is. What `data` keeps for it is lost if `data` ends meanwhile.
    fn tell_arrival(&mut self, name: &str, step: ArrivalStep) {
        let Some(ports) = self.arriving_ports.get(name).cloned() else { return };
        if step != ArrivalStep::Keep {
            self.arriving_ports.remove(name);
        }
        self.post(Request::Arrival { ports, step }, Vec::new(), drop);
    }

    /// Tells `data` how far the departure of a guest is. What it had noted is lost if it ends meanwhile.
    fn tell_departure(&mut self, name: &str, step: DepartureStep) {
        let Some(ports) = self.leaving_ports.get(name).cloned() else { return };
        if step == DepartureStep::End {
            self.leaving_ports.remove(name);
        }
        self.post(Request::Departure { ports, step }, Vec::new(), drop);
    }

    /// What a guest that leaves had got when it stopped, if `data` knows that.
    async fn delivered(&mut self, name: &str, stopped: u64) -> Option<DeliveredFrames> {
        let ports = self.leaving_ports.get(name)?.clone();
        let step = DepartureStep::Left { stopped_ago: steady_now().saturating_sub(stopped) };
        match self.call(&format!("guest {name}"), Request::Departure { ports, step }).await {
            Ok(Reply::Delivered(delivered)) => delivered,
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "which frames it has got is not known");
                None
            }
        }
    }

    /// Keeps what a guest sends in its rings, or lets it go on: another guest with its addresses may run elsewhere, and
    /// no switch must learn them here.
    fn block_guest(&mut self, name: &str, blocked: bool) {
        let ports = self.fabric.guest(name).map(|guest| guest.ports.clone()).unwrap_or_default();
        for port in &ports {
            match blocked {
                true => self.blocked_ports.insert(port.clone()),
                false => self.blocked_ports.remove(port),
            };
        }
        // `data` was restarted if it fails, and is told again.
        self.post(Request::Hold { ports, held: blocked, watched: false }, Vec::new(), drop);
    }
}

fn arrival_failure(error: GuestError) -> Failure {
    match error {
        GuestError::NotArriving(_) => Failure::unknown(error),
        error => Failure::conflict(error),
    }
}
