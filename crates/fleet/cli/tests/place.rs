//! `ringway place` without a fabric: the commands that the documentation shows.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with the examples, to run commands in.
struct Lab(PathBuf);

impl Lab {
    fn new(name: &str) -> Lab {
        let folder = std::env::temp_dir().join(format!("ringway-place-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("examples/placement")).unwrap();
        let example =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/placement/inventory.toml");
        std::fs::copy(example, folder.join("examples/placement/inventory.toml")).unwrap();
        Lab(folder)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(words).current_dir(&self.0).env("RINGWAY_RUN", self.0.join("run")).output().unwrap()
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn shown_commands_work() {
    let lab = Lab::new("shown");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/placement.md");
    let page = std::fs::read_to_string(page).unwrap();
    let shown = page.lines().filter_map(|line| line.strip_prefix("$ ringway "));
    // The other commands need a running fabric, a trace's file or plugins.
    let alone = |line: &&str| {
        let made_up = line.contains(" simulate ") && !line.contains("--trace");
        (line.contains("--inventory") || made_up) && !line.contains("--plugins")
    };
    let mut count = 0;
    for line in shown.filter(alone) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(!lab.ok(&words).is_empty(), "{line} says nothing");
        count += 1;
    }
    assert!(count >= 8, "only {count} commands are shown");
    assert!(std::fs::read_to_string(lab.0.join("run.svg")).unwrap().ends_with("</svg>\n"));
}

#[test]
fn try_prints_reasons_and_sets_exit_codes() {
    let lab = Lab::new("reasons");
    let on = |words: &[&str]| {
        let all: Vec<&str> = ["place", "--inventory", "examples/placement/inventory.toml"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        lab.run(&all)
    };
    let stdout = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let why = on(&["why-not", "db-2", "node-0"]);
    let reason = "VmAffinityGroups: VMs of group databases are already on it";
    assert!(stdout(&why).contains(reason), "{}", stdout(&why));
    let huge = on(&["try", "huge", "--cpus", "64", "--memory", "1024"]);
    assert_eq!(huge.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&huge.stderr).contains("CPU removed 8"));
    assert_eq!(on(&["try", "nobody"]).status.code(), Some(5));
    std::fs::write(lab.0.join("bad.toml"), "[host.a]\ncores = 0\n").unwrap();
    let bad = lab.run(&["place", "--inventory", "bad.toml", "hosts"]);
    assert_eq!(bad.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(stderr.trim(), "bad.toml:1:7: host a: `cores` is 0; permitted: 1 to 65536");
    let units = lab.ok(&["place", "policies", "--units", "--json"]);
    let units: serde_json::Value = serde_json::from_str(&units).unwrap();
    assert!(units.as_array().unwrap().len() > 50);
}

#[test]
fn a_missing_plugin_folder_is_reported() {
    let lab = Lab::new("folder");
    let inventory = "examples/placement/inventory.toml";
    let output = lab.run(&["place", "--inventory", inventory, "--plugins", "./nowhere", "try", "web-3"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("nowhere: no such folder") && output.status.code() == Some(1), "{stderr}");
    assert!(output.stdout.is_empty());
}

/// Plugins run with a Python that lacks our package; without Python they are refused.
#[test]
fn plugins_need_only_a_python() {
    let lab = Lab::new("python");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let rules = root.join("examples/placement/rules.toml").display().to_string();
    let plugins = root.join("examples/plugins").display().to_string();
    let on = ["place", "--inventory", rules.as_str(), "--plugins", plugins.as_str()];
    let run = |words: &[&str], path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(on).args(words).current_dir(&lab.0).env_clear().env("PATH", path).output().unwrap()
    };
    let path = std::env::var("PATH").unwrap();
    let output = run(&["why-not", "new", "node-0", "--policy", "few"], &path);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("MaxVms: has 2 VMs, at most 2"), "{output:?}");
    let empty = lab.0.join("empty");
    std::fs::create_dir(&empty).unwrap();
    for words in [&["policies"][..], &["simulate", "--cluster", "default", "--vms", "1"]] {
        let output = run(words, empty.to_str().unwrap());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
        assert!(stderr.contains("examples/plugins: python3: No such file"), "{stderr}");
    }
}

/// `place simulate` uses the given inventory and plugins.
#[test]
fn a_simulation_uses_an_inventory_and_its_plugins() {
    let lab = Lab::new("simulate");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let rules = root.join("examples/placement/rules.toml").display().to_string();
    let plugins = root.join("examples/plugins").display().to_string();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        let output = command.args(words).current_dir(&lab.0).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (json, output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let on = ["place", "--inventory", rules.as_str(), "--plugins", plugins.as_str(), "simulate"];
    // Two VMs per host on three hosts, where two VMs run already.
    let (json, code, stderr) = run(&[
        &on[..],
        &["--policy", "few", "--vms", "30", "--lifetime", "0", "--cluster", "default", "--json"],
    ]
    .concat());
    assert_eq!(
        (code, &json[0]["hosts"], &json[0]["placed"]),
        (Some(0), &3.into(), &4.into()),
        "{json} {stderr}"
    );
    // A policy in a separate file can use the plugins' units too.
    std::fs::write(
        lab.0.join("p.toml"),
        "[policy.one]\nfilters = [\"Memory\", \"MaxVms\"]\n\
        properties = { maximum_vms = 1 }\n",
    )
    .unwrap();
    let made_up = ["place", "--plugins", plugins.as_str(), "simulate", "--hosts", "5", "--file", "p.toml"];
    let (json, _, stderr) =
        run(&[&made_up[..], &["--policy", "one", "--vms", "30", "--lifetime", "0", "--json"]].concat());
    assert_eq!(json[0]["placed"], 5, "{json} {stderr}");
    for (words, wanted) in [
        (
            vec!["--policy", "few", "--cluster", "nowhere"],
            "cluster nowhere has no hosts; there are hosts of busy",
        ),
        (vec!["--policy", "few", "--cluster", "busy", "--hosts", "7"], "leave --hosts and --nodes out"),
        (vec!["--policy", "fwe", "--cluster", "busy"], "there is no policy \"fwe\""),
    ] {
        let (_, code, stderr) = run(&[&on[..], &words].concat());
        assert!(code != Some(0) && stderr.contains(wanted), "{words:?}: {code:?} {stderr}");
    }
    let (_, code, stderr) = run(&["place", "--plugins", plugins.as_str(), "try", "web-3"]);
    assert!(code == Some(1) && stderr.contains("add --inventory FILE"), "{stderr}");
    for (words, wanted) in [
        (["--gap", "99999999999999"], "the trace lasts"),
        (["--hosts", "0"], "0 is not in 1..=1000000"),
        (["--vms", "99999999999"], "99999999999 is not in 1..=20000000"),
    ] {
        let (_, code, stderr) = run(&[&["place", "simulate"][..], &words].concat());
        assert!(matches!(code, Some(1 | 2)) && stderr.contains(wanted), "{words:?}: {stderr}");
    }
    // The second VM arrives after the first has left, and there is room for both.
    std::fs::write(lab.0.join("t.csv"), "vmid,cpu,memory,time,type\n0,4,8,0,0\n0,4,8,99,1\n1,4,8,500,0\n")
        .unwrap();
    let trace = ["place", "simulate", "--hosts", "1", "--trace", "t.csv"];
    for (more, vms, end) in [(&[][..], 1, "/10.0%"), (&["--ignore-departures"][..], 2, "/20.0%")] {
        let (json, _, stderr) = run(&[&trace[..], more, &["--json"]].concat());
        let last = json[0]["samples"].as_array().unwrap().last().unwrap();
        assert_eq!(last["vms"], vms, "{stderr}");
        let table = lab.ok(&[&trace[..], more].concat());
        assert!(table.contains(" CPU/END ") && table.contains(end), "{table}");
    }
    let (_, code, stderr) = run(&["place", "simulate", "--cluster", "x"]);
    assert!(code == Some(1) && stderr.contains("add --inventory FILE"), "{stderr}");
}

/// Unknown names are reported, with their exit codes.
#[test]
fn unknown_names_are_reported() {
    let lab = Lab::new("names");
    let inventory = "examples/placement/inventory.toml";
    let on = |words: &[&str]| {
        let output = lab.run(&[&["place", "--inventory", inventory], words].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for words in [&["try", "web-3", "--only", "nosuch"][..], &["try", "web-3", "--without", "node-0,nosuch"]]
    {
        let (code, stderr) = on(words);
        assert!(code == Some(5) && stderr.contains("there is no host nosuch"), "{words:?}: {stderr}");
    }
    let (code, stderr) = on(&["try", "web-3", "web-3"]);
    assert!(code == Some(1) && stderr.contains("VM web-3 is named twice"), "{stderr}");
    let (code, stderr) = on(&["fact", "nosuch", "heat", "3"]);
    assert!(code == Some(1) && stderr.contains("there is no host nosuch"), "{stderr}");
    std::fs::write(lab.0.join("bad.toml"), "[cluster.c]\npolicy = \"pakcing\"\n").unwrap();
    let bad = lab.run(&["place", "--inventory", "bad.toml", "hosts"]);
    let stderr = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(
        bad.status.code() == Some(3) && stderr.starts_with("bad.toml:2:10: cluster c: there is no policy"),
        "{stderr}"
    );
}

/// Commands that change hosts save the inventory, and nothing else in it changes.
#[test]
fn changes_to_an_inventory_are_saved() {
    let lab = Lab::new("saves");
    let text = "# Two racks.\n[host.node-04] # the old one\ncores = 4\nthreads = 4\nmemory-mb = 8192\n\n\
        [host.late]\ncores = 4\nthreads = 4\nmemory-mb = 8192\n\n\
        [vm.v]\nhost = \"node-04\"\nstatus = \"up\"\n";
    let file = lab.0.join("i.toml");
    std::fs::write(&file, text).unwrap();
    let on = |words: &[&str]| {
        let output = lab.run(&[&["place", "--inventory", "i.toml"], words].concat());
        let [stdout, stderr] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        (output.status.code(), stdout + &stderr)
    };
    let saved = || std::fs::read_to_string(&file).unwrap();
    assert_eq!(on(&["maintenance", "late"]).0, Some(0));
    assert_eq!(saved(), text.replace("8192\n\n[vm", "8192\nstatus = \"maintenance\"\n\n[vm"));
    assert_eq!(on(&["activate", "late"]).0, Some(0));
    assert_eq!(saved(), text);
    assert_eq!(on(&["cordon", "late", "--reason", "smoke"]).0, Some(0));
    assert!(on(&["hosts"]).1.contains("blacklisted: smoke"));
    assert_eq!(on(&["uncordon", "late"]).0, Some(0));
    let (code, said) = on(&["drain", "node-04"]);
    assert!(code == Some(0) && said.contains("v moves to late (1 of 1)"), "{said}");
    let now = saved();
    assert!(
        now.starts_with("# Two racks.\n[host.node-04] # the old one\n") && now.contains("host = \"late\"")
    );
    assert!(on(&["vms", "--host", "late"]).1.contains("v "), "{now}");
    // What fails, what only looks, and what a file can't keep change nothing.
    for (words, code, wanted) in [
        (&["maintenance", "node-4"][..], 5, "there is no host node-4; did you mean node-04?"),
        (&["run", "v"], 1, "a reservation can't be kept in an inventory file"),
        (&["confirm", "v"], 1, "has no reservations"),
        (&["put", "i.toml"], 1, "`put` is for a running fabric"),
        (&["join"], 1, "has no host of its own"),
        (&["explain", "vv"], 5, "there is no VM vv; did you mean v?"),
    ] {
        let (given, said) = on(words);
        assert!(given == Some(code) && said.contains(wanted), "{words:?}: {given:?} {said}");
    }
    assert!(on(&["explain", "v"]).1.contains("v runs on late, without a decision"));
    assert_eq!(saved(), now);
}
