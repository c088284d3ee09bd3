//! The simulator: runs the engine in virtual time on a trace of VMs and generated hosts.

mod baseline;
mod report;
mod svg;
mod synthetic;
mod trace;

pub use baseline::{Baseline, packed_by};
pub use report::{Report, Sample, csv};
pub use svg::svg;
pub use synthetic::{MIXES, Mix, Synthetic, hosts};
pub use trace::{Arrival, LONGEST, TraceError, TraceKind, read, read_nodes};

use crate::decide::PlacementRequest;
use crate::engine::{ActionKind, Engine, EngineError, Object};
use crate::model::Model;
use crate::object::{Cluster, Host};
use crate::policy::Policy;
use crate::store::Memory;
use crate::unit::External;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hosts, of one cluster.
    pub hosts: Vec<Host>,
    /// The policy.
    pub policy: Policy,
    /// Milliseconds between two rounds of balancing; 0 for none.
    pub interval: u64,
    /// Number of samples over the whole time.
    pub samples: usize,
    /// Whether to stop at the first VM that finds no host.
    pub until_full: bool,
    /// Seed for breaking ties.
    pub seed: u64,
}

/// Departures, by time.
type Later = BinaryHeap<Reverse<(u64, String)>>;

/// Runs a plan over arrivals, in the order of their times.
pub fn run(plan: &Plan, arrivals: &[Arrival]) -> Result<Report, EngineError> {
    run_with(plan, &[], None, arrivals)
}

/// As `run`, with additional objects, such as permanent VMs, facts and groups, and with external units.
pub fn run_with(
    plan: &Plan,
    beside: &[Object],
    external: Option<Box<dyn External>>,
    arrivals: &[Arrival],
) -> Result<Report, EngineError> {
    run_through(plan, beside, external, arrivals, true)
}

/// Runs a plan with additional objects and external units. `skips`: whether rounds are skipped if nothing has changed
/// since one that did nothing.
fn run_through(
    plan: &Plan,
    beside: &[Object],
    external: Option<Box<dyn External>>,
    arrivals: &[Arrival],
    skips: bool,
) -> Result<Report, EngineError> {
    let engine = Engine::open(Arc::new(Memory::default()))?;
    if let Some(external) = external {
        engine.attach(external);
    }
    let cluster = plan.hosts.first().map_or("default", |host| &host.cluster).to_string();
    engine.put(scene(plan, &cluster, beside))?;
    let mut run = Run {
        engine,
        cluster,
        report: Report::new(&plan.policy.name, plan.hosts.len()),
        later: Later::new(),
        now: arrivals.first().map_or(0, |arrival| arrival.at),
    };
    let end = arrivals.last().map_or(0, |arrival| arrival.at);
    let begin = run.now;
    let step = ((end - begin) / plan.samples.max(1) as u64).max(1);
    let (mut next_sample, mut next_round) = (begin, begin.saturating_add(plan.interval));
    for arrival in arrivals {
        while plan.interval > 0 && next_round <= arrival.at {
            run.depart(next_round)?;
            let is_idle = run.round(next_round)?;
            let event = if is_idle && skips { run.next_event(next_round)? } else { next_round };
            let span = event.min(arrival.at.saturating_add(1)) - next_round;
            let rounds = span.div_ceil(plan.interval).max(1);
            next_round = next_round.saturating_add(rounds.saturating_mul(plan.interval));
        }
        run.depart(arrival.at)?;
        while next_sample <= arrival.at {
            run.sample(next_sample)?;
            next_sample += step;
        }
        let placed = run.arrive(arrival, plan.seed)?;
        if !placed && plan.until_full {
            break;
        }
    }
    run.sample(run.now)?;
    Ok(run.report)
}

/// The objects before the first VM arrives.
fn scene(plan: &Plan, cluster: &str, beside: &[Object]) -> Vec<Object> {
    let mut objects = Vec::new();
    if !crate::policy::built_in().contains(&plan.policy) {
        objects.push(Object::Policy(plan.policy.clone()));
    }
    let described = beside.iter().find_map(|object| match object {
        Object::Cluster(known) if known.name == cluster => Some(known.clone()),
        _ => None,
    });
    let described = described.unwrap_or_else(|| Cluster { name: cluster.into(), ..Cluster::default() });
    objects.push(Object::Cluster(Cluster { policy: plan.policy.name.clone(), ..described }));
    objects.extend(plan.hosts.iter().map(|host| Object::Host(Box::new(host.clone()))));
    let others = beside.iter().filter(|object| match object {
        Object::Cluster(known) => known.name != cluster,
        Object::Policy(policy) => policy.name != plan.policy.name,
        Object::Host(host) => host.cluster != cluster,
        _ => true,
    });
    objects.extend(others.cloned());
    objects
}

struct Run {
    engine: Engine,
    cluster: String,
    report: Report,
    later: Later,
    now: u64,
}

impl Run {
    fn arrive(&mut self, arrival: &Arrival, seed: u64) -> Result<bool, EngineError> {
        self.now = self.now.max(arrival.at);
        let name = arrival.vm.name.clone();
        let mut vm = arrival.vm.clone();
        vm.cluster.clone_from(&self.cluster);
        self.engine.put(vec![Object::Vm(Box::new(vm))])?;
        let seed = seed ^ self.report.requested;
        let ask =
            PlacementRequest { vms: vec![name.clone()], seed, now: self.now, ..PlacementRequest::default() };
        self.report.requested += 1;
        let decision = self.engine.place(ask)?;
        if !decision.placed() {
            self.report.reject(&decision);
            self.engine.remove("vm", &name)?;
            return Ok(false);
        }
        self.report.placed += 1;
        self.engine.confirm(&name, self.now)?;
        if let Some(lifetime) = arrival.lifetime {
            self.later.push(Reverse((arrival.at.saturating_add(lifetime), name)));
        }
        Ok(true)
    }

    fn depart(&mut self, until: u64) -> Result<(), EngineError> {
        while let Some(Reverse((at, _))) = self.later.peek() {
            if *at > until {
                break;
            }
            if let Some(Reverse((at, name))) = self.later.pop() {
                self.now = self.now.max(at);
                self.engine.remove("vm", &name)?;
            }
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Balances. Returns whether that changed nothing.
    fn round(&mut self, now: u64) -> Result<bool, EngineError> {
        let before = self.engine.revision()?;
        let step = self.engine.balance(&self.cluster, now)?;
        for migration in step.migrations {
            self.engine.confirm(&migration.vm, now)?;
            self.report.migrations += 1;
        }
        for action in step.actions.iter().filter(|action| action.kind == ActionKind::Stop) {
            self.engine.stop(&action.name)?;
        }
        Ok(self.engine.revision()? == before)
    }

    /// When the first VM departs, or a round may do something else, if no VM arrives before.
    fn next_event(&self, now: u64) -> Result<u64, EngineError> {
        let departure = self.later.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        Ok(self.engine.steady_until(&self.cluster, now)?.min(departure))
    }

    fn sample(&mut self, at: u64) -> Result<(), EngineError> {
        let sample = self.engine.view(|model| sample(model, &self.cluster))?;
        let Report { placed, rejected, migrations, .. } = self.report;
        self.report.samples.push(Sample { at, placed, rejected, migrations, ..sample });
        Ok(())
    }
}

/// Needs of the reference VM: 4 CPUs and 8 GB.
const USUAL: (i32, i32) = (4, 8 * 1024 + 112);

/// How full a cluster is.
fn sample(model: &Model, cluster: &str) -> Sample {
    let Some((_, state)) = model.cluster(cluster) else { return Sample::default() };
    let columns = &state.columns;
    let mut sample = Sample::default();
    let (mut cpus, mut memory, mut free, mut stranded) = (0.0, 0.0, 0.0, 0.0);
    for at in 0..columns.len() {
        if !columns.present[at] {
            continue;
        }
        let taken = f64::from(columns.promised[at]) / 1000.0 + f64::from(columns.exclusive[at]);
        let left = (f64::from(columns.cpus[at]) - taken).max(0.0);
        cpus += f64::from(columns.cpus[at]);
        memory += f64::from(columns.physical[at]);
        sample.cpu += taken;
        sample.memory += f64::from(columns.physical[at] - columns.schedulable[at].max(0));
        sample.used += u64::from(columns.vms[at] > 0);
        sample.vms += columns.vms[at].max(0) as u64;
        free += left;
        if left < f64::from(USUAL.0) || columns.schedulable[at] < USUAL.1 {
            stranded += left;
        }
    }
    sample.cpu /= f64::max(cpus, 1.0);
    sample.memory /= f64::max(memory, 1.0);
    sample.fragmentation = if free > 0.0 { stranded / free } else { 0.0 };
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Blacklist, Load, Vm, VmStatus};
    use crate::policy::built_in;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn plan(policy: &str, until_full: bool, interval: u64) -> Plan {
        let policy = built_in().into_iter().find(|known| known.name == policy).unwrap();
        Plan { hosts: hosts(12, 1), policy, interval, samples: 10, until_full, seed: 1 }
    }

    #[test]
    fn a_simulation_is_deterministic_and_consistent() {
        let arrivals = Synthetic { count: 400, ..Synthetic::default() }.arrivals();
        let first = run(&plan("packing", false, 60_000), &arrivals).unwrap();
        assert_eq!(first, run(&plan("packing", false, 60_000), &arrivals).unwrap());
        assert_eq!(first.placed + first.rejected, 400);
        assert!(first.samples.len() >= 10);
        assert!(first.samples.iter().all(|sample| (0.0..=1.0).contains(&sample.cpu)));
        assert!(svg(std::slice::from_ref(&first)).contains("packing") && csv(&[first]).lines().count() > 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn skipped_rounds_would_have_had_no_effect(
            seed: u64,
            policy in 0..5usize,
            (gap, lifetime, interval) in (1..1_000_000u64, 1..40_000_000u64, 5_000..90_000u64),
            (cool_down, minutes, until, moved_at) in (0..900u64, 1..90u32, 0..9_000_000u64, 0..9_000_000u64),
            (busy, loads, reserve) in (0..30u32, vec(0..100u32, 4), 0..2u32),
        ) {
            let names = ["power_saving", "evenly_distributed", "vm_evenly_distributed", "packing", "none"];
            let mut policy = plan(names[policy], false, 0).policy;
            let properties = [
                ("CpuOverCommitDurationMinutes", minutes.to_string()),
                ("EnableAutomaticHostPowerManagement", "true".into()),
                ("HighVmCount", "4".into()),
                ("HostsInReserve", reserve.to_string()),
            ];
            policy.name = "tried".into();
            policy.properties.extend(properties.map(|(name, value)| (name.to_string(), value)));
            let mut hosts = hosts(loads.len(), 1);
            hosts.iter_mut().for_each(|host| host.power_managed = true);
            let [name, other] = [0, 1].map(|at| hosts[at].name.clone());
            let vm = |index| Vm {
                name: format!("there-{index}"),
                status: VmStatus::Up,
                host: Some(name.clone()),
                cpu_percent: Some(90),
                moved_at: Some(moved_at),
                ..Vm::default()
            };
            let mut beside: Vec<Object> = (0..busy).map(|index| Object::Vm(Box::new(vm(index)))).collect();
            let load = |(host, load): (&Host, &u32)| Load {
                host: host.name.clone(),
                cpu_percent: (*load > 30).then_some(*load),
                over_since: (*load > 75).then_some(until / 2),
                ..Load::default()
            };
            beside.extend(hosts.iter().zip(&loads).map(|it| Object::Load(load(it))));
            beside.push(Object::Cluster(Cluster { cool_down, minimum_gain: 0, ..Cluster::default() }));
            let barred = Blacklist { host: other, until: Some(until), ..Blacklist::default() };
            beside.push(Object::Blacklist(barred));
            let mix = "vmagent".into();
            let arrivals = Synthetic { mix, count: 8, gap, lifetime: Some(lifetime), seed }.arrivals();
            let plan = Plan { hosts, policy, interval, samples: 50, until_full: false, seed };
            let all = run_through(&plan, &beside, None, &arrivals, false).unwrap();
            prop_assert_eq!(run_with(&plan, &beside, None, &arrivals).unwrap(), all);
        }
    }

    #[test]
    fn idle_periods_are_simulated_quickly() {
        let mut arrivals = Synthetic { count: 50, gap: 1_000_000, ..Synthetic::default() }.arrivals();
        arrivals[49].at = LONGEST;
        // A round each millisecond.
        let report = run(&plan("power_saving", false, 1), &arrivals).unwrap();
        assert_eq!((report.placed, report.samples.last().unwrap().vms), (50, 1));
    }

    #[test]
    fn running_vms_and_blacklisted_hosts_reduce_the_room() {
        let arrivals = Synthetic { count: 40, lifetime: None, ..Synthetic::default() }.arrivals();
        let plan = Plan { hosts: hosts(2, 1), ..plan("packing", true, 0) };
        let host = plan.hosts[0].name.clone();
        let there = Vm {
            name: "there".into(),
            cores: 40,
            status: VmStatus::Up,
            host: Some(plan.hosts[1].name.clone()),
            ..Vm::default()
        };
        let barred = Object::Blacklist(Blacklist { host, ..Blacklist::default() });
        let placed = |beside: &[Object]| run_with(&plan, beside, None, &arrivals).unwrap().placed;
        assert!(placed(&[]) > 0 && placed(&[]) == run(&plan, &arrivals).unwrap().placed);
        assert_eq!(placed(&[Object::Vm(Box::new(there)), barred]), 0);
    }

    #[test]
    fn packing_places_at_least_as_many_as_best_fit() {
        for seed in 1..4 {
            let arrivals = Synthetic { count: 4000, seed, lifetime: None, ..Synthetic::default() }.arrivals();
            let ours = run(&Plan { seed, ..plan("packing", true, 0) }, &arrivals).unwrap();
            let best = packed_by(Baseline::BestFit, &hosts(12, 1), &arrivals);
            let worst = packed_by(Baseline::WorstFit, &hosts(12, 1), &arrivals);
            assert!(ours.placed >= best && best >= worst, "seed {seed}: {} {best} {worst}", ours.placed);
        }
    }
}
