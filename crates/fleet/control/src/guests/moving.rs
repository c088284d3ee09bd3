//! Guests that leave for another fabric, or arrive from one.

use super::{GuestError, Guests, Life, NO_DESCRIPTORS, Record, kept};
use crate::keeper::StoredEntry;
use crate::migration::arrival::{self, Arriving};
use crate::migration::identity::FabricIdentity;
use crate::migration::remote::Remote;
use crate::migration::source::{Departing, Outcome, Source};
use crate::migration::{MigrationEnd, MigrationError, MovingPort, Progress};
use ringway_linux_guests::{Arrival, Guest, Runner, Spec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Tickets of a guest that are kept once it was activated with them. Attack: a guest that is moved to and fro without
/// end.
const ACTIVATED: usize = 64;

/// A guest that leaves or arrives.
pub(super) enum Moving {
    /// It leaves; the ticket of the attempt.
    Leaves(String),
    /// It arrives.
    Arrives(Arc<Arriving>),
}

/// What the keeper has of a guest that leaves.
#[derive(Debug, Serialize, Deserialize)]
struct KeptDeparture {
    /// As the operator named the other fabric.
    to: String,
    ticket: String,
    /// Whether the other fabric may have been asked to activate it; not known of an older version's.
    #[serde(default = "may_be_asked")]
    asked: bool,
    /// The fabric that prepared it, if it was asked; not known of an older version's.
    #[serde(default)]
    fabric: Option<FabricIdentity>,
}

fn may_be_asked() -> bool {
    true
}

/// The tickets with which a guest was activated here.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Activated {
    /// The last ones, the newest at the end.
    tickets: Vec<String>,
    /// Whether there were more: an unknown ticket may be one of them.
    forgotten: bool,
}

impl Activated {
    fn add(&mut self, ticket: &str) {
        self.tickets.push(ticket.into());
        let former = self.tickets.len().saturating_sub(ACTIVATED);
        self.forgotten |= former > 0;
        self.tickets.drain(..former);
    }
}

/// Told the guest once its QEMU runs.
pub type Started = oneshot::Receiver<Result<Arc<Guest>, String>>;

impl Guests {
    /// Begins to migrate a running guest, whose ports are `ports`, to the fabric that `to` names.
    pub fn depart(
        &mut self,
        name: &str,
        to: String,
        (ports, bandwidth): (Vec<MovingPort>, Option<u64>),
    ) -> Result<Departing, GuestError> {
        let guest = self.running(name)?;
        let record = self.records.get_mut(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        if record.moving.is_some() {
            return Err(GuestError::Moving(name.into()));
        }
        match guest.state() {
            (false, _) => return Err(GuestError::NotRunning(name.into())),
            (true, 0) => return Err(GuestError::Starting(name.into())),
            _ => {}
        }
        let progress = Arc::new(Progress::new(name, &to));
        let ticket = crate::migration::ticket();
        record.moving = Some(Moving::Leaves(ticket.clone()));
        record.progress = Some(progress.clone());
        self.keeper.remove(&kept::arrived(name));
        let departure = KeptDeparture { to, ticket: ticket.clone(), asked: false, fabric: None };
        self.keeper.put_value(&kept::departure(name), &departure, NO_DESCRIPTORS);
        Ok(Departing { guest, ports, progress, ticket, bandwidth })
    }

    /// Keeps whether the other fabric may have been asked to activate a guest that leaves, and which fabric that is.
    /// Once this returns, a successor of this process lets a guest of which it may have been asked go on only if that
    /// fabric says that it does not run there.
    pub fn keep_departure(
        &mut self,
        name: &str,
        ticket: &str,
        (asked, fabric): (bool, Option<FabricIdentity>),
    ) -> Result<(), GuestError> {
        let to = self.progress(name)?.view().to;
        let record = self.records.get(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        if !matches!(&record.moving, Some(Moving::Leaves(own)) if own == ticket) {
            return Err(GuestError::NotMoving(name.into()));
        }
        let departure = KeptDeparture { to, ticket: ticket.into(), asked, fabric };
        self.keeper.put_value(&kept::departure(name), &departure, NO_DESCRIPTORS);
        self.keeper.flush();
        Ok(())
    }

    /// Decides where a guest runs of which the other fabric does not say whether it runs there.
    pub fn resolve(&self, name: &str, end: MigrationEnd) -> Result<Arc<Progress>, GuestError> {
        let progress = self.progress(name)?;
        if !progress.decide(end) {
            return Err(GuestError::Known(name.into(), progress.view().stage));
        }
        Ok(progress)
    }

    /// Asks to end the migration of a guest that leaves; returns the ticket of one that arrives.
    pub fn cancel(&self, name: &str) -> Result<Option<String>, GuestError> {
        match self.records.get(name).and_then(|record| record.moving.as_ref()) {
            Some(Moving::Arrives(arriving)) => Ok(Some(arriving.ticket.clone())),
            _ => self.progress(name).map(|progress| {
                progress.cancel();
                None
            }),
        }
    }

    /// A guest has left, or stays after all.
    pub fn departed(&mut self, name: &str, ticket: &str, outcome: Outcome) {
        let Some(record) = self.records.get_mut(name) else { return };
        if !matches!(&record.moving, Some(Moving::Leaves(own)) if own == ticket) {
            return;
        }
        record.moving = None;
        if outcome == Outcome::Gone {
            // It stands still for ever.
            drop(kill(record));
            self.want(name, false);
        }
        // Last, so that a successor that does not find it finds what became of the guest.
        self.keeper.remove(&kept::departure(name));
    }

    /// How far the last migration of a guest is.
    pub fn progress(&self, name: &str) -> Result<Arc<Progress>, GuestError> {
        let record = self.records.get(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        record.progress.clone().ok_or_else(|| GuestError::NotMoving(name.into()))
    }

    /// What a guest that arrives would be started with, and the folder for it.
    pub fn place(&self, name: &str) -> Result<(Spec, PathBuf), GuestError> {
        let record = self.records.get(name).ok_or_else(|| GuestError::NoPlace(name.into()))?;
        if record.spec.kind != Runner::Qemu {
            return Err(GuestError::NotQemu(name.into()));
        }
        if record.moving.is_some() {
            return Err(GuestError::Moving(name.into()));
        }
        match super::view(name, record).state.as_str() {
            "stopped" | "ended" => Ok((record.spec.clone(), record.folder.clone())),
            _ => Err(GuestError::Taken(name.into())),
        }
    }

    /// Starts the QEMU of a guest that arrives.
    pub fn arrive(&mut self, name: &str, ticket: &str, arrival: Arrival) -> Result<Started, GuestError> {
        self.place(name)?;
        self.start_as(name, Some(arrival))?;
        // A successor of this process ends it, until it is decided that it runs here.
        self.want(name, false);
        let (sender, started) = oneshot::channel();
        let record = self.records.get_mut(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        record.moving = Some(Moving::Arrives(Arc::new(Arriving::new(name, ticket, sender))));
        // Of an earlier move from here.
        record.progress = None;
        Ok(started)
    }

    /// Goes on with the tickets that a former `control` had.
    pub(super) fn adopt_activated(&mut self, found: &mut BTreeMap<String, StoredEntry>) {
        let prefix = kept::activated("");
        for (kept, entry) in found.extract_if(.., |kept, _| kept.starts_with(&prefix)) {
            let name = kept.trim_start_matches(&prefix).to_string();
            // What can't be read may have been any ticket.
            let unread = || Activated { forgotten: true, ..Activated::default() };
            self.activated.insert(name, serde_json::from_str(&entry.text).unwrap_or_else(|_| unread()));
        }
    }

    /// Whether a guest leaves or arrives.
    pub fn is_moving(&self, name: &str) -> bool {
        self.records.get(name).is_some_and(|record| record.moving.is_some())
    }

    /// A guest that arrives; `None` if it has arrived with this ticket, wherever it is now. A ticket of which it is not
    /// known any more whether the guest has arrived with it is an error of its own.
    pub fn arriving(&self, name: &str, ticket: &str) -> Result<Option<Arc<Arriving>>, GuestError> {
        let (record, activated) = (self.records.get(name), self.activated.get(name));
        let has_arrived = record.is_some_and(|record| record.arrived.as_deref() == Some(ticket));
        match record.and_then(|record| record.moving.as_ref()) {
            Some(Moving::Arrives(arriving)) if arriving.ticket == ticket => Ok(Some(arriving.clone())),
            _ if has_arrived => Ok(None),
            _ if activated.is_some_and(|own| own.tickets.iter().any(|own| own == ticket)) => Ok(None),
            _ if activated.is_some_and(|own| own.forgotten) => Err(GuestError::Forgotten(name.into())),
            _ => Err(GuestError::NotArriving(name.into())),
        }
    }

    /// It is decided that a guest which arrives with this ticket runs here from now on.
    pub fn decide(&mut self, name: &str, ticket: &str) -> Result<(), GuestError> {
        self.arriving(name, ticket)?;
        let activated = self.activated.entry(name.into()).or_default();
        activated.add(ticket);
        self.keeper.put_value(&kept::activated(name), activated, NO_DESCRIPTORS);
        self.keeper.put(&kept::arrived(name), ticket, NO_DESCRIPTORS);
        self.want(name, true);
        // All are kept before the guest goes on.
        self.keeper.flush();
        Ok(())
    }

    /// A guest has arrived.
    pub fn arrived(&mut self, name: &str, ticket: &str) -> Result<(), GuestError> {
        self.arriving(name, ticket)?;
        let record = self.records.get_mut(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        (record.moving, record.arrived) = (None, Some(ticket.into()));
        tracing::info!(guest = name, "arrived");
        Ok(())
    }

    /// Ends a guest that arrives and has been given up. The task ends with it; there is none if it is being ended
    /// already. The ticket is known until [`Guests::abandoned`]: its QEMU may run until then.
    pub fn abandon(
        &mut self,
        name: &str,
        ticket: &str,
    ) -> Result<(Arc<Arriving>, Option<JoinHandle<()>>), GuestError> {
        let Some(arriving) = self.arriving(name, ticket)? else {
            return Err(GuestError::Arrived(name.into()));
        };
        arriving.give_up("it was given up").map_err(|_| GuestError::Arrived(name.into()))?;
        if !arriving.begin_to_end() {
            return Ok((arriving, None));
        }
        self.keeper.remove(&kept::arrived(name));
        self.want(name, false);
        let record = self.records.get_mut(name).ok_or_else(|| GuestError::Unknown(name.into()))?;
        record.turn = 0;
        let ended = kill(record);
        tracing::info!(guest = name, "does not arrive");
        Ok((arriving, Some(ended)))
    }

    /// The QEMU of a guest that was given up has ended.
    pub fn abandoned(&mut self, name: &str, ticket: &str) {
        // It could not go on, although that was decided.
        if let Some(activated) = self.activated.get_mut(name) {
            activated.tickets.retain(|own| own != ticket);
            self.keeper.put_value(&kept::activated(name), activated, NO_DESCRIPTORS);
        }
        let is_it = |moving: &mut Moving| matches!(moving, Moving::Arrives(own) if own.ticket == ticket);
        if let Some(record) = self.records.get_mut(name) {
            record.moving.take_if(is_it);
        }
    }

    /// Goes on with what a former `control` had begun with a guest, which runs or, if none, does not.
    pub(super) fn go_on_moving(&mut self, name: &str, departure: Option<&str>, arrived: Option<String>) {
        let Some(record) = self.records.get_mut(name) else { return };
        record.arrived = arrived;
        let Life::Running(guest) = &record.life else {
            // Nothing is left that could go on here.
            return self.keeper.remove(&kept::departure(name));
        };
        let guest = guest.clone();
        if record.arrived.is_some() {
            // It was decided that it runs here; the former process may not have told it.
            tokio::task::spawn_blocking(move || {
                if let Err(error) = arrival::go_on(&guest) {
                    tracing::warn!(guest = guest.spec().name, error, "it has arrived");
                }
            });
            return;
        }
        let Some(KeptDeparture { to, ticket, asked, fabric }) =
            departure.and_then(|text| serde_json::from_str(text).ok())
        else {
            return;
        };
        let there = match Remote::find(&to) {
            Ok(there) => there,
            // It stands still, and `guest stop` ends it.
            Err(error) => return tracing::error!(guest = name, %error, "where it was migrated to"),
        };
        fabric.into_iter().for_each(|fabric| there.expect(fabric));
        let progress = Arc::new(Progress::new(name, &to));
        record.moving = Some(Moving::Leaves(ticket.clone()));
        record.progress = Some(progress.clone());
        let departing = Departing { guest, ports: Vec::new(), progress, ticket, bandwidth: None };
        let source = Source::new(departing, there, self.inbox.clone());
        tokio::task::spawn_blocking(move || {
            let why = MigrationError::Ended("the control process of the source was replaced".into());
            source.resolve(&why, asked);
        });
    }
}

/// Ends a guest's QEMU without asking the guest. The task ends with it.
fn kill(record: &mut Record) -> JoinHandle<()> {
    let (done, ended) = oneshot::channel::<()>();
    record.life = match std::mem::replace(&mut record.life, Life::Stopped) {
        Life::Running(guest) => Life::Stopping(tokio::task::spawn_blocking(move || {
            guest.kill();
            drop(done);
        })),
        Life::Starting(cancelled, task) => {
            cancelled.store(true, Ordering::Release);
            Life::Stopping(tokio::spawn(async move {
                // A panic of the task was reported by its thread.
                let _ = task.await;
                drop(done);
            }))
        }
        same => same,
    };
    // The sender is dropped, which is received as an error.
    tokio::spawn(async move { _ = ended.await })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::Keeper;
    use ringway_spec::HugePages;

    /// Its former place may ask long after it has left for a third one, from which it may come back.
    #[tokio::test]
    async fn a_guest_that_has_left_again_was_activated_here() {
        let (inbox, _messages) = crate::engine::inbox();
        let mut guests = Guests::new(inbox, &[], Keeper::thread().unwrap());
        let arrives =
            |ticket: &str| Some(Moving::Arrives(Arc::new(Arriving::new("vm", ticket, oneshot::channel().0))));
        let record = Record {
            spec: Spec::new("vm", Runner::Qemu, Vec::new()),
            pages: HugePages::default(),
            folder: PathBuf::new(),
            ports: Vec::new(),
            life: Life::Stopped,
            turn: 0,
            reason: String::new(),
            moving: arrives("1"),
            progress: None,
            arrived: None,
        };
        guests.records.insert("vm".into(), record);
        assert!(guests.arriving("vm", "1").unwrap().is_some());
        guests.decide("vm", "1").unwrap();
        guests.arrived("vm", "1").unwrap();
        guests.records.get_mut("vm").unwrap().moving = arrives("2");
        assert!(guests.arriving("vm", "1").unwrap().is_none());
        assert!(matches!(guests.abandon("vm", "1"), Err(GuestError::Arrived(_))));
        // The second time it was decided, and it could not go on.
        guests.decide("vm", "2").unwrap();
        let (arriving, ending) = guests.abandon("vm", "2").unwrap();
        assert!(ending.is_some());
        // Its QEMU may run: whoever asks waits for its end too.
        assert!(guests.arriving("vm", "2").unwrap().is_some());
        assert!(guests.abandon("vm", "2").unwrap().1.is_none());
        let waits = tokio::spawn({
            let arriving = arriving.clone();
            async move { arriving.until_ended().await }
        });
        ending.unwrap().await.unwrap();
        guests.abandoned("vm", "2");
        assert!(!waits.is_finished());
        arriving.set_ended();
        waits.await.unwrap();
        assert!(matches!(guests.arriving("vm", "2"), Err(GuestError::NotArriving(_))));
        let kept = r#"{"tickets":["1"],"forgotten":false}"#;
        assert_eq!(guests.keeper.entries()["guest-activated/vm"].text, kept);
        for ticket in 3..200 {
            let ticket = ticket.to_string();
            guests.records.get_mut("vm").unwrap().moving = arrives(&ticket);
            guests.decide("vm", &ticket).unwrap();
        }
        assert_eq!(guests.activated["vm"].tickets.len(), ACTIVATED);
        // It was activated with more tickets than are known.
        assert!(matches!(guests.arriving("vm", "3"), Err(GuestError::Forgotten(_))));
        // A fabric's file is changed: it is another guest of the same name, or none.
        drop(guests.remove("vm").unwrap());
        assert!(guests.arriving("vm", "199").unwrap().is_none());
        let mut others = Guests::new(crate::engine::inbox().0, &[], Keeper::thread().unwrap());
        let mut kept = guests.keeper.entries();
        others.adopt_activated(&mut kept);
        assert_eq!(others.activated, guests.activated);
        assert!(!kept.contains_key("guest-activated/vm"));
    }

    #[test]
    fn a_departure_of_an_older_version_may_have_been_activated() {
        let read = |text| serde_json::from_str::<KeptDeparture>(text).unwrap().asked;
        assert!(read("{\"to\":\"/x\",\"ticket\":\"t\"}"));
        assert!(!read("{\"to\":\"/x\",\"ticket\":\"t\",\"asked\":false}"));
    }

    #[test]
    fn the_fabric_that_prepared_a_guest_is_kept() {
        let fabric = Some(FabricIdentity::new("lab", "1f"));
        let kept = KeptDeparture { to: "/x".into(), ticket: "t".into(), asked: true, fabric: fabric.clone() };
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<KeptDeparture>(&text).unwrap().fabric, fabric);
        let older = "{\"to\":\"/x\",\"ticket\":\"t\",\"asked\":true}";
        assert_eq!(serde_json::from_str::<KeptDeparture>(older).unwrap().fabric, None);
    }
}
