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

/// How often the time without pressure may double.
const DOUBLED: u32 = 5;
/// Times between two looks at a function that may shrink.
const LOOKS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What happens to an instance that is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    /// The instance keeps its flows since then, and gets no new ones.
    Drains(Instant),
    /// The instance gets no more frames, and is stopped at the next look.
    Leaves,
}

/// A function that multiplies.
#[derive(Debug)]
pub(super) struct Multiplied {
    /// The instances as `data` knows them.
    sent: Option<(u32, u32)>,
    going: BTreeMap<u16, Going>,
    /// How often the time without pressure is doubled, since the function was pressed soon after it had shrunk.
    doubled: u32,
    /// When it last shrank.
    shrunk: Option<Instant>,
}

impl Multiplied {
    fn new() -> Multiplied {
        Multiplied { sent: None, going: BTreeMap::new(), doubled: 0, shrunk: None }
    }

    /// Time without pressure after which it shrinks.
    fn settling_time(&self, instances: &Instances) -> Duration {
        Duration::from_nanos(instances.shrink) * (1 << self.doubled)
    }
}

/// An instance as its process or worker has it.
struct Seen {
    number: u16,
    name: String,
    phase: Phase,
    /// Whether its ports have it.
    attached: bool,
}

impl Seen {
    /// Whether it gets new flows.
    fn serves(&self, going: &BTreeMap<u16, Going>) -> bool {
        self.phase == Phase::Up && self.attached && !going.contains_key(&self.number)
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

    fn seen(&self, instance: &Instance, isolation: Isolation) -> Vec<Seen> {
        let see = |number| {
            let name = Instance::name(&instance.of, number);
            let has_peer = |port: &String| self.live.get(port).is_some_and(|live| live.attached);
            let ports = self.fabric.function(&name).map(Function::fabric_ports).unwrap_or_default();
            let attached = isolation == Isolation::Worker || ports.iter().all(has_peer);
            Seen { number, phase: self.functions.phase(&name), name, attached }
        };
        (1..=instance.instances.max).map(see).collect()
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
            let own = self.multiplied.entry(instance.of.clone()).or_insert_with(Multiplied::new);
            let mut going = std::mem::take(&mut own.going);
            let seen = self.seen(&instance, isolation);
            for one in seen.iter().filter(|one| one.phase == Phase::Ended) {
                // An instance that is not needed is not started again.
                if going.remove(&one.number).is_some() {
                    self.functions.rest(&one.name);
                }
            }
            for number in kept(&seen, &mut going) {
                self.functions.set_draining(&Instance::name(&instance.of, number), false);
            }
            let masks = masks(&seen, &going);
            let runs = |one: &&Seen| one.phase.runs() && !going.contains_key(&one.number);
            let running = seen.iter().filter(runs).count();
            may_shrink |= running > usize::from(instance.instances.min) || !going.is_empty();
            match seen.first().map(|first| first.phase) {
                Some(Phase::Up) if running < usize::from(instance.instances.min) => {
                    let dormant = seen.iter().filter(|one| one.phase == Phase::Dormant);
                    let missing = dormant.take(usize::from(instance.instances.min) - running);
                    missing.for_each(|one| self.functions.wanted(&one.name));
                }
                Some(Phase::Stopped) => {
                    seen.iter().filter(|one| one.phase.runs()).for_each(|one| self.functions.rest(&one.name));
                    going.clear();
                }
                _ => {}
            }
            self.assign(&instance.of, masks);
            if let Some(own) = self.multiplied.get_mut(&instance.of) {
                own.going = going;
            }
        }
        if may_shrink {
            self.look_later();
        }
    }

    fn assign(&mut self, function: &str, (open, there): (u32, u32)) {
        let Some(own) = self.multiplied.get_mut(function) else { return };
        if own.sent != Some((open, there)) {
            own.sent = Some((open, there));
            let request = Request::Assign { function: function.into(), open, there };
            // If the request fails, `data` was restarted, or the function's ports do not exist yet: then it is sent
            // again.
            self.post(request, Vec::new(), drop);
        }
    }

    /// Makes `data` be told again which instances a function has: its ports were added.
    pub(super) fn forget_assignment(&mut self, function: Option<&str>) {
        let own = self.multiplied.iter_mut().filter(|(name, _)| function.is_none_or(|own| own == **name));
        own.for_each(|(_, own)| own.sent = None);
    }

    /// Looks at functions that may shrink after a while.
    fn look_later(&mut self) {
        if std::mem::replace(&mut self.looks_at_instances, true) {
            return;
        }
        let shortest = self.multiplying().iter().map(|(instance, _)| instance.instances.shrink).min();
        let time = Duration::from_nanos(shortest.unwrap_or(0) / 4).clamp(LOOKS.0, LOOKS.1);
        later(&self.inbox, time, Message::LookAtInstances);
    }

    /// All instances of a function have too much to do: starts one more.
    pub(super) fn pressed(&mut self, function: &str) {
        let Some((instance, isolation)) =
            self.multiplying().into_iter().find(|(instance, _)| instance.of == function)
        else {
            return;
        };
        let seen = self.seen(&instance, isolation);
        let Some(own) = self.multiplied.get_mut(function) else { return };
        let drains = own.going.iter().find(|(_, going)| matches!(going, Going::Drains(_)));
        let drains = drains.map(|(number, _)| *number);
        // Its rings are full, but nothing runs.
        if seen.first().is_some_and(|first| first.phase == Phase::Suspended) {
            return;
        }
        if own.shrunk.is_some_and(|shrunk| shrunk.elapsed() < own.settling_time(&instance.instances)) {
            (own.doubled, own.shrunk) = ((own.doubled + 1).min(DOUBLED), None);
        }
        if let Some(number) = drains {
            tracing::info!(function, instance = number, "it gets flows again");
            own.going.remove(&number);
            self.functions.set_draining(&Instance::name(function, number), false);
        } else if !seen
            .iter()
            .any(|one| one.phase == Phase::Starting || one.phase == Phase::Up && !one.attached)
            && let Some(one) = seen.iter().find(|one| one.phase == Phase::Dormant)
        {
            tracing::info!(function, instance = one.number, "it has too much to do");
            self.functions.wanted(&one.name);
        }
    }

    /// Looks whether functions have more instances than they need.
    pub(super) async fn look_at_instances(&mut self) {
        self.looks_at_instances = false;
        for (instance, isolation) in self.multiplying() {
            let function = instance.of.clone();
            let Some(own) = self.multiplied.get(&function) else { continue };
            let counts = !own.going.is_empty();
            let request = Request::Load { function: function.clone(), counts };
            let Ok(Reply::Load(load)) = self.call(&function, request).await else { continue };
            let seen = self.seen(&instance, isolation);
            let Some(own) = self.multiplied.get_mut(&function) else { continue };
            let mut stops = own.go_on(&instance.instances, &load);
            stops.retain(|number| seen.iter().any(|one| one.number == *number && one.phase.runs()));
            // Instances that stop now are still seen.
            let drains = stops.is_empty().then(|| own.shrink(&instance.instances, &load, &seen)).flatten();
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

impl Multiplied {
    /// Continues with instances that are not needed. Returns those to stop.
    fn go_on(&mut self, instances: &Instances, load: &InstanceLoad) -> Vec<u16> {
        let stops = self.going.iter().filter(|(_, going)| **going == Going::Leaves);
        let stops: Vec<u16> = stops.map(|(number, _)| *number).collect();
        self.going.retain(|number, _| !stops.contains(number));
        for (number, going) in &mut self.going {
            let flows = load.flows.get(usize::from(*number) - 1).copied().unwrap_or(0);
            if let Going::Drains(since) = going
                && (flows == 0 || since.elapsed() >= Duration::from_nanos(instances.drain))
            {
                *going = Going::Leaves;
            }
        }
        stops
    }

    /// The instance that is not needed any more, if there is one.
    fn shrink(&mut self, instances: &Instances, load: &InstanceLoad, seen: &[Seen]) -> Option<u16> {
        let settling_time = self.settling_time(instances);
        let is_calm = Duration::from_nanos(load.calm) >= settling_time;
        let is_long_ago = self.shrunk.is_none_or(|shrunk| shrunk.elapsed() >= settling_time);
        let running = seen.iter().filter(|one| one.serves(&self.going));
        let running: Vec<u16> = running.map(|one| one.number).collect();
        if !is_calm || !is_long_ago || running.len() <= usize::from(instances.min) || !self.going.is_empty() {
            return None;
        }
        let number = running.last().copied().filter(|number| *number > 1)?;
        if self.shrunk.is_some() {
            self.doubled = self.doubled.saturating_sub(1);
        }
        self.shrunk = Some(Instant::now());
        self.going.insert(number, Going::Drains(Instant::now()));
        Some(number)
    }
}

/// Instances that would leave and stay instead, since no other one gets new flows.
fn kept(seen: &[Seen], going: &mut BTreeMap<u16, Going>) -> Vec<u16> {
    if seen.iter().any(|one| one.serves(going)) {
        return Vec::new();
    }
    std::mem::take(going).into_keys().collect()
}

/// The instances that get new flows, and those that have flows. Where none runs, the first one is down.
fn masks(seen: &[Seen], going: &BTreeMap<u16, Going>) -> (u32, u32) {
    let (mut open, mut there) = (0, 0);
    for one in seen.iter().filter(|one| one.attached) {
        let bit = 1u32 << (one.number - 1);
        match (one.phase, going.get(&one.number)) {
            (_, Some(Going::Leaves)) => {}
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

    fn seen(phases: &[Phase]) -> Vec<Seen> {
        let each = (1..).zip(phases);
        each.map(|(number, phase)| Seen { number, name: String::new(), phase: *phase, attached: true })
            .collect()
    }

    #[test]
    fn only_running_instances_get_flows() {
        use Phase::{Dormant, Ended, Starting, Suspended, Up};
        let none = BTreeMap::new();
        assert_eq!(masks(&seen(&[Up, Up, Starting]), &none), (0b011, 0b011));
        assert_eq!(masks(&seen(&[Ended, Up, Dormant]), &none), (0b010, 0b010));
        assert_eq!(masks(&seen(&[Suspended, Up, Dormant]), &none), (0b010, 0b011));
        assert_eq!(masks(&seen(&[Suspended, Dormant, Dormant]), &none), (0b001, 0b001));
        assert_eq!(masks(&seen(&[Ended, Dormant, Dormant]), &none), (1, 1));
        let drains = BTreeMap::from([(2, Going::Drains(Instant::now()))]);
        assert_eq!(masks(&seen(&[Up, Up, Dormant]), &drains), (0b001, 0b011));
        assert_eq!(
            masks(&seen(&[Ended, Up, Dormant]), &drains),
            (0b010, 0b010),
            "the last one gets flows again"
        );
        let leaves = BTreeMap::from([(2, Going::Leaves)]);
        assert_eq!(masks(&seen(&[Up, Up, Dormant]), &leaves), (0b001, 0b001));
    }

    #[test]
    fn the_only_instance_that_runs_does_not_leave() {
        use Phase::{Dormant, Ended, Up};
        let drains = BTreeMap::from([(2, Going::Drains(Instant::now()))]);
        let mut going = drains.clone();
        assert!(kept(&seen(&[Up, Up, Dormant]), &mut going).is_empty());
        assert_eq!(going, drains);
        assert_eq!(kept(&seen(&[Ended, Up, Dormant]), &mut going), [2]);
        assert!(going.is_empty());
    }

    #[test]
    fn an_instance_drains_leaves_and_stops() {
        let (mut own, instances) = (Multiplied::new(), instances());
        let load = |flows: [u32; 3], calm| InstanceLoad { flows: flows.to_vec(), calm };
        let three = seen(&[Phase::Up; 3]);
        assert_eq!(
            own.shrink(&instances, &load([0; 3], SECOND / 2), &three),
            None,
            "it was pressed just now"
        );
        assert_eq!(own.shrink(&instances, &load([0; 3], SECOND), &three), Some(3));
        assert_eq!(own.shrink(&instances, &load([0; 3], SECOND), &three), None, "one after the other");
        assert!(own.go_on(&instances, &load([5, 5, 1], SECOND)).is_empty());
        assert!(matches!(own.going[&3], Going::Drains(_)), "it has a flow");
        assert!(own.go_on(&instances, &load([5, 5, 0], SECOND)).is_empty());
        assert_eq!(own.going[&3], Going::Leaves);
        assert_eq!(own.go_on(&instances, &load([5, 5, 0], SECOND)), [3]);
        assert!(own.going.is_empty());
        let one = seen(&[Phase::Up, Phase::Dormant, Phase::Dormant]);
        own.shrunk = None;
        assert_eq!(own.shrink(&instances, &load([0; 3], 9 * SECOND), &one), None, "one stays");
    }
}
