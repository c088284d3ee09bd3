//! Flow tables of switches: orders of `control`, the time of flows, and ports as they get copies.

use super::{Fabric, FabricError};
use crate::mirror::MirrorTarget;
use crate::proto::{Event, FlowOrder, FlowState, Reply};
use crate::topology::{Target, Topology};
use ringway_flow::{Changes, FlowFilter};
use ringway_switch::FlowTables;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Nanoseconds between two looks for flows whose time has ended.
const EXPIRY: u64 = 1_000_000_000;
/// Most bytes of the lines of an answer. Attack: as of `ringway_flow::FLOWS`, by an answer that is longer than a
/// message.
const ANSWER: usize = 24 << 20;

impl Fabric {
    /// Changes or reads the flow tables of a switch.
    ///
    /// # Errors
    /// There is no such switch, it has no flow tables, or the order is refused.
    pub fn flow_order(&mut self, switch: &str, order: FlowOrder) -> Result<Reply, FabricError> {
        let now = self.clock.now();
        let record = self.switches.get_mut(switch);
        let record = record.ok_or_else(|| FabricError::Unknown("switch", switch.into()))?;
        let wrong = |what: String| FabricError::Switch(switch.into(), what);
        let flows = record.lookup.flows();
        let flows = flows.ok_or_else(|| wrong("its lookup is not \"flow\"".into()))?;
        let mut count = 0;
        match order {
            FlowOrder::Ports(ports) => {
                if flows.set_ports(ports) {
                    // The lookup is made again.
                    record.made = None;
                    self.publish();
                }
                return Ok(Reply::Done);
            }
            FlowOrder::Change { text, command } => {
                count = change(flows, &text, command, now).map_err(wrong)?
            }
            FlowOrder::Replace(rules) => flows.replace(&rules, now).map_err(wrong)?,
            FlowOrder::Dump { filter } => return dump(flows, &filter, now).map(Reply::Flows).map_err(wrong),
            FlowOrder::Rules => return Ok(Reply::Flows(rules(flows))),
            FlowOrder::Counts(dump) => {
                flows.restore_counts(&dump);
                return Ok(Reply::Done);
            }
        }
        Ok(Reply::Flows(FlowState { revision: flows.revision(), count, ..FlowState::default() }))
    }

    /// Removes flows whose time has ended, once a second, and frees what workers do not use any more; an event for each
    /// switch.
    pub(super) fn expired_flows(&mut self) -> Vec<Event> {
        let now = self.clock.now();
        let mut events = Vec::new();
        for (name, record) in &mut self.switches {
            if now.saturating_sub(record.expired) < EXPIRY {
                continue;
            }
            record.expired = now;
            let Some(flows) = record.lookup.flows() else { continue };
            flows.tables().collect();
            let expired = flows.tables().expire(now);
            if expired.is_empty() {
                continue;
            }
            let names = flows.ports().names();
            // If an event has no room for all of them, `control` asks for the rules.
            let (texts, _) = bounded(expired.iter().map(|flow| flow.flow.show(&names)));
            let (revision, count) = (flows.revision(), expired.len() as u64);
            events.push(Event::FlowsExpired { switch: name.clone(), revision, flows: texts, count });
        }
        events
    }

    /// Adds the ports of switches with flow tables, as they get copies, to a topology that has all ports.
    pub(super) fn add_receivers(&self, topology: &mut Topology) {
        let mut receivers = Vec::new();
        for (name, record) in &self.ports {
            let Some(port) = topology.port(record.id) else { continue };
            let Target::Switch(switch) = &port.target else { continue };
            if switch.lookup.flows().is_none() {
                continue;
            }
            let receiver = record.spec.receiver.as_deref().unwrap_or(name);
            let rx = port.first as usize..(port.first + port.queues) as usize;
            let target = MirrorTarget {
                port: record.id,
                slots: topology.rx.get(rx).unwrap_or_default().to_vec(),
                steer: port.steer.clone(),
                policy: None,
                captures: self.captures.of_port(receiver),
                vlans: None,
                snap: u32::MAX,
                tag: None,
            };
            let at = usize::from(record.id);
            if receivers.len() <= at {
                receivers.resize_with(at + 1, || None);
            }
            receivers[at] = Some(Arc::new(target));
        }
        topology.receivers = receivers;
    }
}

/// Makes changes; returns how many flows were changed.
fn change(flows: &mut FlowTables, text: &str, command: Option<String>, now: u64) -> Result<u64, String> {
    let changes =
        Changes::read(text, command.as_deref(), flows.ports()).map_err(|error| error.to_string())?;
    let done = flows.tables().apply(&changes.changes, now);
    let count = done.map_err(|(number, error)| format!("line {}: {error}", changes.line(number)))?;
    flows.changed();
    Ok(count as u64)
}

/// The lines for which an answer has room, and the number of the others, which are not made.
fn bounded(lines: impl ExactSizeIterator<Item = String>) -> (Vec<String>, u64) {
    let (count, mut bytes) = (lines.len(), 0);
    let fits = |line: &String| {
        bytes += line.len();
        bytes <= ANSWER
    };
    let own: Vec<String> = lines.take_while(fits).collect();
    let omitted = (count - own.len()) as u64;
    (own, omitted)
}

fn dump(flows: &mut FlowTables, filter: &str, now: u64) -> Result<FlowState, String> {
    let filter = FlowFilter::read(filter, false, flows.ports()).map_err(|error| error.to_string())?;
    let (chosen, current) = (flows.tables().select(&filter), flows.tables().current().clone());
    let names = flows.ports().names();
    let (shown, omitted) = bounded(chosen.iter().map(|flow| flow.show(&names, now)));
    let groups = current.groups().values().map(|group| group.show(&names)).collect();
    let meters = current.meters().values().map(|meter| {
        let counted = [&meter.counters.frames, &meter.counters.dropped].map(|count| count.load(Relaxed));
        (meter.meter.show(), counted)
    });
    let meters = meters.collect();
    let revision = flows.revision();
    Ok(FlowState { revision, flows: shown, omitted, groups, meters, ..FlowState::default() })
}

/// The rules as a file has them: a message has room for those of any switch, see `ringway_flow::ALL_TEXT`.
fn rules(flows: &mut FlowTables) -> FlowState {
    let text = flows.tables().rules().show(&flows.ports().names());
    let lines = text.lines().map(String::from).collect();
    FlowState { revision: flows.revision(), flows: lines, ..FlowState::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_have_no_room_are_counted_and_not_made() {
        let made = std::cell::Cell::new(0);
        let line = |_: &u8| {
            made.set(made.get() + 1);
            "x".repeat(ANSWER / 4)
        };
        let (own, omitted) = bounded([0u8; 100].iter().map(line));
        assert_eq!((own.len(), omitted, made.get()), (4, 96, 5));
        assert_eq!(bounded([0u8; 3].iter().map(line)).1, 0);
    }
}
