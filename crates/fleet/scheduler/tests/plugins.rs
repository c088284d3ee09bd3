//! External units, through the trait that placement uses: Python folders, and a service over HTTP.

use axum::extract::Path;
use axum::routing::post;
use axum::{Json, Router};
use ringway_place::object::{Host, Vm, VmStatus};
use ringway_place::unit::{
    Delta, External, ExternalAction, ExternalError, ExternalKind, HostView, Question, Rejected,
};
use ringway_scheduler::plugins::{Folder, Options, Plugins, Service};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A folder of plugins, removed with the test.
struct Plugin(PathBuf);

impl Plugin {
    fn new(name: &str, files: &[(&str, &str)]) -> Plugin {
        let folder = std::env::temp_dir().join(format!("ringway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for (file, text) in files {
            std::fs::write(folder.join(file), text).expect("a file");
        }
        Plugin(folder)
    }

    fn start(&self) -> Plugins {
        let mut folder = Folder::new(&self.0);
        folder.limit_ms = 500;
        plugins(vec![folder], Vec::new())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plugins(folders: Vec<Folder>, services: Vec<Service>) -> Plugins {
    Plugins::start(Options { folders, services, ..Options::default() })
}

fn host(name: &str, vms: &[&str]) -> HostView {
    HostView {
        host: Host {
            name: name.into(),
            threads: 8,
            memory_mb: 8000,
            os: "RHEL - 9 - 1".into(),
            ..Host::default()
        },
        cpu_load: 10.0 * vms.len() as f64,
        pending_load: 0.0,
        free_mb: 4000,
        schedulable_mb: 4000,
        vms: vms.iter().map(|vm| vm.to_string()).collect(),
        pending_vms: Vec::new(),
        facts: BTreeMap::from([
            ("heat".to_string(), 30.0 + vms.len() as f64),
            ("broken".to_string(), f64::NAN),
        ]),
    }
}

fn vm(name: &str, host: Option<&str>) -> Vm {
    let status = if host.is_some() { VmStatus::Up } else { VmStatus::Down };
    Vm { name: name.into(), host: host.map(str::to_string), status, ..Vm::default() }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| name.to_string()).collect()
}

/// Hosts a (two VMs), b (one) and c (none).
fn with_hosts(mut plugins: Plugins) -> Plugins {
    let hosts = vec![host("a", &["v", "w"]), host("b", &["x"]), host("c", &[])];
    let vms = vec![vm("v", Some("a")), vm("w", Some("a")), vm("x", Some("b"))];
    plugins.snapshot(hosts, vms).expect("a picture");
    plugins
}

fn moved_to(vm: &str, to: &[&str]) -> Result<Vec<ExternalAction>, ExternalError> {
    Ok(vec![ExternalAction::Move { vm: vm.into(), to: names(to), reason: String::new() }])
}

fn filter(
    plugins: &mut Plugins,
    unit: &str,
    hosts: &[&str],
    properties: &[(&str, &str)],
) -> Result<Vec<String>, String> {
    let properties = properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let question = Question { hosts, vm: &vm("new", None), properties: &properties };
    let rejected = plugins.filter(&names(&[unit]), &question).remove(unit).expect("an outcome");
    let rejected = rejected.map_err(|error| error.what)?.hosts;
    let kept = (0..).zip(hosts).filter(|(place, _)| !rejected.contains_key(place));
    Ok(kept.map(|(_, host)| host.to_string()).collect())
}

const UNITS: &str = r#"
import os
from ringway.placement import Balancer, Filter, Migrate, Score

class Few(Filter):
    properties_validation = "most=[0-9]+"
    def do_filter(self, hosts, vm, args):
        for host in hosts:
            self.why(host, f"has {host.vms_active}")
        return [host for host in hosts if host.vms_active < int(args.get("most", "1"))]

class Cool(Score):
    def do_score(self, hosts, vm, args):
        return [None if host.id == "c" else host.facts["heat"] / 8 for host in hosts]

class Down(Balancer):
    def do_balance(self, hosts, args):
        host = max(hosts, key=lambda host: host.cpu_load)
        return Migrate(host.vms[0], [other for other in hosts if other is not host]) if host.vms else None

class Odd(Filter):
    def do_filter(self, hosts, vm, args):
        if int(self.now.timestamp()) == 7200:
            self.random.shuffle(order := list(hosts))
            return order[:1]
        return hosts

class Dies(Filter):
    def do_filter(self, hosts, vm, args):
        os._exit(9)

class Hangs(Filter):
    def do_filter(self, hosts, vm, args):
        while True:
            pass

class Printed:
    def do_filter(self, hosts, vm, args):
        print("stray"); print(hosts[1:])
"#;

#[test]
fn python_units_decide_and_fail_independently() {
    let folder = Plugin::new("units", &[("units.py", UNITS), ("broken.py", "def x(:\n")]);
    let mut plugins = with_hosts(folder.start());
    let problems = plugins.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].what.starts_with("broken.py:1: SyntaxError"), "{problems:?}");
    let units = plugins.units();
    let few = units.iter().find(|unit| unit.name == "Few").expect("Few");
    assert_eq!((few.kind, few.properties.as_str()), (ExternalKind::Filter, "most=[0-9]+"));

    let all = ["a", "b", "c"];
    assert_eq!(filter(&mut plugins, "Few", &all, &[]), Ok(names(&["c"])));
    assert_eq!(filter(&mut plugins, "Few", &["b", "a"], &[("most", "2")]), Ok(names(&["b"])));
    assert_eq!(filter(&mut plugins, "Printed", &all, &[]), Ok(names(&["b", "c"])));
    let mut odd = |now, seed| {
        plugins.at(now, seed);
        filter(&mut plugins, "Odd", &all, &[]).expect("hosts")
    };
    assert_eq!(odd(0, 1).len(), 3);
    let chosen: Vec<_> = (0..20).map(|seed| odd(7_200_000, seed)).collect();
    assert_eq!(chosen, (0..20).map(|seed| odd(7_200_000, seed)).collect::<Vec<_>>());
    assert!(chosen.iter().any(|hosts| *hosts != chosen[0]), "another seed, another host");
    let asked = names(&["Hangs", "Dies", "Few", "Nobody"]);
    let (new, none) = (vm("new", None), BTreeMap::new());
    let question = Question { hosts: &all, vm: &new, properties: &none };
    let outcome = plugins.filter(&asked, &question);
    let what = |unit: &str| outcome[unit].clone().expect_err("a failure").what;
    assert!(what("Hangs").starts_with("time: it took longer than 0.5 s (units.py:"), "{}", what("Hangs"));
    assert_eq!(what("Dies"), "exit: its process exited with status 9");
    assert_eq!(what("Nobody"), "there is no such unit now");
    let why = |vms: u32| format!("has {vms}");
    assert_eq!(outcome["Few"], Ok(Rejected { hosts: BTreeMap::from([(0, why(2)), (1, why(1))]) }));
    let wrong = filter(&mut plugins, "Few", &all, &[("most", "x")]);
    assert_eq!(wrong, Err("property: most: 'x' is not [0-9]+".into()));

    let mut cool = |hosts| {
        let question = Question { hosts, vm: &new, properties: &none };
        plugins.score(&[("Cool".into(), 2)], &question).remove("Cool").expect("scores")
    };
    assert_eq!(cool(&all), Ok(vec![Some(4000), Some(3875), None]), "c is left out");
    assert_eq!(cool(&["c", "gone", "a"]), Ok(vec![None, None, Some(4)]));
    let moved = plugins.balance("Down", &names(&all), &BTreeMap::new());
    assert_eq!(moved, moved_to("v", &["b", "c"]));
    assert_eq!(plugins.balance("Down", &names(&["c"]), &BTreeMap::new()), Ok(Vec::new()));
}

#[test]
fn inventory_changes_reach_the_units() {
    let folder = Plugin::new("changes", &[("units.py", UNITS)]);
    let mut plugins = with_hosts(folder.start());
    let changes = vec![
        Delta::NoVm("v".into()),
        Delta::NoHost("b".into()),
        Delta::Host(Box::new(host("a", &["w"]))),
        Delta::Host(Box::new(host("d", &[]))),
    ];
    plugins.deltas(changes).expect("changes");
    assert_eq!(
        filter(&mut plugins, "Few", &["a", "b", "c", "d"], &[("most", "2")]),
        Ok(names(&["a", "c", "d"]))
    );
    assert_eq!(filter(&mut plugins, "Few", &["d", "a"], &[]), Ok(names(&["d"])));
    plugins
        .deltas(vec![Delta::Host(Box::new(host("e", &[]))), Delta::Vm(Box::new(vm("y", Some("e"))))])
        .expect("more");
    let moved = plugins.balance("Down", &names(&["e", "c"]), &BTreeMap::new());
    assert_eq!(moved, moved_to("y", &["c"]), "e has the slot that b had");
}

#[test]
fn changed_plugin_files_are_reloaded() {
    let folder = Plugin::new("reload", &[("units.py", UNITS)]);
    let mut plugins = with_hosts(folder.start());
    std::fs::write(folder.0.join("more.py"), "class More:\n  def do_filter(self, *_): print([])\n")
        .expect("a file");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !plugins.units().iter().any(|unit| unit.name == "More") {
        assert!(std::time::Instant::now() < until, "the new file is not seen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(filter(&mut plugins, "More", &["a"], &[]), Ok(Vec::new()));
    // Another folder replaces the folder, with the same result.
    let other = Plugin::new("reload-other", &[("other.py", &UNITS.replace("Few", "Other"))]);
    let away = other.0.with_extension("away");
    std::fs::rename(&folder.0, &away).expect("the folder goes");
    std::fs::rename(&other.0, &folder.0).expect("another comes");
    while !plugins.units().iter().any(|unit| unit.name == "Other") {
        assert!(std::time::Instant::now() < until, "the new folder is not seen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(filter(&mut plugins, "Other", &["a", "b", "c"], &[]), Ok(names(&["c"])));
    std::fs::remove_dir_all(away).expect("the folder goes for good");
}

#[test]
fn a_killed_plugin_host_is_restarted() {
    let text = "import os\nclass Parent:\n  def do_filter(self, *_): raise ValueError(os.getppid())\n";
    let folder = Plugin::new("killed", &[("units.py", UNITS), ("parent.py", text)]);
    let mut plugins = with_hosts(folder.start());
    let message = filter(&mut plugins, "Parent", &["a"], &[]).expect_err("its parent's number");
    let number =
        message.strip_prefix("exception: ValueError: ").and_then(|message| message.split(' ').next());
    let number = number.and_then(|text| text.parse().ok()).expect(&message);
    let pid = rustix::process::Pid::from_raw(number).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is there");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut failures = 0;
    while filter(&mut plugins, "Few", &["a", "b", "c"], &[]) != Ok(names(&["c"])) {
        assert!(std::time::Instant::now() < until, "it does not come back");
        assert!(plugins.units().iter().any(|unit| unit.name == "Few"), "its units stay known");
        failures += 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(failures > 0, "whoever was killed answered");
}

#[test]
fn a_plugin_host_that_can_not_start_is_reported() {
    let folders = vec![Folder::new("/nonexistent")];
    let mut plugins =
        with_hosts(plugins(folders, vec![Service::new("ftp://x"), Service::new("http://127.0.0.1:1/p")]));
    assert!(plugins.units().is_empty());
    let problems = plugins.problems();
    let of = |source: &str| problems.iter().filter(|it| it.source == source).count();
    let reported = |text: &str| problems.iter().any(|it| format!("{it:?}").contains(text));
    assert!(reported("there is no folder /nonexistent"), "{problems:?}");
    assert_eq!((of("/nonexistent"), of("ftp://x"), of("http://127.0.0.1:1/p")), (1, 1, 1), "{problems:?}");
    assert_eq!(filter(&mut plugins, "Few", &["a"], &[]), Err("there is no such unit now".into()));
}

/// A service whose filter accepts or rejects according to its `give` property.
async fn serve(Path(op): Path<String>, Json(body): Json<Value>) -> Json<Value> {
    let unit = |name: &str, kind: &str| json!({"name": name, "kinds": [kind]});
    let give = body["properties"]["give"].as_str().unwrap_or_default();
    Json(match op.as_str() {
        "discover" => {
            json!({"ok": {"stateless": true, "units": [unit("Far", "filter"), unit("Far", "balance")]}})
        }
        "filter" if give == "inventory" => {
            let fast = |host: &Value| if host["vms_active"] == 1 { '1' } else { '0' };
            let mut mask = ['0'; 3];
            for host in body["inventory"].as_array().into_iter().flatten() {
                mask[host["slot"].as_u64().unwrap_or(0) as usize] = fast(host);
            }
            json!({"ok": {"hosts": mask.iter().collect::<String>()}})
        }
        "filter" => json!({"ok": {"hosts": give}}),
        "balance" => serde_json::from_str(give).unwrap_or(Value::Null),
        _ => json!({"error": {"kind": "request", "text": "no"}}),
    })
}

#[test]
fn replies_of_an_http_service_are_checked() {
    let (port, ported) = std::sync::mpsc::channel();
    let (over, stop) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            port.send(listener.local_addr().expect("an address").port()).expect("somebody waits");
            let served = axum::serve(listener, Router::new().route("/p/{op}", post(serve)));
            tokio::select! { _ = served.into_future() => {}, _ = stop => {} }
        });
    });
    let port = ported.recv().expect("a port");
    let mut plugins =
        with_hosts(plugins(Vec::new(), vec![Service::new(format!("http://127.0.0.1:{port}/p/"))]));
    let all = ["a", "b", "c"];
    assert_eq!(filter(&mut plugins, "Far", &all, &[("give", "inventory")]), Ok(names(&["b"])));
    assert_eq!(filter(&mut plugins, "Far", &all, &[("give", "101")]), Ok(names(&["a", "c"])));
    let strangers = Err("result: it names hosts that are not candidates".to_string());
    for give in ["0001", "xyz"] {
        assert_eq!(filter(&mut plugins, "Far", &all, &[("give", give)]), strangers, "{give}");
    }
    assert_eq!(filter(&mut plugins, "Far", &["a"], &[("give", "11")]), strangers);
    let mut balance = |give: &str| {
        let properties = BTreeMap::from([("give".to_string(), give.to_string())]);
        plugins.balance("Far", &names(&all), &properties).map_err(|error| error.what)
    };
    assert_eq!(balance(r#"{"ok": {"action": null}}"#), Ok(Vec::new()));
    let off = ExternalAction::Power { host: "b".into(), on: false, reason: "it is late".into() };
    assert_eq!(balance(r#"{"ok": {"action": "sleep", "host": 1, "reason": "it is\n late"}}"#), Ok(vec![off]));
    let reason = String::new;
    let several = r#"{"ok": {"action": null, "actions": [{"action": "stop", "vm": "v"},
        {"action": "deactivate", "host": 0}, {"action": "activate", "host": 2}]}}"#;
    let maintenance =
        |host: &str, on| ExternalAction::Maintenance { host: host.into(), on, reason: reason() };
    let stop = ExternalAction::Stop { vm: "v".into(), reason: reason() };
    assert_eq!(balance(several), Ok(vec![stop, maintenance("a", true), maintenance("c", false)]));
    assert!(balance(r#"{"ok": {"action": null, "actions": [{"action": "stop", "vm": "nobody"}]}}"#).is_err());
    assert!(balance(r#"{"ok": {"action": "wake", "host": 9}}"#).is_err());
    assert!(balance(r#"{"ok": {"action": "migrate", "vm": "nobody", "hosts": [0]}}"#).is_err());
    assert!(balance(r#"{"ok": {"action": "migrate", "vm": "v", "hosts": [77]}}"#).is_err());
    assert_eq!(balance(r#"{"error": {"kind": "exception", "text": "no"}}"#), Err("exception: no".into()));
    assert_eq!(balance("{}"), Err("an answer with neither ok nor error".into()));
    drop(over);
    server.join().expect("the server ends");
}

#[test]
fn a_replaced_python_is_used() {
    let plugin = Plugin::new("follows", &[("units.py", UNITS)]);
    let scripts = Plugin::new("pythons", &[]);
    let python = scripts.0.join("python");
    let runs = scripts.0.join("runs");
    let looked = || std::fs::read_to_string(&runs).unwrap_or_default().lines().count();
    let serves = format!("echo >> {}; exec python3 \"$@\"", runs.display());
    for (name, what) in
        [("python", "exit 1"), ("first", &*serves), ("second", &*serves), ("broken", "exit 1")]
    {
        let path = scripts.0.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{what}\n")).expect("a script");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a program");
    }
    let is_now = |name: &str| std::fs::rename(scripts.0.join(name), &python).expect("another Python");
    let folders = vec![Folder::new(&plugin.0)];
    let mut plugins = Plugins::start(Options { python: python.clone(), folders, ..Options::default() });
    assert!(External::units(&mut plugins).is_empty());
    // Otherwise it would be suspended for a moment.
    is_now("first");
    let units = External::units(&mut plugins);
    assert!(!units.is_empty() && looked() == 1, "{units:?}");
    let mut plugins = with_hosts(plugins);
    for (name, runs) in [("second", 2), ("broken", 2)] {
        is_now(name);
        assert_eq!(External::units(&mut plugins), units);
        let kept = filter(&mut plugins, "Few", &["a", "b", "c"], &[]);
        assert_eq!((kept, looked()), (Ok(names(&["c"])), runs), "{name}");
    }
}
