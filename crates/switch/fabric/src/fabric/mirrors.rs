//! The mirrors of a fabric, from the descriptions of the ports that get copies.

use super::{Fabric, Record};
use crate::mirror::{MirrorRule, MirrorTarget};
use crate::policy::VlanSet;
use crate::topology::Topology;
use ringway_spec::{Mirror, Mirrored, To};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Fabric {
    /// The rules of each mirrored port. `queues` has the place of each port's RX queues in the topology. Ports that do
    /// not exist are mirrored once they do.
    pub(super) fn mirrors(
        &self,
        topology: &Topology,
        queues: &BTreeMap<&str, (u32, u32)>,
    ) -> BTreeMap<String, Arc<[MirrorRule]>> {
        let mut rules: BTreeMap<&str, Vec<MirrorRule>> = BTreeMap::new();
        for (name, record) in self.ports.iter().filter(|(_, record)| !record.leaving) {
            let Some(mirror) = &record.spec.policy.mirror else { continue };
            let Some(&(first, count)) = queues.get(&**name) else { continue };
            let slots = topology.rx.get(first as usize..(first + count) as usize).unwrap_or_default();
            let target = Arc::new(MirrorTarget {
                port: record.id,
                slots: slots.to_vec(),
                steer: record.steer.clone(),
                policy: record.policy.clone(),
                captures: self.captures.of_port(name),
                vlans: (!mirror.vlans.is_empty()).then(|| VlanSet::of(mirror.vlans.iter().copied())),
                snap: mirror.snap.unwrap_or(u32::MAX),
                tag: mirror.tag,
            });
            let rule = MirrorRule {
                from: mirror.direction != Mirrored::To,
                to: mirror.direction != Mirrored::From,
                target,
            };
            let is_chosen = |(other, own): &(&String, &Record)| is_mirrored(other, own, mirror);
            for (mirrored, own) in self.ports.iter().filter(is_chosen) {
                // What a switch sends to a link goes into the other direction's queue.
                let receiver = own.spec.receiver.as_ref().filter(|_| rule.to);
                if let Some(receiver) = receiver {
                    let to = MirrorRule { from: false, ..rule.clone() };
                    rules.entry(receiver).or_default().push(to);
                }
                let rule = MirrorRule { to: rule.to && receiver.is_none(), ..rule.clone() };
                rules.entry(mirrored).or_default().push(rule);
            }
        }
        rules.into_iter().map(|(port, rules)| (port.into(), rules.into())).collect()
    }
}

/// Whether a port's frames are copied. Those of a port that gets copies itself never are: mirrors have no loops.
fn is_mirrored(name: &str, record: &Record, mirror: &Mirror) -> bool {
    let on_switch = |switch: &String| matches!(&record.spec.to, Some(To::Switch(own)) if own == switch);
    let is_named =
        mirror.ports.iter().any(|own| own == name) || mirror.switch.as_ref().is_some_and(on_switch);
    is_named && record.spec.policy.mirror.is_none()
}
