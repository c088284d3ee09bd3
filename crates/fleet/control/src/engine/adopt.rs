//! Going on with the fabric of a `control` process that crashed: what it had comes from the keeper.

use super::running_port::{KeptPort, RunningPort, kept_port};
use super::{Engine, EngineError, EngineParts, Messages};
use crate::data::{self, Data, KeptData, Page};
use crate::events::EventKind;
use crate::file::{self, Added, Fabric, Host};
use crate::hosts::Hosts;
use crate::keeper::{DATA, NEW, NO_DESCRIPTORS, StoredEntry, TRIAL, end_strays};
use crate::kinds::{self, HostSide, PortControl};
use crate::open::Adopted;
use crate::run_dir;
use ringway_fabric::proto::{ArrivalStep, Reply, Request, State};
use ringway_spec::{MacAddress, Port};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// The keeper's name for the description of the fabric.
const FABRIC: &str = "fabric";

const OTHER_DATA_STAYS: &str = "the data process of the other program goes on";
const NOT_RESTORED: &str = "part of the fabric could not be restored";

/// The fabric as it runs, and the file that described it last.
#[derive(Serialize, Deserialize)]
pub struct KeptFabric {
    /// The file.
    pub file: String,
    text: String,
    fabric: Fabric,
    /// Tables of what requests added since then.
    #[serde(default, skip_serializing_if = "Added::is_empty")]
    added: Added,
}

/// A descriptor that the keeper must have.
pub fn descriptor(found: &mut BTreeMap<String, StoredEntry>, name: &str) -> io::Result<OwnedFd> {
    let first = found.remove(name).and_then(|found| found.descriptors.into_iter().next());
    first.ok_or_else(|| io::Error::other(format!("the keeper has no descriptor {name}")))
}

impl KeptFabric {
    /// A fabric that runs, and its file's name and text.
    pub fn new(file: &str, text: &str, fabric: Fabric) -> KeptFabric {
        KeptFabric { file: file.into(), text: text.into(), fabric, added: Added::new() }
    }

    /// The fabric of a former `control` process, if there was one.
    pub fn find(found: &BTreeMap<String, StoredEntry>) -> Option<KeptFabric> {
        serde_json::from_str(&found.get(FABRIC)?.text).ok()
    }

    /// The fabric, and its file's text.
    ///
    /// # Errors
    /// The text can't be read any more.
    pub fn fabric(self, host: &Host) -> io::Result<(Fabric, String)> {
        let described = file::read(&self.file, &self.text, host);
        let described = described.map_err(|problems| io::Error::other(problems.to_string()))?;
        let fabric = Fabric { placement: described.placement, warnings: described.warnings, ..self.fabric };
        Ok((fabric, self.text))
    }

    /// The ports, without reading the text.
    #[cfg(test)]
    pub fn ports(&self) -> &[ringway_spec::Port] {
        &self.fabric.ports
    }
}

impl Engine {
    /// Gives the keeper the description of the fabric, if it has changed.
    pub(super) fn keep_fabric(&mut self) {
        self.functions.keep();
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        self.describe_flows();
        let mut kept = KeptFabric::new(&self.file, &self.text, self.fabric.clone());
        kept.added.clone_from(&self.added);
        self.keeper.put_value(FABRIC, &kept, NO_DESCRIPTORS);
    }

    /// Goes on with a fabric that a former `control` process had: `data`, ports and their peers, guests, programs,
    /// functions with processes and hosts stay; functions on workers and what can't stay are started again. `messages`
    /// are those to the engine.
    ///
    /// If it was another program's, `data` is replaced; returns notes about that for people. An error means that the
    /// fabric must go back to the former program; it comes only if that is possible.
    pub async fn adopt(
        fabric: &Fabric,
        file: (String, String),
        mut found: BTreeMap<String, StoredEntry>,
        (own, messages): (EngineParts, &mut Messages),
    ) -> Result<(Engine, Option<Vec<String>>), EngineError> {
        let trial = found.remove(TRIAL).map(|entry| entry.text);
        let (is_other, is_new) = (trial.is_some(), trial.as_deref() == Some(NEW));
        let page = descriptor(&mut found, "page").map_err(|error| EngineError::Page(error.into()))?;
        let mut engine = Engine::bare(fabric, file, Page::adopt(page), own);
        let state = engine.adopt_data(&mut found).await;
        engine.functions.adopt_turns(&found, state.as_ref().map_or(&[], |state| &state.functions));
        engine.stop_rest(state.as_ref(), is_other).await;
        engine.added = found
            .get(FABRIC)
            .and_then(|kept| serde_json::from_str(&kept.text).ok())
            .map_or_else(Added::new, |kept: KeptFabric| kept.added);
        engine.fabric.switches.clone_from(&fabric.switches);
        engine.adopt_flows(fabric, state.is_some()).await;
        engine.guests.adopt_users(fabric, &mut found);
        engine.adopt_hosts(fabric, &mut found);
        engine.adopt_switches(&fabric.openings, &mut found);
        engine.adopt_ports(fabric, &mut found, state.as_ref()).await;
        let has_other_data = is_other && state.is_some();
        match state {
            Some(state) if is_other => {
                engine.adopt_functions(fabric, &mut found);
                engine.take_other_data(fabric, messages, (&state, is_new)).await?;
            }
            Some(state) => engine.remove_unknown(&state).await,
            None => {
                // What was served is not known to be the reason.
                drop(engine.take_served());
                engine.restart_data().await;
            }
        }
        engine.adopt_guests(fabric, &mut found);
        engine.adopt_programs(fabric, &mut found);
        if !has_other_data {
            engine.adopt_functions(fabric, &mut found);
        }
        engine.end_strays();
        // Of processes that nobody goes on with.
        found.keys().filter(|name| name.contains("-process/")).for_each(|name| engine.keeper.remove(name));
        let (ports, guests, functions) =
            (engine.running_ports.len(), engine.guests.len(), engine.functions.len());
        let by = if is_new { "of another program" } else { "the former one was killed or failed" };
        engine.note(EventKind::ControlResumed, "", &format!("process {}, {by}", std::process::id()));
        match trial.as_deref() {
            Some(NEW) => tracing::info!(ports, guests, functions, "the new program goes on with the fabric"),
            Some(why) => {
                tracing::error!(why, ports, guests, functions, "the former program goes on with the fabric");
            }
            None => {
                let what = "the control process was killed: another one goes on";
                tracing::warn!(ports, guests, functions, "{what}");
            }
        }
        engine.forget_assignment(None);
        match engine.move_to(fabric).await {
            Err(error) if is_new => return Err(error),
            moved => _ = moved.inspect_err(|error| tracing::error!(%error, "{NOT_RESTORED}")),
        }
        if is_new {
            // `data` may have ended again.
            engine.call("the data process", Request::State).await?;
        }
        let notes = std::mem::take(&mut engine.notes);
        Ok((engine, is_other.then_some(notes)))
    }

    /// Replaces `data`, which is another program's, and starts functions on workers, which were adopted before, in the
    /// other process before it gets the frames for them. If that fails, the fabric must go back to the former program
    /// if this one is new; otherwise that `data` goes on, whose state was `state`, and what it runs is started there
    /// again.
    async fn take_other_data(
        &mut self,
        fabric: &Fabric,
        messages: &mut Messages,
        (state, is_new): (&State, bool),
    ) -> Result<(), EngineError> {
        match self.replace_data(fabric, messages).await {
            Err(error) if !is_new => {
                tracing::error!(%error, "{OTHER_DATA_STAYS}");
                self.stop_former(state).await;
                let gone = self.functions.data_ended();
                self.forget_functions(gone);
                Ok(())
            }
            replaced => replaced,
        }
    }

    /// Goes on with the `data` process; returns its state if it still runs.
    async fn adopt_data(&mut self, found: &mut BTreeMap<String, StoredEntry>) -> Option<State> {
        let kept = match serde_json::from_str::<KeptData>(&found.get(data::KEPT)?.text) {
            Ok(kept) => kept,
            Err(error) => {
                tracing::error!(%error, "what is kept of the data process; starting another one");
                // This process must not move frames any more when the other one does.
                descriptor(found, data::KEPT).iter().for_each(data::end_process);
                return None;
            }
        };
        self.restarts = kept.generation.saturating_sub(1);
        let mut own = found.remove(data::KEPT)?.descriptors.into_iter();
        let (process, socket) = ((own.next()?, own.next()), descriptor(found, DATA).ok()?);
        let adopted = Data::adopt(kept, process, &socket, self.inbox.clone(), &self.keeper);
        self.data = adopted.inspect_err(|error| tracing::warn!(%error, "the data process ended too")).ok();
        match self.call("the data process", Request::State).await {
            Ok(Reply::State(state)) => Some(state),
            other => {
                tracing::warn!(?other, "the data process does not answer as expected; starting another one");
                // Dropping it ends it.
                self.data = None;
                None
            }
        }
    }

    /// Ends what `data` has of captures, and of functions unless `data` is replaced, and lets frames go on that were
    /// held.
    async fn stop_rest(&mut self, state: Option<&State>, is_replaced: bool) {
        let Some(state) = state else { return };
        if !is_replaced {
            self.stop_former(state).await;
        }
        let captures = state.captures.iter().map(|number| Request::EndCapture { number: *number });
        let ports: Vec<String> = state.ports.iter().map(|port| port.name.clone()).collect();
        // A guest that was to arrive does not, or runs here already.
        let arrivals = ports.iter().map(|port| (port.clone(), MacAddress::default())).collect();
        let arrivals = Request::Arrival { ports: arrivals, step: ArrivalStep::Abandon };
        let hold = Request::Hold { ports, held: false, watched: false };
        for request in captures.chain([arrivals, hold]).collect::<Vec<_>>() {
            if let Err(error) = self.call("captures of the previous control process", request).await {
                tracing::error!(%error);
            }
        }
    }

    /// Ends the functions that `data` runs for the former `control`.
    async fn stop_former(&mut self, state: &State) {
        for number in &state.functions {
            let request = Request::StopFunction { number: *number };
            if let Err(error) = self.call("functions of the previous control process", request).await {
                tracing::error!(%error);
            }
        }
    }

    /// Goes on with the ports that `data` has too; without `data`, with all. Others are added again.
    async fn adopt_ports(
        &mut self,
        fabric: &Fabric,
        found: &mut BTreeMap<String, StoredEntry>,
        state: Option<&State>,
    ) {
        let states = state.into_iter().flat_map(|state| &state.ports);
        let states: BTreeMap<&str, &str> = states.map(|port| (&*port.name, &*port.state)).collect();
        for port in &fabric.ports {
            let Some(kind) = kinds::find(port.kind.name(), self.host.kinds) else { continue };
            let Some(kept) = found.remove(&kept_port(&port.name)) else { continue };
            // A host that is made again needs a new one.
            let is_lost = |side: &HostSide| self.fabric.host(&side.host).is_none();
            if kind.host_side(port).as_ref().is_some_and(is_lost) || port.instance.is_some() {
                continue;
            }
            let in_data = states.get(&*port.name).copied();
            if state.is_some() && in_data.is_none() && kind.is_in_data() {
                continue;
            }
            match self.adopt_port((port, fabric), kind, kept, (found, state.is_some(), in_data)).await {
                Ok(()) => self.fabric.ports.push(port.clone()),
                Err(error) => {
                    tracing::error!(port = port.name, %error, "the port can't be restored; adding it again")
                }
            }
        }
    }

    /// Goes on with a port, whose state in `data` is given if there is one.
    async fn adopt_port(
        &mut self,
        (port, fabric): (&Port, &Fabric),
        kind: &dyn PortControl,
        kept: StoredEntry,
        (found, has_data, in_data): (&mut BTreeMap<String, StoredEntry>, bool, Option<&str>),
    ) -> Result<(), EngineError> {
        let system = |error: io::Error| EngineError::Page(error.into());
        let KeptPort { counters, queues, has_peer } =
            serde_json::from_str(&kept.text).map_err(|error| system(error.into()))?;
        let is_there = in_data.is_some_and(|state| state != "waiting");
        let stays =
            has_peer && kind.adopts() && if has_data { is_there } else { !kept.descriptors.is_empty() };
        if queues > 0 {
            self.page.retake(counters, queues.into())?;
        }
        if is_there && !stays && port.socket.is_some() {
            self.call(&port.name, Request::Detach { port: port.name.clone() }).await?;
        }
        self.epoch += 1;
        let mut live = RunningPort::new(&port.name, (counters, queues), self.epoch, &self.keeper);
        let copies = kept.descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
        let peer = stays.then_some(copies.map_err(system)?);
        // A guest's user owns its socket.
        let owned = self.guests.own(port, fabric)?;
        let opener = self.open(&owned, kind, Adopted::of(&port.name, found, peer));
        live.adopt(opener?, if stays { Some(kept.descriptors) } else { None });
        self.running_ports.insert(port.name.clone(), live);
        Ok(())
    }

    /// Goes on with guests; those that can't be are added again.
    fn adopt_guests(&mut self, fabric: &Fabric, found: &mut BTreeMap<String, StoredEntry>) {
        for guest in &fabric.guests {
            let folder = self.run.guest(&guest.name);
            match self.guests.adopt(guest, fabric, folder, found) {
                Ok(true) => self.fabric.guests.push(guest.clone()),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the guest is started again"),
            }
        }
    }

    /// Goes on with hosts; those that can't be are made again.
    fn adopt_hosts(&mut self, fabric: &Fabric, found: &mut BTreeMap<String, StoredEntry>) {
        for name in Hosts::of_former(fabric, found) {
            let Some(host) = fabric.host(&name) else { continue };
            let places = (self.run.host(&name), run_dir::namespace(self.run.path(), &name));
            match self.hosts.adopt(host, places.clone(), found) {
                Ok(()) => self.fabric.hosts.push(host.clone()),
                Err(error) => {
                    tracing::error!(%error, "the host is made again");
                    ringway_host::remove_namespace(&places.1);
                }
            }
        }
    }

    /// Goes on with functions; those that can't be, and those that multiply, are added again.
    fn adopt_functions(&mut self, fabric: &Fabric, found: &mut BTreeMap<String, StoredEntry>) {
        self.functions.adopt_snapshots(found);
        let folder = self.run.functions();
        for function in fabric.functions.iter().filter(|function| function.instance.is_none()) {
            match self.functions.adopt(function, fabric, &folder, found) {
                Ok(true) => self.fabric.functions.push(function.clone()),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the function is added again"),
            }
        }
    }

    /// Ends processes of the former `control` that nobody goes on with.
    fn end_strays(&self) {
        let data = self.data.iter().filter_map(|data| Pid::from_raw(data.pid.cast_signed()));
        let known = data.chain(self.guests.processes()).chain(self.programs.processes());
        let known = known.chain(self.functions.processes()).chain(self.hosts.processes());
        end_strays(&self.keeper, &known.collect(), |pid| self.hosts.have(pid));
    }

    /// Removes what `data` has and this fabric has not yet: it is added again.
    async fn remove_unknown(&mut self, state: &State) {
        let ports =
            state.ports.iter().map(|port| &port.name).filter(|name| !self.running_ports.contains_key(*name));
        let ports = ports.map(|name| Request::RemovePort { name: name.clone() });
        let is_known = |name: &&String| self.fabric.switches.iter().any(|switch| switch.name == **name);
        let switches = state.switches.iter().filter(|name| !is_known(name));
        let switches = switches.map(|name| Request::RemoveSwitch { name: name.clone() });
        for request in ports.chain(switches).collect::<Vec<_>>() {
            if let Err(error) = self.call("removing unknown ports and switches", request).await {
                tracing::error!(%error);
            }
        }
        self.fabric.switches.retain(|switch| state.switches.contains(&switch.name));
    }
}
