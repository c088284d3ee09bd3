//! Functions that multiply: which of their instances run, and which get flows.
//!
//! `data` reports a function whose instances all have had more to do for a while than they could; one more is started
//! then. An instance for which there was no need for some time gets no new flows, and is stopped when those that it has
//! are idle, or after a while.

use super::{Engine, Message, later};
use crate::functions::Phase;
use ringway_fabric::proto::{InstanceLoad, Reply, Request};
use ringway_spec::{Function, Instance, Instances, Isolation};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the time without overload may be doubled.
const MAX_DOUBLINGS: u32 = 5;
/// Shortest and longest time between two checks of a function that may shrink.
const CHECK_INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The state of an instance that is not needed and is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// The instance keeps its flows since then, and gets no new ones.
    Drains(Instant),
    /// The instance gets no more frames, and is stopped at the next check.
    Leaves,
}

/// The state of a function that multiplies.
#[derive(Debug)]
pub(super) struct MultipliedFunction {
    /// The masks of instances that were sent to `data` last.
    assigned: Option<(u32, u32)>,
    removals: BTreeMap<u16, Removal>,
    /// How often the time without overload is doubled, since the function was overloaded soon after it had shrunk.
    doubled: u32,
    /// When it last shrank.
    shrunk: Option<Instant>,
}

impl MultipliedFunction {
    fn new() -> MultipliedFunction {
        MultipliedFunction { assigned: None, removals: BTreeMap::new(), doubled: 0, shrunk: None }
    }

    /// Time without overload after which the function shrinks.
    fn settling_time(&self, instances: &Instances) -> Duration {
        Duration::from_nanos(instances.shrink) * (1 << self.doubled)
    }
}

/// The status of an instance.
struct InstanceStatus {
    number: u16,
    name: String,
    phase: Phase,
    /// Whether the instance has all its ports.
    attached: bool,
}

impl InstanceStatus {
    /// Whether the instance gets new flows.
    fn serves(&self, removals: &BTreeMap<u16, Removal>) -> bool {
        self.phase == Phase::Up && self.attached && !removals.contains_key(&self.number)
    }
}

impl Engine {
    /// First instances of functions that multiply.
    fn multiplying(&self) -> Vec<(Instance, Isolation)> {
        let first = |function: &Function| {
            let instance = function.instance.clone().filter(|instance| instance.number == 1)?;
            Some((instance, function.isolation))
        };
        self.fabric.functions.iter().filter_map(first).collect()
    }

    fn statuses(&self, instance: &Instance, isolation: Isolation) -> Vec<InstanceStatus> {
        let status = |number| {
            let name = Instance::name(&instance.of, number);
            let has_peer = |port: &String| self.running_ports.get(port).is_some_and(|live| live.attached);
            let ports = self.fabric.function(&name).map(Function::fabric_ports).unwrap_or_default();
            let attached = isolation == Isolation::Worker || ports.iter().all(has_peer);
            InstanceStatus { number, phase: self.functions.phase(&name), name, attached }
        };
        (1..=instance.instances.max).map(status).collect()
    }

    /// Makes `data` know which instances get flows, starts those that are missing, and stops those that are left over.
    pub(super) fn assign_instances(&mut self) {
        let multiplying = self.multiplying();
        self.multiplied.retain(|name, _| multiplying.iter().any(|(instance, _)| instance.of == *name));
        if self.data.is_none() {
            return;
        }
        let mut may_shrink = false;
        for (instance, isolation) in multiplying {
            let own = self.multiplied.entry(instance.of.clone()).or_insert_with(MultipliedFunction::new);
            let mut removals = std::mem::take(&mut own.removals);
            let statuses = self.statuses(&instance, isolation);
            for one in statuses.iter().filter(|one| one.phase == Phase::Ended) {
                // An instance that is not needed is not started again.
                if removals.remove(&one.number).is_some() {
                    self.functions.rest(&one.name);
                }
            }
            for number in keep_last(&statuses, &mut removals) {
                self.functions.set_draining(&Instance::name(&instance.of, number), false);
            }
            let masks = masks(&statuses, &removals);
            let runs = |one: &&InstanceStatus| one.phase.runs() && !removals.contains_key(&one.number);
            let running = statuses.iter().filter(runs).count();
            may_shrink |= running > usize::from(instance.instances.min) || !removals.is_empty();
            match statuses.first().map(|first| first.phase) {
                Some(Phase::Up) if running < usize::from(instance.instances.min) => {
                    let dormant = statuses.iter().filter(|one| one.phase == Phase::Dormant);
                    let missing = dormant.take(usize::from(instance.instances.min) - running);
                    missing.for_each(|one| self.functions.wanted(&one.name));
                }
                Some(Phase::Stopped) => {
                    statuses
                        .iter()
                        .filter(|one| one.phase.runs())
                        .for_each(|one| self.functions.rest(&one.name));
                    removals.clear();
                }
                _ => {}
            }
            self.assign(&instance.of, masks);
            if let Some(own) = self.multiplied.get_mut(&instance.of) {
                own.removals = removals;
            }
        }
        if may_shrink {
            self.schedule_instance_check();
        }
    }

    fn assign(&mut self, function: &str, (open, there): (u32, u32)) {
        let Some(own) = self.multiplied.get_mut(function) else { return };
        if own.assigned != Some((open, there)) {
            own.assigned = Some((open, there));
            let request = Request::Assign { function: function.into(), open, there };
            // If the request fails, `data` was restarted, or the function's ports do not exist yet: then it is sent
            // again.
            self.post(request, Vec::new(), drop);
        }
    }

    /// Makes the instances of a function, or of all, be sent to `data` again, since their ports were added.
    pub(super) fn forget_assignment(&mut self, function: Option<&str>) {
        let own = self.multiplied.iter_mut().filter(|(name, _)| function.is_none_or(|own| own == **name));
        own.for_each(|(_, own)| own.assigned = None);
    }

    /// Schedules the next check of functions that may shrink.
    fn schedule_instance_check(&mut self) {
        if std::mem::replace(&mut self.has_instance_check, true) {
            return;
        }
        let shortest = self.multiplying().iter().map(|(instance, _)| instance.instances.shrink).min();
        let time =
            Duration::from_nanos(shortest.unwrap_or(0) / 4).clamp(CHECK_INTERVALS.0, CHECK_INTERVALS.1);
        later(&self.inbox, time, Message::CheckInstances);
    }

    /// Starts one more instance of a function whose instances all are overloaded.
    pub(super) fn handle_overload(&mut self, function: &str) {
        let Some((instance, isolation)) =
            self.multiplying().into_iter().find(|(instance, _)| instance.of == function)
        else {
            return;
        };
        let statuses = self.statuses(&instance, isolation);
        let Some(own) = self.multiplied.get_mut(function) else { return };
        let drains = own.removals.iter().find(|(_, removal)| matches!(removal, Removal::Drains(_)));
        let drains = drains.map(|(number, _)| *number);
        // Its rings are full, but nothing runs.
        if statuses.first().is_some_and(|first| first.phase == Phase::Suspended) {
            return;
        }
        if own.shrunk.is_some_and(|shrunk| shrunk.elapsed() < own.settling_time(&instance.instances)) {
            (own.doubled, own.shrunk) = ((own.doubled + 1).min(MAX_DOUBLINGS), None);
        }
        if let Some(number) = drains {
            tracing::info!(function, instance = number, "it gets flows again");
            own.removals.remove(&number);
            self.functions.set_draining(&Instance::name(function, number), false);
        } else if !statuses
            .iter()
            .any(|one| one.phase == Phase::Starting || one.phase == Phase::Up && !one.attached)
            && let Some(one) = statuses.iter().find(|one| one.phase == Phase::Dormant)
        {
            tracing::info!(function, instance = one.number, "it has too much to do");
            self.functions.wanted(&one.name);
        }
    }

    /// Removes instances that their functions do not need.
    pub(super) async fn check_instances(&mut self) {
        self.has_instance_check = false;
        for (instance, isolation) in self.multiplying() {
            let function = instance.of.clone();
            let Some(own) = self.multiplied.get(&function) else { continue };
            let counts = !own.removals.is_empty();
            let request = Request::Load { function: function.clone(), counts };
            let Ok(Reply::Load(load)) = self.call(&function, request).await else { continue };
            let statuses = self.statuses(&instance, isolation);
            let Some(own) = self.multiplied.get_mut(&function) else { continue };
            let mut stops = own.advance_removals(&instance.instances, &load);
            stops.retain(|number| statuses.iter().any(|one| one.number == *number && one.phase.runs()));
            // Instances that stop now are still seen.
            let drains =
                stops.is_empty().then(|| own.shrink(&instance.instances, &load, &statuses)).flatten();
            for number in stops {
                self.functions.rest(&Instance::name(&function, number));
            }
            if let Some(number) = drains {
                tracing::info!(function, instance = number, "it gets no new flows");
                self.functions.set_draining(&Instance::name(&function, number), true);
            }
        }
    }
}

impl MultipliedFunction {
    /// Advances the states of instances that are not needed. Returns those to stop.
    fn advance_removals(&mut self, instances: &Instances, load: &InstanceLoad) -> Vec<u16> {
        let stops = self.removals.iter().filter(|(_, removal)| **removal == Removal::Leaves);
        let stops: Vec<u16> = stops.map(|(number, _)| *number).collect();
        self.removals.retain(|number, _| !stops.contains(number));
        for (number, removal) in &mut self.removals {
            let flows = load.flows.get(usize::from(*number) - 1).copied().unwrap_or(0);
            if let Removal::Drains(since) = removal
                && (flows == 0 || since.elapsed() >= Duration::from_nanos(instances.drain))
            {
                *removal = Removal::Leaves;
            }
        }
        stops
    }

    /// The instance that is not needed any more, if there is one.
    fn shrink(
        &mut self,
        instances: &Instances,
        load: &InstanceLoad,
        statuses: &[InstanceStatus],
    ) -> Option<u16> {
        let settling_time = self.settling_time(instances);
        let is_calm = Duration::from_nanos(load.calm) >= settling_time;
        let is_long_ago = self.shrunk.is_none_or(|shrunk| shrunk.elapsed() >= settling_time);
        let running = statuses.iter().filter(|one| one.serves(&self.removals));
        let running: Vec<u16> = running.map(|one| one.number).collect();
        if !is_calm
            || !is_long_ago
            || running.len() <= usize::from(instances.min)
            || !self.removals.is_empty()
        {
            return None;
        }
        let number = running.last().copied().filter(|number| *number > 1)?;
        if self.shrunk.is_some() {
            self.doubled = self.doubled.saturating_sub(1);
        }
        self.shrunk = Some(Instant::now());
        self.removals.insert(number, Removal::Drains(Instant::now()));
        Some(number)
    }
}

/// Keeps the instances that are being stopped if no other one gets new flows; returns them.
fn keep_last(statuses: &[InstanceStatus], removals: &mut BTreeMap<u16, Removal>) -> Vec<u16> {
    if statuses.iter().any(|one| one.serves(removals)) {
        return Vec::new();
    }
    std::mem::take(removals).into_keys().collect()
}

/// The masks of the instances that get new flows, and of those that have flows. If none runs, both have the first one.
fn masks(statuses: &[InstanceStatus], removals: &BTreeMap<u16, Removal>) -> (u32, u32) {
    let (mut open, mut there) = (0, 0);
    for one in statuses.iter().filter(|one| one.attached) {
        let bit = 1u32 << (one.number - 1);
        match (one.phase, removals.get(&one.number)) {
            (_, Some(Removal::Leaves)) => {}
            (Phase::Up, None) => (open, there) = (open | bit, there | bit),
            (Phase::Up | Phase::Suspended, _) => there |= bit,
            _ => {}
        }
    }
    match (open, there) {
        (0, 0) => (1, 1),
        (0, there) => (there, there),
        both => both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn instances() -> Instances {
        Instances { min: 1, max: 3, flows: 64, idle: SECOND, shrink: SECOND, drain: 100 * SECOND }
    }

    fn statuses(phases: &[Phase]) -> Vec<InstanceStatus> {
        let each = (1..).zip(phases);
        each.map(|(number, phase)| InstanceStatus {
            number,
            name: String::new(),
            phase: *phase,
            attached: true,
        })
        .collect()
    }

    #[test]
    fn only_running_instances_get_flows() {
        use Phase::{Dormant, Ended, Starting, Suspended, Up};
        let none = BTreeMap::new();
        assert_eq!(masks(&statuses(&[Up, Up, Starting]), &none), (0b011, 0b011));
        assert_eq!(masks(&statuses(&[Ended, Up, Dormant]), &none), (0b010, 0b010));
        assert_eq!(masks(&statuses(&[Suspended, Up, Dormant]), &none), (0b010, 0b011));
        assert_eq!(masks(&statuses(&[Suspended, Dormant, Dormant]), &none), (0b001, 0b001));
        assert_eq!(masks(&statuses(&[Ended, Dormant, Dormant]), &none), (1, 1));
        let drains = BTreeMap::from([(2, Removal::Drains(Instant::now()))]);
        assert_eq!(masks(&statuses(&[Up, Up, Dormant]), &drains), (0b001, 0b011));
        assert_eq!(
            masks(&statuses(&[Ended, Up, Dormant]), &drains),
            (0b010, 0b010),
            "the last one gets flows again"
        );
        let leaves = BTreeMap::from([(2, Removal::Leaves)]);
        assert_eq!(masks(&statuses(&[Up, Up, Dormant]), &leaves), (0b001, 0b001));
    }

    #[test]
    fn the_only_instance_that_runs_does_not_leave() {
        use Phase::{Dormant, Ended, Up};
        let drains = BTreeMap::from([(2, Removal::Drains(Instant::now()))]);
        let mut removals = drains.clone();
        assert!(keep_last(&statuses(&[Up, Up, Dormant]), &mut removals).is_empty());
        assert_eq!(removals, drains);
        assert_eq!(keep_last(&statuses(&[Ended, Up, Dormant]), &mut removals), [2]);
        assert!(removals.is_empty());
    }

    #[test]
    fn an_instance_drains_leaves_and_stops() {
        let (mut own, instances) = (MultipliedFunction::new(), instances());
        let load = |flows: [u32; 3], calm| InstanceLoad { flows: flows.to_vec(), calm };
        let three = statuses(&[Phase::Up; 3]);
        assert_eq!(
            own.shrink(&instances, &load([0; 3], SECOND / 2), &three),
            None,
            "it was pressed just now"
        );
        assert_eq!(own.shrink(&instances, &load([0; 3], SECOND), &three), Some(3));
        assert_eq!(own.shrink(&instances, &load([0; 3], SECOND), &three), None, "one after the other");
        assert!(own.advance_removals(&instances, &load([5, 5, 1], SECOND)).is_empty());
        assert!(matches!(own.removals[&3], Removal::Drains(_)), "it has a flow");
        assert!(own.advance_removals(&instances, &load([5, 5, 0], SECOND)).is_empty());
        assert_eq!(own.removals[&3], Removal::Leaves);
        assert_eq!(own.advance_removals(&instances, &load([5, 5, 0], SECOND)), [3]);
        assert!(own.removals.is_empty());
        let one = statuses(&[Phase::Up, Phase::Dormant, Phase::Dormant]);
        own.shrunk = None;
        assert_eq!(own.shrink(&instances, &load([0; 3], 9 * SECOND), &one), None, "one stays");
    }
}
