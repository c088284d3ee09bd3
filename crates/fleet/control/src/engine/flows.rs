//! Flow tables of switches. `control` has the rules too: a `data` process that is started again gets them from here,
//! and another `control` process from `data`, or from the description of the fabric.

use super::{Answer, Engine, EngineError, Failure};
use crate::api::{FlowPortView, FlowView, FlowsChange, FlowsChanged, FlowsView, MeterView};
use crate::change;
use crate::data::DataError;
use crate::events::EventKind;
use crate::file::Fabric;
use crate::file::flows::{check_rules, ports_of, settings};
use ringway_fabric::proto::{FlowOrder, FlowState, Reply, Request};
use ringway_flow::{Change, Changes, FlowFilter, FlowMod, Pipeline, Rules, TABLES, Tables};
use ringway_spec::{Kind, Switch};
use ringway_switch::PortNumbers;
use ringway_switch::flows::{LOOKUP, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Flows up to which the description of the fabric is written again with each change. With more, `control` and `data`
/// must not be killed at once, or the last changes are lost.
const FEW: usize = 4096;
/// Expired flows of which an event's text has the first ones.
const SHOWN: usize = 4;

/// The flow tables of a switch.
pub(super) struct FlowSwitch {
    ports: PortNumbers,
    tables: Tables,
    /// Number of the changes so far.
    revision: u64,
    /// The number that `data` has of them; none: it is not known.
    in_data: Option<u64>,
    /// Whether the description of the fabric is out of date.
    is_changed: bool,
}

impl FlowSwitch {
    fn rules(&self) -> String {
        self.tables.rules().show(&self.ports.names())
    }

    /// The rules as a file has them, if they are few; others are those of the flows, groups and meters.
    fn rules_of_few(&self) -> String {
        if self.tables.current().len() <= FEW { self.rules() } else { String::new() }
    }

    fn replace(&mut self, text: &str) -> Result<Vec<String>, String> {
        let rules = Rules::read(text, &self.ports).map_err(|error| error.to_string())?;
        let before = self.tables.current().version();
        let line = |error| format!("line {}: {error}", Rules::line_of(text, &error, &self.ports));
        let difference = self.tables.replace(&rules, 0).map_err(line)?;
        self.changed_since(before);
        Ok(difference.show(&self.ports.names()).lines().map(String::from).collect())
    }

    /// Notes a change, if there is one since a version of the tables.
    fn changed_since(&mut self, version: u64) {
        if self.tables.current().version() != version {
            self.revision += 1;
            self.is_changed = true;
        }
    }
}

/// The first revision: the time in microseconds, which JSON's numbers have. Another `control` process of the same
/// switch begins with a greater one than the former had, so that no client takes its rules for those that it knows.
fn first_revision() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time.as_micros() as u64 & ((1 << 53) - 1)
}

/// All switches with flow tables, by name.
pub(super) type FlowSwitches = BTreeMap<String, FlowSwitch>;

/// What is asked for.
#[derive(Debug)]
pub enum FlowRequest {
    /// The flows that a filter means, with groups and meters.
    Dump(String, Answer<FlowsView>),
    /// A change.
    Change(FlowsChange, Answer<FlowsChanged>),
}

impl Engine {
    /// Whether the rules of switches that changes add or change can be read, with the numbers that their ports will
    /// have.
    pub(super) fn check_flows(&self, changes: &[change::Change], target: &Fabric) -> Result<(), EngineError> {
        for change in changes {
            let (change::Change::AddSwitch(switch) | change::Change::SetFlows(switch)) = change else {
                continue;
            };
            let Some(Settings { rules, mut ports, .. }) = settings(switch) else { continue };
            if let (change::Change::SetFlows(_), Some(own)) = (change, self.flows.get(&switch.name)) {
                ports = own.ports.clone();
            }
            ports.assign(ports_of(target, &switch.name));
            check_rules(&rules, &ports).map_err(|what| EngineError::Flows(switch.name.clone(), what))?;
        }
        Ok(())
    }

    /// Begins to have the rules of a switch that is added, if it has flow tables: those of its description. Ports get
    /// their numbers, in the order in which the fabric has them.
    pub(super) fn begin_flows(&mut self, switch: &Switch, fabric: &Fabric) -> Result<(), EngineError> {
        let Some(Settings { rules, mut ports, .. }) = settings(switch) else { return Ok(()) };
        ports.assign(ports_of(fabric, &switch.name));
        let tables = Tables::new(0);
        let revision = first_revision();
        let mut own = FlowSwitch { ports, tables, revision, in_data: Some(1), is_changed: true };
        own.replace(&rules).map_err(|what| EngineError::Flows(switch.name.clone(), what))?;
        self.flows.insert(switch.name.clone(), own);
        Ok(())
    }

    /// A switch as `data` gets it: with the rules and the numbers of ports as they are now.
    pub(super) fn switch_for_data(&self, switch: &Switch) -> Switch {
        let Some(own) = self.flows.get(&switch.name) else { return switch.clone() };
        let settings = Settings { rules: own.rules(), ports: own.ports.clone(), file: None };
        Switch { lookup: Kind::new(LOOKUP.name, &settings), ..switch.clone() }
    }

    /// Adds the switches to a `data` process that has been started.
    pub(super) fn switches_for_data(&mut self) -> Vec<Switch> {
        self.flows.values_mut().for_each(|own| own.in_data = Some(1));
        self.fabric.switches.iter().map(|switch| self.switch_for_data(switch)).collect()
    }

    /// Gives a port its number, if its switch has flow tables.
    pub(super) async fn number_port(&mut self, switch: &str, port: &str) -> Result<(), EngineError> {
        let Some(own) = self.flows.get_mut(switch) else { return Ok(()) };
        if !own.ports.assign([port].into_iter()) {
            return Ok(());
        }
        own.is_changed = true;
        let order = FlowOrder::Ports(own.ports.clone());
        self.call(switch, Request::Flows { switch: switch.into(), order }).await.map(drop)
    }

    /// Makes rules those of a switch. What stays keeps what was counted.
    pub(super) async fn set_flows(&mut self, switch: &Switch) -> Result<(), EngineError> {
        let (name, rules) = (&switch.name, settings(switch).unwrap_or_default().rules);
        let refused = |what| EngineError::Flows(name.clone(), what);
        let Some(own) = self.flows.get_mut(name) else { return Ok(()) };
        let former = own.tables.current().clone();
        own.replace(&rules).map_err(refused)?;
        let order = FlowOrder::Replace(own.rules());
        self.change_in_data(name, order, former).await.map(drop)
    }

    /// Sends a change to `data`. If that refuses it, the rules are the former ones again, or those of `data`.
    async fn change_in_data(
        &mut self,
        switch: &str,
        order: FlowOrder,
        former: Arc<Pipeline>,
    ) -> Result<u64, EngineError> {
        let reply = self.call(switch, Request::Flows { switch: switch.into(), order }).await;
        let Some(own) = self.flows.get_mut(switch) else { return Ok(0) };
        match reply {
            Ok(Reply::Flows(FlowState { revision, count, .. })) => {
                own.in_data = Some(revision);
                self.is_changed |= own.tables.current().len() <= FEW;
                Ok(count)
            }
            // It gets the rules when it is started again.
            Ok(_) | Err(EngineError::Data(_, DataError::Gone)) => Ok(0),
            Err(error) => {
                let before = own.tables.current().version();
                own.tables.restore(former);
                own.changed_since(before);
                self.pull_flows(switch).await;
                Err(error)
            }
        }
    }

    /// Carries out a request about the flow tables of a switch.
    pub(super) async fn flow_request(&mut self, switch: String, request: FlowRequest) {
        // The client may have disconnected.
        match request {
            FlowRequest::Dump(filter, answer) => drop(answer.send(self.flows_view(switch, filter).await)),
            FlowRequest::Change(change, answer) => {
                drop(answer.send(self.change_flows(&switch, change).await));
            }
        }
    }

    fn flow_switch(&mut self, name: &str) -> Result<&mut FlowSwitch, Failure> {
        self.has_switch(name)?;
        let without =
            || Failure::conflict(format!("switch \"{name}\" has no flow tables: its lookup is not \"flow\""));
        self.flows.get_mut(name).ok_or_else(without)
    }

    async fn flows_view(&mut self, name: String, filter: String) -> Result<FlowsView, Failure> {
        let own = self.flow_switch(&name)?;
        FlowFilter::read(&filter, false, &own.ports).map_err(Failure::wrong)?;
        let order = FlowOrder::Dump { filter };
        let reply = self.call(&name, Request::Flows { switch: name.clone(), order }).await;
        let Reply::Flows(state) = reply.map_err(Failure::conflict)? else {
            return Err(Failure::conflict("the data process gave another answer"));
        };
        let own = self.flow_switch(&name)?;
        let port = |(name, number): (&String, &u16)| FlowPortView { number: *number, name: name.clone() };
        let mut ports: Vec<_> = own.ports.0.iter().map(port).collect();
        ports.sort_by_key(|port| port.number);
        let meter = |(text, [packets, dropped]): (String, [u64; 2])| MeterView { text, packets, dropped };
        Ok(FlowsView {
            revision: own.revision,
            rules: own.rules_of_few(),
            switch: name,
            flows: state.flows.into_iter().map(FlowView::of).collect(),
            omitted: state.omitted,
            groups: state.groups,
            meters: state.meters.into_iter().map(meter).collect(),
            ports,
        })
    }

    /// Makes a change, all of it or nothing.
    async fn change_flows(&mut self, name: &str, change: FlowsChange) -> Result<FlowsChanged, Failure> {
        let own = self.flow_switch(name)?;
        if let Some(known) = change.revision.filter(|known| *known != own.revision) {
            let what = format!("the flows have changed since revision {known}: it is {} now", own.revision);
            return Err(Failure::conflict(what));
        }
        let former = own.tables.current().clone();
        let (order, difference) = match change {
            FlowsChange { rules: Some(rules), dry_run: true, .. } => {
                let wanted = Rules::read(&rules, &own.ports).map_err(Failure::wrong)?;
                let difference = own.tables.difference(&wanted).show(&own.ports.names());
                let difference = difference.lines().map(String::from).collect();
                return Ok(FlowsChanged { revision: own.revision, count: 0, difference });
            }
            FlowsChange { rules: Some(rules), .. } => {
                let difference = own.replace(&rules).map_err(Failure::wrong)?;
                (FlowOrder::Replace(own.rules()), difference)
            }
            FlowsChange { changes, command, .. } => {
                let text = changes.unwrap_or_default();
                let read = Changes::read(&text, command.as_deref(), &own.ports).map_err(Failure::wrong)?;
                let line = |(number, error)| Failure::wrong(format!("line {}: {error}", read.line(number)));
                own.tables.apply(&read.changes, 0).map_err(line)?;
                own.changed_since(former.version());
                (FlowOrder::Change { text, command }, Vec::new())
            }
        };
        let revision = own.revision;
        let count = self.change_in_data(name, order, former).await.map_err(Failure::conflict)?;
        let count = count.max(difference.len() as u64);
        self.note(EventKind::Change, name, &format!("change flows of switch {name}"));
        Ok(FlowsChanged { revision, count, difference })
    }

    /// Flows have expired in `data`: they are no rules any more.
    pub(super) async fn flows_expired(
        &mut self,
        switch: &str,
        (revision, count): (u64, u64),
        flows: &[String],
    ) {
        let shown: Vec<&str> = flows.iter().take(SHOWN).map(|flow| &**flow).collect();
        let more = count.saturating_sub(shown.len() as u64);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        self.note(EventKind::FlowsExpired, switch, &(shown.join("; ") + &more));
        let Some(own) = self.flows.get_mut(switch) else { return };
        let read = flows.iter().map(|text| FlowMod::read(text, &own.ports).ok());
        let read: Option<Vec<FlowMod>> = read.collect();
        match read.filter(|read| read.len() as u64 == count && own.in_data == Some(revision)) {
            Some(expired) => {
                let delete = |flow: FlowMod| {
                    let FlowMod { table, of, priority, .. } = flow;
                    let filter =
                        FlowFilter { table: Some(table), of, strict: Some(priority), ..Default::default() };
                    Change::Delete(filter)
                };
                let changes: Vec<Change> = expired.into_iter().map(delete).collect();
                let before = own.tables.current().version();
                // Nothing is named that deletions could lack.
                let _ = own.tables.apply(&changes, 0);
                own.changed_since(before);
                self.is_changed |= own.tables.current().len() <= FEW;
            }
            None => self.pull_flows(switch).await,
        }
    }

    /// Takes the rules that `data` has.
    async fn pull_flows(&mut self, switch: &str) {
        let request = Request::Flows { switch: switch.into(), order: FlowOrder::Rules };
        let reply = self.call(switch, request).await;
        let Some(own) = self.flows.get_mut(switch) else { return };
        match reply {
            Ok(Reply::Flows(FlowState { revision, flows, omitted: 0, .. })) => {
                own.in_data = Some(revision);
                if let Err(error) = own.replace(&flows.join("\n")) {
                    tracing::error!(switch, error, "the flows of the data process can't be read");
                }
                self.is_changed = true;
            }
            other => {
                own.in_data = None;
                tracing::warn!(switch, ?other, "the flows of the data process are not known");
            }
        }
    }

    /// Goes on with the flow tables that a former `control` process had: as `data` has them, if it is there.
    pub(super) async fn adopt_flows(&mut self, fabric: &Fabric, has_data: bool) {
        for switch in &fabric.switches {
            if let Err(error) = self.begin_flows(switch, fabric) {
                tracing::error!(%error);
            }
            if has_data && self.flows.contains_key(&switch.name) {
                self.pull_flows(&switch.name).await;
            }
        }
    }

    /// Writes the rules as they are now into the description of the fabric.
    pub(super) fn describe_flows(&mut self) {
        for at in 0..self.fabric.switches.len() {
            let switch = &self.fabric.switches[at];
            let Some(own) = self.flows.get_mut(&switch.name).filter(|own| own.is_changed) else { continue };
            own.is_changed = false;
            let on: Vec<&str> = ports_of(&self.fabric, &switch.name).collect();
            // A file can't name ports that are not there.
            let names = own.ports.names().only(|name| on.contains(&name));
            let rules = own.tables.rules().show(&names);
            let file = settings(switch).and_then(|settings| settings.file);
            let settings = Settings { rules, file, ports: own.ports.clone() };
            self.fabric.switches[at].lookup = Kind::new(LOOKUP.name, &settings);
        }
    }

    /// Number of the flows of a switch, if it has flow tables.
    pub(super) fn flow_count(&self, switch: &str) -> Option<usize> {
        self.flows.get(switch).map(|own| own.tables.current().len())
    }

    /// What the former `data` process has counted of flows, for the one that takes its place.
    pub(super) async fn pass_flow_counts(&mut self, former: &mut crate::data::Data) {
        let names: Vec<String> = self.flows.keys().cloned().collect();
        for name in names {
            // All at once, or table by table if one answer has no room for them.
            if self.pass_counts_of(former, &name, String::new()).await == 0 {
                continue;
            }
            for table in 0..TABLES {
                let omitted = self.pass_counts_of(former, &name, format!("table={table}")).await;
                if omitted > 0 {
                    tracing::warn!(switch = name, table, "what {omitted} flows have counted is lost");
                }
            }
        }
    }

    /// As [`Engine::pass_flow_counts`], for the flows that a filter means. If one answer has no room for all of them,
    /// nothing is passed on; returns the number of those for which there is none.
    async fn pass_counts_of(&mut self, former: &mut crate::data::Data, name: &str, filter: String) -> u64 {
        let dump = Request::Flows { switch: name.into(), order: FlowOrder::Dump { filter } };
        let Ok(Reply::Flows(state)) = super::replace::ask(former, dump).await else { return 0 };
        if state.omitted > 0 {
            return state.omitted;
        }
        let order = FlowOrder::Counts(state.flows.join("\n"));
        if let Err(error) = self.call(name, Request::Flows { switch: name.into(), order }).await {
            tracing::warn!(%error, "what flows have counted is lost");
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_count_changes_and_wrong_rules_have_their_line() {
        let first = first_revision();
        assert!(first > 1 << 50 && first < 1 << 53, "it is one of JSON's numbers");
        let (ports, tables) = (PortNumbers::default(), Tables::new(0));
        let mut own = FlowSwitch { ports, tables, revision: first, in_data: None, is_changed: false };
        assert_eq!(own.replace("arp,actions=drop"), Ok(vec!["+cookie=0x0,table=0,arp actions=drop".into()]));
        assert_eq!((own.revision, std::mem::take(&mut own.is_changed)), (first + 1, true));
        assert_eq!(own.replace("# the same\narp actions=drop"), Ok(Vec::new()));
        assert_eq!((own.revision, own.is_changed), (first + 1, false));
        let refused = own.replace("arp,actions=drop\nip,actions=group:4").unwrap_err();
        assert_eq!(refused, "line 2: there is no group 4");
        assert_eq!((own.revision, own.is_changed), (first + 1, false));
        // What `data` refuses is taken back.
        let former = own.tables.current().clone();
        own.replace("udp,actions=drop").unwrap();
        own.tables.restore(former);
        assert_eq!(own.rules(), "cookie=0x0,table=0,arp actions=drop\n");
    }
}
