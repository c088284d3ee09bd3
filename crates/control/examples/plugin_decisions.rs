//! How many decisions a second units from outside take part in: one filter and one score over all hosts, and the change
//! that each decision makes told to them. `plugin_decisions HOSTS SECONDS` (5000, 3).

use ringway_control::place_plugins::{Folder, Options, Plugins};
use ringway_place::object::{Host, Vm, VmStatus};
use ringway_place::unit::{Delta, External, HostView};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let hosts: usize = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    for (style, text) in [("typed", TYPED), ("printed", PRINTED)] {
        let folder = std::env::temp_dir().join(format!("ringway-plugin-decisions-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("units.py"), text)?;
        let measured = measure(&folder, hosts, Duration::from_secs(seconds));
        std::fs::remove_dir_all(&folder)?;
        println!("{style}: {:.0} decisions/s with {hosts} hosts", measured?);
    }
    Ok(())
}

fn host(index: usize, vms: usize) -> HostView {
    HostView {
        host: Host {
            name: format!("host-{index:05}"),
            sockets: 2,
            cores: 32,
            threads: 64,
            memory_mb: 262_144,
            ..Host::default()
        },
        cpu_load: 50.0,
        pending_load: 0.0,
        free_mb: 131_072,
        schedulable_mb: 131_072,
        vms: (0..vms).map(|vm| format!("vm-{index:05}-{vm}")).collect(),
        pending_vms: Vec::new(),
        facts: BTreeMap::new(),
    }
}

fn measure(folder: &Path, count: usize, time: Duration) -> Result<f64, Box<dyn std::error::Error>> {
    let package = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../python")).to_path_buf();
    let folders = vec![Folder::new(folder)];
    let mut plugins = Plugins::start(Options { package: Some(package), folders, ..Options::default() });
    let hosts: Vec<HostView> = (0..count).map(|index| host(index, 8)).collect();
    let names: Vec<String> = hosts.iter().map(|view| view.host.name.clone()).collect();
    let on = |view: &HostView| {
        let host = view.host.name.clone();
        view.vms.clone().into_iter().map(move |name| running(name, host.clone()))
    };
    let vms = hosts.iter().flat_map(on).collect();
    plugins.snapshot(hosts, vms)?;
    let new = Vm { name: "new".into(), ..Vm::default() };
    let properties = BTreeMap::new();
    let (mut decisions, begin) = (0_usize, Instant::now());
    while begin.elapsed() < time {
        let mut kept = plugins.filter(&["Few".into()], &names, &new, &properties);
        let kept = kept.remove("Few").ok_or("no answer")??;
        let mut scored = plugins.score(&[("Even".into(), 1)], &kept, &new, &properties);
        let scored = scored.remove("Even").ok_or("no answer")??;
        let best = scored.iter().min_by_key(|(_, score)| *score).ok_or("no host is left")?;
        let index: usize = best.0.trim_start_matches("host-").parse()?;
        let vm = running(format!("new-{decisions}"), best.0.clone());
        plugins
            .deltas(vec![Delta::Host(Box::new(host(index, best.1 as usize + 1))), Delta::Vm(Box::new(vm))])?;
        decisions += 1;
    }
    Ok(decisions as f64 / begin.elapsed().as_secs_f64())
}

fn running(name: String, host: String) -> Vm {
    Vm { name, host: Some(host), status: VmStatus::Up, ..Vm::default() }
}
