//! Operators' commands for placement in a running fabric: objects and hosts, events, the store and its backups.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::Lab;
use serde_json::json;

const HOSTS: &str = "[cluster.default]\ninterval = 0\n[policy.night]\nbase = \"packing\"\n\
    properties = { VCpuAllocationRatio = 4 }\n\
    [host.a]\ncores = 4\nthreads = 4\nmemory-mb = 8192\n[host.b]\ncores = 4\nthreads = 4\nmemory-mb = 8192\n\
    [vm.v]\nhost = \"a\"\nstatus = \"up\"\n[vm.w]\nmemory-mb = 1024\n";

fn up(name: &str) -> Lab {
    let lab = Lab::new(name, "");
    std::fs::write(lab.folder.join("hosts.toml"), HOSTS).unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab.ok(&["place", "put", "hosts.toml"]);
    lab
}

/// The words of the table row that begins with a name.
fn row(table: &str, name: &str) -> Vec<String> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {table}")).split_whitespace().map(str::to_string).collect()
}

#[test]
fn objects_are_added_changed_and_removed() {
    let lab = up("operators");
    lab.ok(&["place", "run", "w", "--only", "b"]);
    let vms = lab.ok(&["place", "vms"]);
    assert_eq!(row(&vms, "v"), ["v", "default", "up", "a", "-", "1", "512", "MB", "-"]);
    assert_eq!(row(&vms, "w"), ["w", "default", "down", "-", "b", "1", "1024", "MB", "-"]);
    let on_b = lab.json(&["place", "vms", "--host", "b"]);
    assert_eq!((on_b[0]["name"].as_str(), on_b[0]["reserved"].as_str()), (Some("w"), Some("b")));
    assert_eq!(on_b.as_array().unwrap().len(), 1);

    lab.ok(&["place", "load", "b", "--cpu", "85", "--free", "4000"]);
    let host = |name: &str| {
        let hosts = lab.json(&["place", "hosts"]);
        hosts.as_array().unwrap().iter().find(|host| host["name"] == name).unwrap().clone()
    };
    assert!(host("b")["load"].as_f64().unwrap() >= 85.0, "{}", host("b"));
    lab.ok(&["place", "remove", "load", "b"]);
    assert!(host("b")["load"].as_f64().unwrap() < 85.0);
    assert!(lab.fails(&["place", "load", "b"]).1.contains("nothing was measured"));

    lab.ok(&["place", "blacklist", "b", "--reason", "smoke", "--for", "3600"]);
    assert_eq!(row(&lab.ok(&["place", "blacklist"]), "b"), ["b", "default", "smoke"]);
    assert!(lab.ok(&["place", "why-not", "w", "b"]).contains("Blacklist"));
    lab.ok(&["place", "blacklist", "b", "--remove"]);
    assert_eq!(lab.ok(&["place", "blacklist"]).lines().count(), 1);

    lab.ok(&["place", "fact", "b", "heat", "71"]);
    lab.ok(&["place", "remove", "fact", "b/heat"]);
    assert_eq!(host("b")["facts"], json!({}));
    assert_eq!(lab.fails(&["place", "remove", "fact", "b/heat"]).0, 5);
    assert!(lab.fails(&["place", "remove", "host", "a"]).1.contains("host a has VM v"));
    lab.ok(&["place", "release", "w"]);
    lab.ok(&["place", "remove", "vm", "w"]);
    assert_eq!(lab.fails(&["place", "remove", "vm", "w"]), (5, "error: there is no VM w\n".into()));

    let stdout = lab.ok(&["place", "policy", "night"]);
    assert_eq!(row(&stdout, "Packing")[..2], ["Packing", "10"]);
    assert_eq!(row(&stdout, "VCpuAllocationRatio")[1..3], ["4", "policy"]);
    assert_eq!(row(&stdout, "PortUtilization")[1..3], ["100", "default"]);
    assert!(row(&stdout, "Status").contains(&"always".into()) && row(&stdout, "VCpuCapacity").len() > 3);
    assert_eq!(lab.json(&["place", "policy", "night"])["balancer"], "None");
    assert_eq!(lab.fails(&["place", "policy", "nigth"]).0, 5);
}

#[test]
fn hosts_enter_and_leave_maintenance_with_events() {
    let lab = up("maintenance");
    let revision = lab.json(&["place", "events", "--count", "1"])["revision"].as_u64().unwrap().to_string();
    assert_eq!(
        lab.ok(&["place", "maintenance", "a", "b"]),
        "a is preparing for maintenance\nb is in maintenance\n"
    );
    let hosts = lab.ok(&["place", "hosts"]);
    assert!(hosts.contains(" preparing for maintenance ") && hosts.contains(" in maintenance "), "{hosts}");
    lab.ok(&["place", "activate", "b"]);
    lab.ok(&["place", "balance"]);
    // The fabric checks every second.
    let status = || lab.json(&["place", "hosts"]).as_array().unwrap()[0]["status"].clone();
    crate::lab::until("host a is in maintenance", || status() == "maintenance");
    assert_eq!(lab.ok(&["place", "activate", "a"]), "a is up\n");
    let events = lab.json(&["place", "events", "--after", &revision, "--count", "1000"]);
    let lines: Vec<String> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| ["a", "b", "v"].contains(&event["name"].as_str().unwrap()) && event["kind"] != "load")
        .map(|it| {
            let what = if it["gone"] == true { "gone" } else { it["what"].as_str().unwrap() };
            format!("{} {} {what}", it["kind"].as_str().unwrap(), it["name"].as_str().unwrap())
        })
        .collect();
    let reserved = lines.iter().find(|line| line.starts_with("pending v b by decision")).unwrap();
    assert_eq!(
        lines,
        [
            "host a PreparingForMaintenance",
            "host b Maintenance",
            "host b Up",
            reserved,
            "vm v Up on b",
            "pending v gone",
            "host a Maintenance",
            "host a Up",
        ]
    );
    assert!(events["events"][0]["at"].as_u64().is_some());
    let table = lab.ok(&["place", "events"]);
    assert!(table.starts_with("REVISION  TIME") && table.contains("Maintenance"), "{table}");
}

/// The process is killed, then a bit of the store flips: the store is neither served nor written, and can be
/// restored.
#[test]
fn a_damaged_store_is_refused_and_restored() {
    let lab = up("store");
    let folder = lab.folder.join("run/lab");
    let files =
        || ["placement.redb", "placement.redb.log"].map(|name| std::fs::read(folder.join(name)).unwrap());
    let stdout = lab.ok(&["place", "store", "backup", "copy"]);
    assert!(stdout.contains("2 hosts, 2 VMs, 0 reservations"), "{stdout}");
    assert!(lab.fails(&["place", "store", "restore", "copy"]).1.contains("in use"));
    lab.ok(&["place", "run", "w"]);
    let control: u64 = std::fs::read_to_string(folder.join("lock")).unwrap().trim().parse().unwrap();
    // The keeper first, which would start another one.
    [crate::lab::api::parent(control), control].into_iter().for_each(crate::lab::api::kill);
    crate::lab::until("the fabric is gone", || {
        !std::path::Path::new(&format!("/proc/{control}/fd")).exists()
    });
    let [_, mut log] = files();
    let at = log.iter().rposition(|byte| *byte != 0).unwrap();
    log[at] ^= 1;
    std::fs::write(folder.join("placement.redb.log"), &log).unwrap();
    let damaged = files();

    lab.ok(&["up", "lab.toml", "--detach"]);
    for words in [vec!["place", "hosts"], vec!["place", "put", "hosts.toml"], vec!["place", "store", "check"]]
    {
        let (code, stderr) = lab.fails(&words);
        assert!(
            code == 1 && stderr.contains("damaged") && stderr.contains("place store restore"),
            "{stderr}"
        );
    }
    lab.ok(&["down"]);
    assert_eq!(lab.fails(&["place", "store", "check"]).0, 1);
    assert!(files() == damaged, "refused files are left as they are");
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert_eq!(lab.fails(&["place", "vms"]).0, 1);

    // Previous changes are restored, and the fabric reads the store again.
    let stdout = lab.ok(&["place", "store", "restore", "--salvage"]);
    assert!(stdout.contains("2 hosts, 2 VMs") && stdout.contains("placement.redb.log.before-1"), "{stdout}");
    assert_eq!(lab.json(&["place", "vms"]).as_array().unwrap().len(), 2);
    lab.ok(&["place", "remove", "vm", "w"]);
    lab.ok(&["down"]);
    lab.ok(&["place", "store", "restore", "copy"]);
    let check = lab.json(&["place", "store", "check"]);
    assert_eq!(check["holds"]["objects"]["vm"], 2, "{check}");
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert_eq!(lab.json(&["place", "vms"]).as_array().unwrap().len(), 2);
}

#[test]
fn hosts_are_drained_cordoned_and_opened_again() {
    let lab = up("drain");
    let pinned = "[vm.p]\nhost = \"a\"\nstatus = \"up\"\nmigration = \"pinned_to_host\"\n";
    std::fs::write(lab.folder.join("pinned.toml"), pinned).unwrap();
    lab.ok(&["place", "put", "pinned.toml"]);
    assert_eq!(lab.ok(&["place", "cordon", "b"]), "b is cordoned: it gets no new VMs\n");
    assert!(lab.ok(&["place", "why-not", "w", "b"]).contains("Blacklist: it is blacklisted: cordoned"));
    let (code, stderr) = lab.fails(&["place", "drain", "a", "--wait"]);
    assert!(code == 1 && stderr.contains("host a still has 2 VMs (p, v)"), "{stderr}");
    assert_eq!(lab.ok(&["place", "uncordon", "b"]), "b is open to new VMs\n");
    let (code, stderr) = lab.fails(&["place", "drain", "a", "--wait", "600"]);
    assert!(code == 1 && stderr.contains("p: it is pinned to the host; stop it"), "{stderr}");
    assert_eq!(lab.json(&["place", "vms", "--host", "b"])[0]["name"], "v");
    lab.ok(&["place", "remove", "vm", "p"]);
    assert_eq!(lab.ok(&["place", "drain", "a", "--wait"]), "a is drained: it is empty and in maintenance\n");
    assert_eq!(lab.json(&["place", "uncordon", "a"])[0]["status"], "up");
    let moved = lab.ok(&["place", "drain", "b"]);
    assert!(moved.contains("b: v moves to a (1 of 1)"), "{moved}");
    let (code, stderr) = lab.fails(&["place", "drain", "aa"]);
    assert!(code == 5 && stderr.contains("there is no host aa; did you mean a?"), "{stderr}");

    // A VM is explained by its newest decision, or by what would be decided.
    lab.ok(&["place", "uncordon", "b"]);
    assert!(lab.ok(&["place", "explain", "w"]).contains("w was not placed yet; this would be decided now:"));
    let id = lab.json(&["place", "run", "w"])["id"].clone();
    assert_eq!(lab.json(&["place", "explain", "w"])["decision"]["id"], id);
    assert_eq!(lab.fails(&["place", "explain", "ww"]).0, 5);
    // Measurements are no events, unless all are asked for.
    lab.ok(&["place", "load", "a", "--cpu", "10"]);
    assert!(!lab.ok(&["place", "events"]).contains(" load "));
    assert!(lab.ok(&["place", "events", "--all"]).contains(" load "));
    // Nor are the rates of a fabric's ports, which are facts of its host. Other facts are.
    lab.ok(&["place", "fact", "a", "port_left_mbps", "7"]);
    assert!(!lab.ok(&["place", "events"]).contains(" fact "));
    assert!(lab.ok(&["place", "events", "--all"]).contains("a/port_left_mbps"));
    lab.ok(&["place", "fact", "a", "heat", "7"]);
    let events = lab.ok(&["place", "events"]);
    assert!(events.contains(" fact ") && events.contains("a/heat") && !events.contains("_mbps"), "{events}");
}
