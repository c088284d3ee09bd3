//! Ports whose guests arrive from another fabric.

use super::{Fabric, Record};
use crate::arrival::follow;
use crate::proto::ArrivalStep;
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
    let lookup = Arc::new(Flooding::new(switch.lookup.clone(), arriving));
    Arc::new(Switch { lookup, members, has_policies, snooping })
}

impl Fabric {
    /// Keeps, delivers or drops the frames for a guest that arrives, with its ports and its address at each. Unknown
    /// ports are left out.
    pub fn arrival(&mut self, ports: &[(String, MacAddress)], step: ArrivalStep) {
        let now = self.clock.now();
        for (port, mac) in ports {
            let Some(record) = self.ports.get_mut(port) else { continue };
            match (step, &record.arrival) {
                (ArrivalStep::Keep, None) => {
                    let arrival = Arc::default();
                    if !follow(&record.rx, &arrival) {
                        tracing::warn!(
                            port,
                            "a worker has its queue locked; frames for the guest are not kept"
                        );
                    }
                    arrival.keep(*mac);
                    record.arrival = Some(arrival);
                }
                (ArrivalStep::Keep, Some(arrival)) => arrival.keep(*mac),
                (ArrivalStep::Deliver { stopped_ago }, Some(arrival)) => {
                    arrival.deliver(now.saturating_sub(stopped_ago));
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
}
