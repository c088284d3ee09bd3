//! Ports whose guests arrive from another fabric, or leave for one.

use super::{Fabric, Record};
use crate::arrival::{Arrival, follow};
use crate::proto::{ArrivalStep, DeliveredFrames, DepartureStep};
use crate::topology::Switch;
use ringway_spec::{MacAddress, To};
use ringway_switch::{Flooding, Mac};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A switch that floods frames for the guests that arrive at its ports, if there are any.
pub(super) fn with_arrivals(
    switch: Arc<Switch>,
    ports: &BTreeMap<String, Record>,
    name: &str,
) -> Arc<Switch> {
    let on = |record: &&Record| matches!(&record.spec.to, Some(To::Switch(own)) if own == name);
    let arriving = ports.values().filter(on).filter_map(|record| record.arrival.as_ref()?.kept());
    let arriving: Vec<Mac> = arriving.collect();
    if arriving.is_empty() {
        return switch;
    }
    let (members, has_policies) = (switch.members.clone(), switch.has_policies);
    let snooping = switch.snooping.clone();
    let lookup = Flooding::over(switch.lookup.clone(), arriving);
    Arc::new(Switch { lookup, members, has_policies, snooping })
}

impl Fabric {
    /// Keeps, delivers or drops the frames for a guest that arrives, with its ports and its address at each. Unknown
    /// ports are left out.
    pub fn arrival(&mut self, ports: &[(String, MacAddress)], step: &ArrivalStep) {
        let now = self.clock.now();
        for (port, mac) in ports {
            let Some(record) = self.ports.get_mut(port) else { continue };
            match (step, &record.arrival) {
                (ArrivalStep::Keep, _) => followed(port, record).keep(*mac),
                (ArrivalStep::Deliver { stopped_ago, delivered }, Some(arrival)) => {
                    arrival.deliver(now.saturating_sub(*stopped_ago), delivered.as_ref());
                    // Learned from its frames when it ran elsewhere.
                    if let Some(To::Switch(switch)) = &record.spec.to
                        && let Some(made) = self.switches.get(switch).and_then(|switch| switch.made.as_ref())
                    {
                        made.lookup.forget(Mac::new(mac.0));
                    }
                }
                (ArrivalStep::Abandon, Some(arrival)) => arrival.abandon(),
                (_, None) => {}
            }
        }
        self.publish();
    }

    /// Notes which frames a guest gets that leaves, with its ports and its address at each. Returns them once it has
    /// left, if all of its ports know them. Unknown ports are left out.
    pub fn departure(
        &mut self,
        ports: &[(String, MacAddress)],
        step: DepartureStep,
    ) -> Option<Option<DeliveredFrames>> {
        let now = self.clock.now();
        let mut all: Option<DeliveredFrames> = None;
        for (port, mac) in ports {
            let Some(record) = self.ports.get_mut(port) else { continue };
            match step {
                DepartureStep::Watch => followed(port, record).watch(*mac, now),
                DepartureStep::Left { stopped_ago } => {
                    let arrival = record.arrival.as_ref();
                    let Some(own) =
                        arrival.and_then(|own| own.delivered(now.saturating_sub(stopped_ago), ports.len()))
                    else {
                        return Some(None);
                    };
                    let all =
                        all.get_or_insert_with(|| DeliveredFrames { known: own.known, frames: Vec::new() });
                    all.known = all.known.min(own.known);
                    all.frames.extend(own.frames);
                }
                DepartureStep::End => record.arrival.iter().for_each(|arrival| arrival.abandon()),
            }
        }
        matches!(step, DepartureStep::Left { .. }).then_some(all)
    }
}

/// The arrival or departure that the queues of a port follow.
fn followed<'r>(port: &str, record: &'r mut Record) -> &'r Arrival {
    let Record { arrival, rx, .. } = record;
    arrival.get_or_insert_with(|| {
        let arrival = Arc::default();
        if !follow(rx, &arrival) {
            tracing::warn!(port, "a worker has its queue locked; frames for it may be lost or come twice");
        }
        arrival
    })
}
