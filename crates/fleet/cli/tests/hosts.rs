//! `[host.NAME]`, links of switches, `ringway host` and `ringway topo`, with real network namespaces.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::net::can_create_taps;
use crate::lab::{Lab, Running, until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILE: &str = "
[switch.s1]
[switch.s2]
[host.h1]
switch = \"s1\"
address = \"10.0.0.1/24\"
gateway = \"10.0.0.254\"
run = [\"echo here; sleep 1000\", \"exit 3\"]
[host.h2]
switch = \"s1\"
addresses = [\"10.0.0.2/24\", \"10.0.9.2/24\", \"fd00::2/64\"]
link = { delay = \"30ms\" }
[host.r]
run = [\"sysctl -w net.ipv4.ip_forward=1\"]
[port.r1]
kind = \"tap\"
host = \"r\"
interface = \"eth0\"
address = \"10.0.0.254/24\"
switch = \"s1\"
[port.r2]
kind = \"tap\"
host = \"r\"
interface = \"eth1\"
address = \"10.1.0.254/24\"
switch = \"s2\"
[switch.s3]
[link.trunk]
ports = [\"s2\", \"s3\"]
delay = \"20ms\"
[host.far]
switch = \"s3\"
address = \"10.1.0.1/24\"
gateway = \"10.1.0.254\"
";

/// Round-trip times of answers to pings, in milliseconds.
fn ping(lab: &Lab, from: &str, count: u32, to: &str) -> Vec<f64> {
    let count = count.to_string();
    let words = ["host", "exec", from, "--", "ping", "-n", "-i", "0.05", "-W", "5", "-c", &count, to];
    let output = lab.run(&words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
    text.lines().filter_map(time).collect()
}

fn namespace(lab: &Lab, host: &str) -> PathBuf {
    lab.folder.join("run/lab/hosts").join(host).join("net")
}

fn when_up(lab: &Lab) {
    until("all interfaces are up", || {
        let hosts = lab.json(&["host", "list"]);
        let hosts = hosts.as_array().unwrap();
        let mut interfaces = hosts.iter().flat_map(|host| host["interfaces"].as_array().unwrap());
        interfaces.all(|interface| interface["state"] == "up")
    });
}

/// Whether a process exists that was not waited for.
fn lives(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn program(lab: &Lab, host: &str, index: usize) -> Value {
    let hosts = lab.json(&["host", "list"]);
    let host = hosts.as_array().unwrap().iter().find(|one| one["name"] == host).unwrap();
    host["programs"][index].clone()
}

#[test]
fn hosts_reach_each_other_over_links_and_switches_and_are_removed() {
    if !can_create_taps() {
        return;
    }
    let lab = Lab::new("hosts", FILE);
    assert!(lab.ok(&["check", "lab.toml"]).contains("4 hosts"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    when_up(&lab);
    // Two links of 30 ms: there and back.
    let times = ping(&lab, "h1", 3, "@h2");
    assert!(times.len() == 3 && times.iter().all(|time| *time >= 60.0), "{times:?}");
    // By the router and over the link between two switches.
    let times = ping(&lab, "h1", 3, "@far");
    assert!(times.len() == 3 && times.iter().all(|time| *time >= 40.0), "{times:?}");
    let table = lab.ok(&["switch", "table", "s1"]);
    assert!(table.contains("h2/h2"), "{table}");
    let links = lab.json(&["link", "show", "trunk"]);
    let ends = |at: usize| [&links[0]["directions"][at]["from"], &links[0]["directions"][at]["to"]];
    assert_eq!([ends(0), ends(1)], [["s2", "s3"], ["s3", "s2"]]);
    assert!(links[0]["directions"][0]["delay_mean"].as_u64().unwrap() >= 20_000_000);
    let shown = lab.ok(&["link", "show", "h2"]);
    assert!(shown.contains("delay=30ms") && shown.contains(" ms (sd "), "{shown}");

    // Losses of a link between a host and its switch.
    lab.ok(&["link", "set", "h2", "delay=", "loss-trace=01"]);
    let answered = ping(&lab, "h1", 8, "@h2").len();
    assert!(answered < 8, "{answered}");
    let lost = lab.json(&["link", "show", "h2"])[0]["directions"][0]["lost"].as_u64().unwrap();
    assert!(lost > 0);

    // Commands, their status, and programs.
    assert_eq!(lab.ok(&["host", "exec", "h2", "ip -o -4 addr show eth0 | wc -l"]).trim(), "2");
    assert_eq!(lab.fails(&["host", "exec", "h2", "exit 7"]).0, 7);
    let (code, words) = lab.fails(&["host", "exec", "h9", "date"]);
    assert!(code == 5 && words.contains("there is no host \"h9\"; there is h1, h2, r or far"), "{words}");
    until("programs have run", || program(&lab, "h1", 1)["state"] == "ended");
    assert_eq!(program(&lab, "h1", 1)["reason"], "exit status: 3");
    let sleeper = program(&lab, "h1", 0);
    assert_eq!(sleeper["state"], "running");
    let output = lab.folder.join("run/lab/hosts/h1/programs.log");
    until("its output is there", || std::fs::read_to_string(&output).unwrap() == "here\n");
    assert_eq!(lab.ok(&["host", "logs", "h1"]), "here\n");
    assert!(lab.fails(&["host", "logs", "h2"]).1.contains("host h2 has not written anything yet"));
    let shown = lab.ok(&["host", "show", "h1"]);
    assert!(shown.contains("addresses=10.0.0.1/24 name=eth0"), "{shown}");
    assert!(shown.contains("command='exit 3'") && shown.contains("reason='exit status: 3'"), "{shown}");
    assert!(lab.ok(&["graph", "--seconds", "0"]).contains(">10.1.0.1/24<"));

    // A host that goes, and one with other programs.
    let first = FILE.replace("sleep 1000", "sleep 1001");
    let (first, _) = first.split_once("[host.far]").unwrap();
    lab.write(first);
    let changes = lab.ok(&["apply", "lab.toml"]);
    let expected = "change port h2/h2\nchange port h2/s1\nremove port far\nremove host far\n\
                    run the programs of host h1\n";
    assert_eq!(changes, expected);
    assert!(!lives(sleeper["pid"].as_u64().unwrap()) && !namespace(&lab, "far").exists());
    let sleeper = program(&lab, "h1", 0);
    lab.ok(&["down"]);
    assert!(!lives(sleeper["pid"].as_u64().unwrap_or(u64::MAX)));
    assert!(!lab.folder.join("run/lab").exists(), "nothing is left");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(lab.folder.to_str().unwrap()), "{mounts}");
}

#[test]
fn what_a_killed_fabric_left_is_removed_when_it_comes_up_again() {
    if !can_create_taps() {
        return;
    }
    let lab = Lab::new("hosts-killed", FILE);
    lab.ok(&["up", "lab.toml", "--detach"]);
    when_up(&lab);
    until("the program runs", || program(&lab, "h1", 0)["state"] == "running");
    let sleeper = program(&lab, "h1", 0)["pid"].as_u64().unwrap();
    let (control, data) = {
        let fabric = crate::lab::api::fabric(&lab);
        (fabric["pid"].as_u64().unwrap(), fabric["data_pid"].as_u64().unwrap())
    };
    // Another one would go on with the fabric.
    crate::lab::api::kill(crate::lab::api::parent(control));
    crate::lab::api::kill(control);
    until("control is gone", || !lives(control) && !lives(data));
    assert!(lives(sleeper) && namespace(&lab, "h1").exists(), "nobody has removed them");
    let before = std::fs::metadata(namespace(&lab, "h1")).unwrap();
    lab.write("[switch.s1]\n[host.h1]\nswitch = \"s1\"\naddress = \"10.0.0.1/24\"\n");
    lab.ok(&["up", "lab.toml", "--detach"]);
    when_up(&lab);
    assert!(!lives(sleeper), "its program has ended");
    let after = std::fs::metadata(namespace(&lab, "h1")).unwrap();
    let inode = |seen: &std::fs::Metadata| std::os::unix::fs::MetadataExt::ino(seen);
    assert!(inode(&before) != inode(&after) || !namespace(&lab, "h2").exists());
    assert!(!namespace(&lab, "h2").exists());
    assert_eq!(lab.ok(&["host", "exec", "h1", "ip -o link show | wc -l"]).trim(), "2", "lo and eth0");
    lab.ok(&["down"]);
    assert!(!lab.folder.join("run/lab/hosts").exists());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(lab.folder.to_str().unwrap()), "{mounts}");
}

/// Attack: a program that writes without an end, and one that writes escape sequences of terminals.
#[test]
fn output_of_a_host_is_bounded_escaped_and_goes_on_with_another_control() {
    if !can_create_taps() {
        return;
    }
    let odd = "printf '\\\\302\\\\2332J\\\\342\\\\200\\\\256\\\\033[m\\\\n'";
    let file = format!("[switch.s]\n[host.h1]\nrun = [\"yes\"]\n[host.h2]\nrun = [\"{odd}\"]\n");
    let lab = Lab::new("hosts-output", &file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let log = lab.folder.join("run/lab/hosts/h1/programs.log");
    let len = |path: &Path| std::fs::metadata(path).map_or(0, |seen| seen.len());
    const MOST: u64 = 4 << 20;
    until("the log began anew", || len(&log.with_extension("log.1")) == MOST);
    until("h2 has written", || !lab.run(&["host", "logs", "h2"]).stdout.is_empty());
    assert_eq!(lab.ok(&["host", "logs", "h2", "--json"]), "\"\\u009b2J\\u202e\\u001b[m\"\n");

    let yes = program(&lab, "h1", 0)["pid"].as_u64().unwrap();
    let control = crate::lab::api::fabric(&lab)["pid"].as_u64().unwrap();
    crate::lab::api::kill(control);
    until("another one goes on", || {
        let output = lab.run(&["host", "list", "--json"]);
        output.status.success() && crate::lab::api::fabric(&lab)["pid"].as_u64() != Some(control)
    });
    assert_eq!(program(&lab, "h1", 0)["pid"], yes);
    let before = (len(&log), std::fs::metadata(&log).unwrap().modified().unwrap());
    until("its output is read on", || {
        let seen = std::fs::metadata(&log).unwrap();
        assert!(seen.len() <= MOST);
        (seen.len(), seen.modified().unwrap()) != before
    });
    lab.ok(&["down"]);
    assert!(!lives(yes) && !lab.folder.join("run/lab").exists());
}

/// What a topology left in the folder of run directories.
fn topo_files(lab: &Lab) -> Vec<String> {
    let all = std::fs::read_dir(lab.folder.join("run")).unwrap();
    let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("topo")).collect()
}

#[test]
fn a_topology_of_one_line_is_tested_and_removed() {
    if !can_create_taps() {
        return;
    }
    let lab = Lab::new("topo", "");
    let words = ["topo", "--hosts", "3", "--rate", "100mbit", "--delay", "5ms", "--ping=2"];
    let output = lab.ok(&[&words[..], &["--exec", "h1 ping -c 1 -n @h3"]].concat());
    assert!(output.contains("12 of 12 pings answered, 0.0% lost"), "{output}");
    assert!(output.contains("1 packets transmitted, 1 received"), "{output}");
    assert_eq!(topo_files(&lab), [""; 0]);
    let linear = lab.ok(&["topo", "--hosts", "3", "--shape", "linear", "--delay", "5ms", "--ping", "--json"]);
    let answers: Value = serde_json::from_str(&linear).unwrap();
    let mean = |from: &str, to: &str| {
        let all = answers.as_array().unwrap();
        let found = all.iter().find(|one| one["from"] == from && one["to"] == to).unwrap();
        found["mean"].as_f64().unwrap()
    };
    // Links on the way: two of the hosts, and one or two between switches.
    assert!(mean("h1", "h2") >= 30.0 && mean("h3", "h1") >= 40.0, "{linear}");
    assert_eq!(lab.fails(&["topo", "--exec", "h1 exit 9"]).0, 9);
    assert!(!lab.folder.join("run/topo").exists());
}

#[test]
fn a_topology_is_removed_by_an_interrupt() {
    if !can_create_taps() {
        return;
    }
    let lab = Lab::new("topo-interrupt", "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["topo", "--hosts", "2", "--loss", "1%"]).env("RINGWAY_RUN", lab.folder.join("run"));
    let mut topo = Running(command.current_dir(&lab.folder).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(topo.0.stdout.take().unwrap()));
    let first = lines.next().unwrap().unwrap();
    assert_eq!(first, "up: fabric topo: 2 hosts on switch s1; each link has loss 1%");
    assert!(lines.by_ref().map(Result::unwrap).any(|line| line == "Ctrl-C removes it."));
    assert_eq!(lab.json(&["--fabric", "topo", "host", "list"]).as_array().unwrap().len(), 2);
    let pid = rustix::process::Pid::from_child(&topo.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(topo.0.wait().unwrap().success());
    assert_eq!(topo_files(&lab), [""; 0]);
}

#[test]
fn a_topology_s_file_is_printed_and_wrong_values_are_refused() {
    let lab = Lab::new("topo-print", "");
    let printed = lab.ok(&["topo", "--hosts", "2", "--delay", "20ms", "--loss", "1%", "--print"]);
    let second = "[host.h2]\nswitch = \"s1\"\naddress = \"10.0.0.2/24\"\n\
                  link = { delay = \"20ms\", loss = \"1%\" }\n";
    assert!(printed.contains(second), "{printed}");
    std::fs::write(lab.folder.join("printed.toml"), &printed).unwrap();
    assert!(lab.ok(&["check", "printed.toml"]).contains("2 hosts"));
    let (code, words) = lab.fails(&["topo", "--rate", "10Mbps"]);
    assert!(
        code == 1 && words.contains("write \"10Mbit\" for bits a second, or \"10MBps\" for bytes"),
        "{words}"
    );
    let (code, words) = lab.fails(&["topo", "--hosts", "2", "--exec", "h3 date"]);
    assert!(code == 5 && words.contains("there are h1 to h2"), "{words}");
    assert_eq!(lab.fails(&["host", "list"]).0, 4);
}
