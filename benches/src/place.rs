//! Measures placement: decisions a second on thousands of hosts, concurrent requests, and the density reached by
//! `packing`. Writes target/bench/place.json.

#[path = "entry.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod entry;
#[path = "machine.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod machine;
#[path = "report.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod report;

use entry::{Better, Entry, Slices};
use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, EngineError, Object};
use ringway_place::object::{Vm, VmStatus};
use ringway_place::policy::{FilterUse, Policy, WeightUse, built_in};
use ringway_place::simulate::{Baseline, Plan, Synthetic, hosts, packed_by, run};
use ringway_place::store::{Embedded, Memory, Store};
use ringway_scheduler::plugins::{Folder, Options, Plugins};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const KEYS: [&str; 6] = ["none.5k", "mixed.5k", "none.100k", "plugin", "concurrent", "packing"];
/// Slices of each benchmark.
const SLICES: usize = 7;
/// Number of concurrent requesters.
const REQUESTERS: usize = 8;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|key| !KEYS.contains(&key.as_str())) {
        eprintln!("there is no key {unknown}; there are {}", KEYS.join(", "));
        return ExitCode::from(2);
    }
    let path = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()))
        .join("bench/place.json");
    let mut rows = report::read(&path);
    let chosen: Vec<String> = KEYS
        .iter()
        .filter(|key| wanted.is_empty() || wanted.iter().any(|w| w == *key))
        .map(ToString::to_string)
        .collect();
    for key in &chosen {
        machine::sample_now();
        let mut entry = match measure(key) {
            Ok(entry) => entry,
            Err(error) => Entry::skipped(error),
        };
        machine::sample_now();
        entry.machine = machine::take();
        rows.insert(key.clone(), entry);
    }
    if let Err(error) = report::write(&path, &rows) {
        eprintln!("{}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    println!("{}\nwritten to {}", report::table(&rows, &chosen), path.display());
    ExitCode::SUCCESS
}

fn measure(key: &str) -> Result<Entry, Failure> {
    match key {
        "none.5k" => decisions(&Lab::Equal { hosts: 5_000, each: 5 }, 1_000, 5_000.0, Some(2.0)),
        "mixed.5k" => decisions(&Lab::Mixed { hosts: 5_000 }, 1_000, 5_000.0, Some(2.0)),
        "none.100k" => decisions(&Lab::Equal { hosts: 100_000, each: 1 }, 60, 200.0, None),
        "plugin" => plugin(),
        "concurrent" => concurrent(),
        _ => packing(),
    }
}

/// Which hosts and VMs there are.
enum Lab {
    /// Equal hosts, each half full of VMs of one size, and small VMs that wait.
    Equal { hosts: usize, each: usize },
    /// Hosts of four sizes, a fifth to three quarters full of VMs of a published mix, and VMs of three mixes that wait.
    Mixed { hosts: usize },
}

impl Lab {
    fn hosts(&self) -> usize {
        match self {
            Lab::Equal { hosts, .. } | Lab::Mixed { hosts } => *hosts,
        }
    }

    fn engine(&self, store: Arc<dyn Store>, waiting: usize) -> Result<Engine, EngineError> {
        match *self {
            Lab::Equal { hosts, each } => lab(store, hosts, each, waiting),
            Lab::Mixed { hosts } => mixed(store, hosts, waiting),
        }
    }
}

/// Sizes of hosts: CPUs and GB.
const SIZES: [(u32, u64); 4] = [(16, 64), (40, 96), (64, 256), (128, 512)];

/// Hosts and VMs of different sizes. Of the waiting VMs every eighth is highly available, and every eighth must not
/// run beside the VM before it.
fn mixed(store: Arc<dyn Store>, count: usize, waiting: usize) -> Result<Engine, EngineError> {
    let mut hosts = hosts(count, 1);
    for (index, host) in hosts.iter_mut().enumerate() {
        let (cpus, gb) = SIZES[index % SIZES.len()];
        (host.cores, host.threads, host.memory_mb) = (cpus, cpus, gb * 1024);
        host.numa.iter_mut().for_each(|node| (node.cpus, node.memory_mb) = (cpus / 2, gb * 512));
    }
    let trace = |mix: &str, count| {
        Synthetic { mix: mix.into(), count, lifetime: None, ..Synthetic::default() }
            .arrivals()
            .into_iter()
            .map(|arrival| arrival.vm)
    };
    let mut objects: Vec<Object> = hosts.iter().map(|host| Object::Host(Box::new(host.clone()))).collect();
    // More than all hosts can hold.
    let mut running = trace("azure", count * 64).enumerate();
    for (index, host) in hosts.iter().enumerate() {
        let full = host.memory_mb * (20 + (index as u64 * 37) % 56) / 100;
        let mut used = 0;
        while used < full {
            let Some((number, vm)) = running.next() else { break };
            if vm.cores > host.cores || used + vm.memory_mb > host.memory_mb * 4 / 5 {
                continue;
            }
            used += vm.memory_mb;
            let name = format!("vm-{number}");
            let up = Vm { name, status: VmStatus::Up, host: Some(host.name.clone()), ..vm };
            objects.push(Object::Vm(Box::new(up)));
        }
    }
    let mixes = ["vmagent", "azure", "openb"].map(|mix| trace(mix, waiting.div_ceil(3)).collect::<Vec<_>>());
    for index in 0..waiting {
        let vm =
            Vm { name: format!("new-{index}"), cpu_percent: None, ..mixes[index % 3][index / 3].clone() };
        let apart = index % 8 == 4;
        let different_host = if apart { vec![format!("new-{}", index - 1)] } else { Vec::new() };
        objects.push(Object::Vm(Box::new(Vm { ha: index % 8 == 0, different_host, ..vm })));
    }
    engine_with(store, objects)
}

fn engine_with(store: Arc<dyn Store>, objects: Vec<Object>) -> Result<Engine, EngineError> {
    let engine = Engine::open(store)?;
    engine.put(objects)?;
    Ok(engine)
}

/// Half-full hosts, and waiting VMs.
fn lab(store: Arc<dyn Store>, count: usize, each: usize, waiting: usize) -> Result<Engine, EngineError> {
    let hosts = hosts(count, 1);
    let vm = |name: String, cores: u32, memory_mb: u64| Vm { name, cores, memory_mb, ..Vm::default() };
    let mut objects: Vec<Object> = hosts.iter().map(|host| Object::Host(Box::new(host.clone()))).collect();
    for (index, host) in hosts.iter().enumerate() {
        for one in 0..each {
            // Different loads, so that ranks differ.
            let percent = 20 + (index * 7 + one * 13) % 40;
            let half = vm(format!("{}-{one}", host.name), 20 / each as u32, 48 * 1024 / each as u64);
            let running = Vm {
                status: VmStatus::Up,
                host: Some(host.name.clone()),
                cpu_percent: Some(percent as u32),
                ..half
            };
            objects.push(Object::Vm(Box::new(running)));
        }
    }
    for index in 0..waiting {
        objects.push(Object::Vm(Box::new(vm(format!("new-{index}"), 1 + index as u32 % 4, 2048))));
    }
    engine_with(store, objects)
}

fn ask(index: usize) -> PlacementRequest {
    PlacementRequest {
        vms: vec![format!("new-{index}")],
        seed: index as u64,
        now: 1,
        ..PlacementRequest::default()
    }
}

fn release(engine: &Engine, count: usize) -> Result<(), EngineError> {
    (0..count).try_for_each(|index| match engine.release(&format!("new-{index}")) {
        Ok(()) | Err(EngineError::NoPending(_)) => Ok(()),
        Err(other) => Err(other),
    })
}

/// The path of a store of this run.
fn file() -> PathBuf {
    std::env::temp_dir().join(format!("ringway-bench-place-{}.redb", std::process::id()))
}

/// Removes a store and its log.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(path.with_extension("redb.log"));
}

/// Consecutive decisions a second, each reserved in a store on disk.
fn decisions(lab: &Lab, slice: usize, floor: f64, p99: Option<f64>) -> Result<Entry, Failure> {
    let path = file();
    let result = timed(&path, lab, slice);
    remove(&path);
    let (slices, mut times, mut acknowledged) = result?;
    let at = |times: &mut Vec<Duration>, part: f64| {
        times.sort_unstable();
        times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0
    };
    let mut entry = slices.entry("decisions/s", Better::More).at_least(floor);
    entry = entry.with("p50 ms", at(&mut times, 0.5)).with("p99 ms", at(&mut times, 0.99));
    if let Some(most) = p99 {
        let holds = at(&mut times, 0.99) <= most;
        entry = entry.mark(format!("p99 <= {most} ms"), holds);
        // Only stores on disk have a file.
        let late = at(&mut acknowledged, 0.99);
        entry =
            entry.with("acknowledged p50 ms", at(&mut acknowledged, 0.5)).with("p99 ms acknowledged", late);
        entry = entry.mark("acknowledged p99 <= 5 ms", late <= 5.0);
        let mut disk = disk(&path)?;
        entry = entry.with("disk p50 ms", at(&mut disk, 0.5)).with("disk p99 ms", at(&mut disk, 0.99));
    }
    Ok(entry.note("whole `none` policy; kube-scheduler's published 680 to 810 a second include its API"))
}

/// The disk's own latency: 4 KB written and synced repeatedly, in the store's folder.
fn disk(path: &Path) -> Result<Vec<Duration>, Failure> {
    let path = path.with_extension("disk");
    let file = std::fs::File::create(&path)?;
    let mut times = Vec::new();
    for index in 0..500 {
        let begin = Instant::now();
        std::os::unix::fs::FileExt::write_all_at(&file, &[index as u8; 4096], (index % 64) * 4096)?;
        file.sync_data()?;
        times.push(begin.elapsed());
    }
    std::fs::remove_file(&path)?;
    Ok(times)
}

/// A filter and a weight in the typed API, and in oVirt's style.
const TYPED: &str = "from ringway.placement import Filter, Score

class Few(Filter):
    def do_filter(self, hosts, vm, args):
        return [host for host in hosts if host.vms_active < 100]

class Even(Score):
    def do_score(self, hosts, vm, args):
        return [host.vms_active for host in hosts]
";
const PRINTED: &str = "from ovirtsdk.api import API

class Few:
    def do_filter(self, hosts, vm, args):
        found = API().hosts.list(query=' or '.join('id=%s' % id for id in hosts))
        print([host.id for host in found if host.summary.active < 100])

class Even:
    def do_score(self, hosts, vm, args):
        found = API().hosts.list(query=' or '.join('id=%s' % id for id in hosts))
        print([(host.id, host.summary.active) for host in found])
";

/// Decisions with a Python filter and a Python weight in addition to the whole `none` policy.
fn plugin() -> Result<Entry, Failure> {
    let typed = with_units(TYPED, 100, SLICES)?;
    let printed = with_units(PRINTED, 20, 3)?;
    let rate = entry::median(&printed.ours).unwrap_or(0.0);
    let entry = typed.entry("decisions/s", Better::More).at_least(200.0);
    Ok(entry.with("printed decisions/s", rate).note("5,000 hosts, one Python filter and one score"))
}

fn with_units(text: &str, slice: usize, rounds: usize) -> Result<Slices, Failure> {
    let folder = std::env::temp_dir().join(format!("ringway-bench-plugin-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("units.py"), text)?;
    let path = file();
    let result = asked(&folder, &path, slice, rounds);
    remove(&path);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn asked(folder: &Path, path: &Path, slice: usize, rounds: usize) -> Result<Slices, Failure> {
    let engine = lab(Arc::new(Embedded::open(path, 1)?), 5_000, 5, slice)?;
    let folders = vec![Folder::new(folder)];
    engine.attach(Box::new(Plugins::start(Options { folders, ..Options::default() })));
    let none = built_in().into_iter().find(|policy| policy.name == "none").ok_or("no policy none")?;
    let mut policy = Policy { name: "plugin".into(), ..none };
    policy.filters.push(FilterUse { name: "Few".into(), ..FilterUse::default() });
    policy.weights.push(WeightUse { name: "Even".into(), factor: 1, ..WeightUse::default() });
    engine.put(vec![Object::Policy(policy)])?;
    let mut slices = Slices::default();
    for round in 0..=rounds {
        let begin = Instant::now();
        let mut last = 0;
        for index in 0..slice {
            let (decision, revision) =
                engine.begin(PlacementRequest { policy: Some("plugin".into()), ..ask(index) })?;
            if let Some(error) = decision.choices.iter().flat_map(|choice| &choice.errors).next() {
                return Err(error.clone().into());
            }
            if !decision.placed() {
                return Err("a VM found no host".into());
            }
            last = revision;
        }
        // The first round warms up.
        if round > 0 {
            slices.ours.push(slice as f64 / begin.elapsed().as_secs_f64());
        }
        engine.durable(last)?;
        release(&engine, slice)?;
    }
    Ok(slices)
}

type Timed = (Slices, Vec<Duration>, Vec<Duration>);

/// A slice of decisions: the rate, the duration of each, and the time until each is durable.
fn slice_of(engine: &Engine, slice: usize) -> Result<(f64, Vec<Duration>, Vec<Duration>), Failure> {
    let (decided, revisions) = std::sync::mpsc::channel::<(Instant, u64)>();
    std::thread::scope(|scope| {
        let wait = || -> Result<Vec<Duration>, EngineError> {
            let acknowledged =
                |(at, revision): (Instant, u64)| engine.durable(revision).map(|()| at.elapsed());
            revisions.into_iter().map(acknowledged).collect()
        };
        let waiter = scope.spawn(wait);
        let mut times = Vec::new();
        let begin = Instant::now();
        for index in 0..slice {
            let one = Instant::now();
            let (decision, revision) = engine.begin(ask(index))?;
            times.push(one.elapsed());
            if !decision.placed() {
                return Err("a VM found no host".into());
            }
            decided.send((Instant::now(), revision))?;
        }
        let rate = slice as f64 / begin.elapsed().as_secs_f64();
        drop(decided);
        let acknowledged = waiter.join().map_err(|_| "the waiter failed")??;
        Ok((rate, times, acknowledged))
    })
}

fn timed(path: &Path, lab: &Lab, slice: usize) -> Result<Timed, Failure> {
    let store: Arc<dyn Store> =
        if lab.hosts() > 10_000 { Arc::new(Memory::default()) } else { Arc::new(Embedded::open(path, 1)?) };
    let engine = lab.engine(store, slice)?;
    let (mut slices, mut times, mut acknowledged) = (Slices::default(), Vec::new(), Vec::new());
    for round in 0..=SLICES {
        let (rate, each, waited) = slice_of(&engine, slice)?;
        // The first round warms up.
        if round > 0 {
            slices.ours.push(rate);
            times.extend(each);
            acknowledged.extend(waited);
        }
        release(&engine, slice)?;
    }
    Ok((slices, times, acknowledged))
}

/// Several requesters compared with one, with the same requests.
fn concurrent() -> Result<Entry, Failure> {
    const EACH: usize = 250;
    let all = EACH * REQUESTERS;
    let engine = lab(Arc::new(Memory::default()), 2_000, 5, all)?;
    let mut slices = Slices::default();
    for _ in 0..SLICES {
        let begin = Instant::now();
        for index in 0..all {
            engine.begin(ask(index))?;
        }
        let serial = all as f64 / begin.elapsed().as_secs_f64();
        release(&engine, all)?;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let work = |requester: usize| {
                let engine = &engine;
                move || (0..EACH).try_for_each(|n| engine.begin(ask(requester * EACH + n)).map(drop))
            };
            let threads: Vec<_> = (0..REQUESTERS).map(|requester| scope.spawn(work(requester))).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or(Err(EngineError::InUse("it failed".into()))))
        })?;
        slices.ours.push(all as f64 / begin.elapsed().as_secs_f64());
        slices.peer.push(serial);
        let overbooked = engine.hosts(1)?.iter().filter(|host| host.schedulable_mb < 0).count();
        if overbooked > 0 {
            return Err(format!("{overbooked} hosts are overbooked").into());
        }
        release(&engine, all)?;
    }
    let entry = slices.entry("decisions/s", Better::More).ratio_at_least(0.9);
    Ok(entry.note("8 requesters beside one, 2,000 hosts; no host overbooked"))
}

/// Number of VMs placed before the first that finds no host.
fn packing() -> Result<Entry, Failure> {
    let policy = built_in().into_iter().find(|policy| policy.name == "packing").ok_or("no policy packing")?;
    let hosts = hosts(100, 1);
    let mut slices = Slices::default();
    let mut entry = Entry::default();
    let mut steps = Vec::new();
    for mix in ["vmagent", "azure", "openb"] {
        for seed in 1..=3 {
            let trace =
                Synthetic { mix: mix.into(), count: 20_000, lifetime: None, seed, ..Synthetic::default() };
            let mut arrivals = trace.arrivals();
            // Requests too large for an empty host don't end a run.
            arrivals.retain(|one| packed_by(Baseline::FirstFit, &hosts[..1], std::slice::from_ref(one)) == 1);
            let plan = Plan {
                hosts: hosts.clone(),
                policy: policy.clone(),
                interval: 0,
                samples: 1,
                until_full: true,
                seed,
            };
            let ours = run(&plan, &arrivals)?.placed as f64;
            let of = |how| packed_by(how, &hosts, &arrivals) as f64;
            let best = of(Baseline::BestFit);
            slices.ours.push(ours);
            slices.peer.push(best);
            let figures = [
                ("packing", ours),
                ("best", best),
                ("first", of(Baseline::FirstFit)),
                ("worst", of(Baseline::WorstFit)),
            ];
            steps.push((format!("{mix}, seed {seed}"), figures));
        }
    }
    entry = Entry { ..slices.entry("VMs", Better::More) }.ratio_at_least(1.0).note(entry.note);
    for (name, figures) in steps {
        entry = entry.step(name, &figures);
    }
    Ok(entry.note("peer: best fit; 100 hosts; VMs larger than an empty host are left out"))
}
