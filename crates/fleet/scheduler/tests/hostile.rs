//! Hostile plugins: each placement succeeds and records the error, and other units are not affected.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::engine::Object;
use ringway_place::object::{Host, Vm};
use ringway_place::policy::{FilterUse, OnError, Policy, WeightUse};
use ringway_scheduler::plugins::{Folder, Options};
use ringway_scheduler::{DecisionView, PlaceRequest, Service};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Files of one folder; all but `good.py` have a filter whose class is named after its attack.
const FILES: [(&str, &str); 16] = [
    ("good.py", "return hosts"),
    ("forks.py", "while True: os.fork()"),
    ("starts.py", "return subprocess.run(['/bin/sh', '-c', ':(){ :|:& };:'])"),
    (
        "threads.py",
        "for _ in range(100_000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ),
    (
        "garbage.py",
        "os.write(1, os.urandom(1 << 22)); os.write(2, os.urandom(1 << 22)); return b'\\xff' * 9999",
    ),
    ("eats.py", "return [bytearray(1 << 20) for _ in range(1 << 20)]"),
    ("endless.py", "return itertools.cycle(hosts)"),
    ("strange.py", "return ['nobody', 7, None]"),
    ("closes.py", "os.closerange(0, 4096); return hosts"),
    ("writes.py", "open(args['store'], 'r+b').write(b'gone'); return hosts"),
    ("removes.py", "os.remove(args['store']); return hosts"),
    ("exits.py", "os._exit(0)"),
    ("kills.py", "os.kill(int(args['pid']), 9); return hosts"),
    ("parent.py", "os.kill(os.getppid(), 15); return hosts"),
    ("deep.py", "return functools.reduce(lambda a, _: [a], range(100_000), [])"),
    ("patches.py", "json.dumps = None; sys.modules.clear(); sys.stdout.close(); raise SystemExit('bye')"),
];

/// Files that are hostile on import.
const AT_IMPORT: [(&str, &str); 4] = [
    ("hangs_first.py", "while True: pass\n"),
    ("exits_first.py", "import os\nos._exit(0)\n"),
    ("recurses_first.py", "def f(): f()\nf()\n"),
    ("null_first.py", "x = '\u{0}'\n"),
];

struct Lab {
    folder: PathBuf,
    service: Service,
}

fn class(file: &str) -> String {
    let name = file.trim_end_matches(".py");
    format!("{}{}", name[..1].to_uppercase(), &name[1..])
}

impl Lab {
    fn new(name: &str, limit_ms: u32) -> Lab {
        let folder = std::env::temp_dir().join(format!("ringway-hostile-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("bad")).unwrap();
        std::fs::create_dir_all(folder.join("others")).unwrap();
        for (file, body) in FILES {
            let text = format!(
                "import functools, itertools, json, os, subprocess, sys, threading, time\n\
                from ringway.placement import Filter\n\nclass {}(Filter):\n    \
                properties_validation = 'store=.*;pid=.*'\n\n    \
                def do_filter(self, hosts, vm, args):\n        {body}\n",
                class(file)
            );
            std::fs::write(folder.join("bad").join(file), text).unwrap();
        }
        let other = "from ringway.placement import Score\n\nclass Other(Score):\n    \
            def do_score(self, hosts, vm, args):\n        \
            return [1 if host.id == 'h2' else 9 for host in hosts]\n";
        std::fs::write(folder.join("others/other.py"), other).unwrap();
        let service = Service::open(&folder.join("placement.redb")).unwrap();
        let bad = Folder { limit_ms, memory_mb: 256, ..Folder::new(folder.join("bad")) };
        let folders = vec![bad, Folder { limit_ms: 30_000, ..Folder::new(folder.join("others")) }];
        service.attach(Options { folders, ..Options::default() }).unwrap();
        let host = |name: &str| {
            let host = Host { name: name.into(), memory_mb: 8192, ..Host::default() };
            Object::Host(Box::new(host))
        };
        let hosts = ["h0", "h1", "h2"].map(host);
        let vm = Object::Vm(Box::new(Vm { name: "v".into(), memory_mb: 64, ..Vm::default() }));
        service.put(hosts.into_iter().chain([vm]).collect()).unwrap();
        Lab { folder, service }
    }

    /// Places with a policy that has one of the filters and the other folder's weight.
    fn place(&self, unit: &str) -> DecisionView {
        let filter =
            |name: &str| FilterUse { name: name.into(), on_error: OnError::Skip, ..FilterUse::default() };
        let store = self.folder.join("placement.redb").display().to_string();
        let policy = Policy {
            name: "p".into(),
            filters: vec![filter("Memory"), filter(unit)],
            weights: vec![WeightUse { name: "Other".into(), factor: 1, required: false }],
            balancer: "None".into(),
            properties: [("store".into(), store), ("pid".into(), std::process::id().to_string())].into(),
            ..Policy::default()
        };
        self.service.put(vec![Object::Policy(policy)]).unwrap();
        let request =
            PlaceRequest { vms: vec!["v".into()], policy: Some("p".into()), ..PlaceRequest::default() };
        self.service.place(request).unwrap()
    }

    /// Places until a unit answers again, even while its folder is suspended.
    fn answers(&self, unit: &str) -> DecisionView {
        let end = Instant::now() + Duration::from_secs(240);
        loop {
            let decision = self.place(unit);
            if decision.choices[0].errors.is_empty() || Instant::now() > end {
                return decision;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn placement_succeeds_whatever_a_plugin_does() {
    let lab = Lab::new("calls", 2000);
    let units: Vec<String> = lab.service.units().into_iter().map(|unit| unit.name).collect();
    for (file, _) in FILES {
        assert!(units.contains(&class(file)), "{file}");
    }
    for (file, _) in FILES.iter().skip(1) {
        let unit = class(file);
        let decision = lab.place(&unit);
        let choice = &decision.choices[0];
        // The other folder's weight was used, and the hostile filter is reported in a printable line.
        assert_eq!((decision.placed, choice.host.as_deref()), (true, Some("h2")), "{unit}: {choice:?}");
        let error = choice.errors.iter().find(|error| error.starts_with(&format!("{unit}: ")));
        assert!(error.is_some_and(|error| error.len() < 5000), "{unit}: {choice:?}");
        let explained = lab.service.explain(decision.id).unwrap();
        assert_eq!((explained.note.as_str(), &explained.decision), ("", &decision));
        // Another unit of the same folder answers again.
        let good = lab.answers("Good");
        assert!(good.choices[0].errors.is_empty() && good.placed, "after {unit}: {good:?}");
    }
    assert_eq!(lab.service.hosts().unwrap().len(), 3);
    let path = lab.folder.join("placement.redb");
    let (bytes, folder) = (std::fs::read(&path).unwrap(), lab.folder.join("bad"));
    assert!(!bytes.starts_with(b"gone") && std::fs::read_dir(folder).unwrap().count() >= FILES.len());
}

#[test]
fn plugins_that_fail_at_import_are_reported_and_others_load() {
    let lab = Lab::new("import", 2000);
    for (file, text) in AT_IMPORT {
        std::fs::write(lab.folder.join("bad").join(file), text).unwrap();
    }
    let end = Instant::now() + Duration::from_secs(240);
    let all =
        |problems: &[String]| AT_IMPORT.iter().all(|(file, _)| problems.iter().any(|it| it.contains(file)));
    let mut problems = Vec::new();
    while !all(&problems) && Instant::now() < end {
        lab.place("Good");
        problems = lab.service.plugins().problems;
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(all(&problems), "{problems:#?}");
    let good = lab.answers("Good");
    assert!(good.choices[0].errors.is_empty() && good.placed, "{good:?}");
}
