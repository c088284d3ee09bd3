//! Functions that start with the first frame for them, which is delivered.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::lab::frames::program;
use crate::lab::net::{address, namespace, shell, within};
use crate::lab::{Lab, Running, every_isolation, until};
use ringway_ring_client::{Ring, Wait};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

/// A chain of two functions between two programs.
fn file(isolation: &str) -> String {
    idle_file(isolation, "")
}

/// A chain of two functions between two programs; `more` is added to both functions.
fn idle_file(isolation: &str, more: &str) -> String {
    let function = |name: &str, start: &str| {
        format!(
            "[function.{name}]\nports = [\"l\", \"r\"]\nisolation = \"{isolation}\"\nstart = {start}\n{more}\
             click = \"FromPort(l) -> c :: Counter -> ToPort(r); FromPort(r) -> ToPort(l);\"\n"
        )
    };
    format!(
        "[port.one]\nkind = \"ring\"\nsocket = \"one.sock\"\n\
         [port.two]\nkind = \"ring\"\nsocket = \"two.sock\"\n\
         [chain.c]\nports = [\"one\", \"two\"]\nfunctions = [\"f\", \"g\"]\n{}{}",
        function("f", "\"first-frame\""),
        function("g", "\"first-frame\""),
    )
}

fn send(ring: &mut Ring, number: u8) {
    assert!(ring.tx.push(&[number; 60]).unwrap());
    ring.sync().unwrap();
}

fn next(ring: &mut Ring, most: Duration) -> Option<u8> {
    let end = Instant::now() + most;
    let mut out = [0; 60];
    while Instant::now() < end {
        ring.wait(Wait::RX, Some(end.saturating_duration_since(Instant::now()))).unwrap();
        let received = ring.rx.pop(&mut out).unwrap();
        ring.rx.sync().unwrap();
        if received.is_some() {
            return Some(out[20]);
        }
    }
    None
}

fn states(lab: &Lab) -> Vec<String> {
    let list = lab.json(&["function", "list"]);
    list.as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap().to_string()).collect()
}

#[test]
fn the_first_frame_starts_each_function_and_passes_it() {
    for isolation in every_isolation() {
        let lab = Lab::new(&format!("first-{isolation}"), &file(isolation));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
        assert_eq!(states(&lab), ["dormant", "dormant"], "{isolation}");
        assert_eq!(lab.json(&["ps"])["chains"][0]["state"], "up");
        for number in 0..50 {
            send(&mut one, number);
        }
        for number in 0..50 {
            assert_eq!(next(&mut two, LONG), Some(number), "{isolation}");
        }
        assert_eq!(states(&lab), ["running", "running"], "{isolation}");
        let drops = lab.json(&["stats"])["ports"].to_string();
        assert!(!drops.contains("\"down\"") && !drops.contains("\"full\""), "{isolation}: {drops}");
        send(&mut two, 7);
        assert_eq!(next(&mut one, LONG), Some(7), "{isolation}");
    }
}

#[test]
fn idle_functions_go_away_and_no_frame_is_lost() {
    for isolation in every_isolation() {
        let lab = Lab::new(&format!("idle-{isolation}"), &idle_file(isolation, "idle = \"100ms\"\n"));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
        // Pauses around the time after which they go: each frame passes, at whatever point it comes.
        for number in 0..20 {
            let begun = Instant::now();
            send(&mut one, number);
            assert_eq!(next(&mut two, LONG), Some(number), "{isolation}");
            if number == 10 {
                until("both are gone", || states(&lab) == ["dormant", "dormant"]);
                assert_eq!(lab.json(&["ps"])["chains"][0]["state"], "up");
            }
            let pause = Duration::from_millis(90 + 4 * u64::from(number));
            let _ = next(&mut two, pause.saturating_sub(begun.elapsed()));
        }
        send(&mut two, 77);
        assert_eq!(next(&mut one, LONG), Some(77), "{isolation}: back, too");
        until("both are gone", || states(&lab) == ["dormant", "dormant"]);
        let drops = lab.json(&["stats"])["ports"].to_string();
        assert!(!drops.contains("\"down\"") && !drops.contains("\"full\""), "{isolation}: {drops}");
        let restarts = lab.json(&["function", "list"]);
        assert!(restarts.as_array().unwrap().iter().all(|one| one["restarts"] == 0), "{restarts}");
    }
}

/// Applies files one after the other while frames pass from one program to the other, which gets all of them in order.
fn applied(name: &str, files: &[&str]) {
    let lab = Lab::new(name, files[0]);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    let (mut sent, mut came) = (0u8, 0u8);
    for text in &files[1..] {
        lab.write(text);
        std::thread::scope(|scope| {
            let apply = scope.spawn(|| lab.ok(&["apply", "lab.toml"]));
            loop {
                let is_over = apply.is_finished();
                if is_over && came == sent {
                    break;
                } else if !is_over {
                    send(&mut one, sent);
                    sent = sent.wrapping_add(1);
                }
                match next(&mut two, if is_over { LONG } else { Duration::from_micros(300) }) {
                    Some(number) => {
                        assert_eq!(number, came, "{}\n{}", lab.json(&["stats"])["ports"], lab.log())
                    }
                    None if is_over => panic!("{came} of {sent}: {}\n{}", lab.json(&["stats"]), lab.log()),
                    None => continue,
                }
                came = came.wrapping_add(1);
            }
        });
    }
    let drops = lab.json(&["stats"])["ports"].to_string();
    assert!(!drops.contains("\"down\"") && !drops.contains("\"full\""), "{drops}");
}

/// Frames that come at every point of a change which puts functions between two ports.
#[test]
fn functions_that_are_added_while_frames_pass_start_without_loss() {
    // What a process has in hand when it is removed may be lost.
    let chained = file("worker");
    let at = chained.find("[chain.c]").unwrap();
    let patched = format!("{}[patch.p]\nports = [\"one\", \"two\"]\n", &chained[..at]);
    let other = chained.replacen("start =", "memory = \"64MB\"\nstart =", 1);
    applied("first-added", &[&patched, &chained, &patched, &chained, &other, &chained, &patched]);
}

/// The function behind the one that a change removes, or adds, may not have started yet.
#[test]
fn a_chain_changes_in_front_of_a_function_that_waits_for_its_first_frame() {
    let three = file("worker").replace("[\"f\", \"g\"]", "[\"f\", \"g\", \"h\"]")
        + "[function.h]\nports = [\"l\", \"r\"]\nisolation = \"worker\"\nstart = \"first-frame\"\n\
           click = \"FromPort(l) -> ToPort(r); FromPort(r) -> ToPort(l);\"\n";
    let two = three.replace("[\"f\", \"g\", \"h\"]", "[\"f\", \"h\"]");
    let at = two.find("[function.g]").unwrap();
    let two = format!("{}{}", &two[..at], &two[two.find("[function.h]").unwrap()..]);
    applied("first-removed", &[&three, &two, &three, &two]);
    applied("first-inserted", &[&two, &three, &two]);
}

#[test]
fn a_function_that_is_stopped_does_not_start_by_a_frame() {
    let lab = Lab::new("first-stopped", &file("worker"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    lab.ok(&["function", "stop", "f"]);
    send(&mut one, 1);
    until("frames for it are dropped", || lab.json(&["stats"])["ports"].to_string().contains("\"down\":1"));
    assert_eq!(states(&lab), ["stopped", "dormant"]);
    lab.ok(&["function", "start", "f"]);
    until("frames pass", || {
        send(&mut one, 2);
        next(&mut two, Duration::from_millis(100)) == Some(2)
    });
}

#[test]
fn the_first_segment_of_an_http_transfer_starts_its_firewall() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: creating a TAP needs root");
        return;
    }
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/functions/firewall.click");
    for isolation in every_isolation() {
        let ((_inside, client), (_outside, server)) = (namespace(), namespace());
        let port = |name: &str, namespace: &str, address: &str| {
            format!(
                "[port.{name}]\nkind = \"tap\"\nnamespace = \"{namespace}\"\ninterface = \"{name}0\"\n\
                 address = \"{address}/24\"\n"
            )
        };
        let file = format!(
            "{}{}[chain.web]\nports = [\"client\", \"server\"]\nfunctions = [\"wall\"]\n[function.wall]\n\
             config = \"{}\"\nports = [\"inside\", \"outside\"]\nisolation = \"{isolation}\"\n\
             start = \"first-frame\"\n",
            port("client", &client, "10.0.0.1"),
            port("server", &server, "10.0.0.2"),
            config.display()
        );
        let lab = Lab::new(&format!("first-http-{isolation}"), &file);
        lab.ok(&["up", "lab.toml", "--detach"]);
        until("the TAPs are there", || ["client", "server"].iter().all(|port| lab.state(port) == "up"));
        let page: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(lab.folder.join("page"), &page).unwrap();
        // Otherwise an ARP request would be the first frame.
        let neighbour = |own: &str, interface: &str, host: &str, its: String| {
            within(own, &format!("ip neigh replace {host} lladdr {its} dev {interface} nud permanent"));
        };
        neighbour(&client, "client0", "10.0.0.2", address(&server, "server0"));
        neighbour(&server, "server0", "10.0.0.1", address(&client, "client0"));
        let script = "exec python3 -m http.server 80 --bind 10.0.0.2";
        let mut python = shell(&server, script);
        python.current_dir(&lab.folder).stdout(Stdio::null()).stderr(Stdio::null());
        let _python = Running(python.spawn().unwrap());
        let is_listening = "grep -q ':0050 00000000:0000 0A' /proc/net/tcp";
        until("the server listens", || shell(&server, is_listening).status().unwrap().success());
        assert_eq!(states(&lab), ["dormant"], "{isolation}");
        let fetched = within(&client, "curl --silent --noproxy '*' --max-time 60 http://10.0.0.2/page");
        assert!(fetched == page, "{isolation}: {} bytes", fetched.len());
        assert_eq!(states(&lab), ["running"], "{isolation}");
        assert_eq!(lab.ok(&["function", "read", "wall", "denied.count"]).trim(), "0");
        let stats = lab.json(&["stats"])["ports"].to_string();
        assert!(!stats.contains("\"down\""), "{isolation}: no segment is lost: {stats}");
    }
}

#[test]
fn a_function_created_at_run_time_starts_with_its_first_frame() {
    let port = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let patch = "[patch.p]\nports = [\"one\", \"two\"]\n";
    for isolation in every_isolation() {
        let lab = Lab::new("first-created", &format!("{}{}{patch}", port("one"), port("two")));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let click = "FromPort(two) -> c :: Counter -> ToPort(two);";
        let create = ["function", "create", "late", "--click", click, "--port", "two"];
        let (code, why) = lab.fails(&[&create[..], &["--idle", "30s"]].concat());
        assert!(code == 1 && why.contains("/idle: a function that ends when it is idle"), "{why}");
        assert_eq!(states(&lab), [""; 0], "a wrong request changes nothing");
        let more = ["--start", "first-frame", "--idle", "300s", "--isolation", isolation];
        lab.ok(&[&create[..], &more].concat());
        assert_eq!(states(&lab), ["dormant"], "{isolation}");
        let mut one = program(&lab, "one");
        send(&mut one, 7);
        assert_eq!(next(&mut one, LONG), Some(7), "{isolation}: the first frame is delivered");
        assert_eq!(states(&lab), ["running"], "{isolation}");
    }
}

#[test]
fn frames_cannot_wait_on_a_switch() {
    let text = "[switch.s]\n[port.a]\nkind = \"ring\"\nsocket = \"a.sock\"\nswitch = \"s\"\n[function.f]\n\
                port = \"a\"\nclick = \"FromPort(a) -> ToPort(a);\"\nstart = \"first-frame\"\n";
    let lab = Lab::new("first-switch", text);
    let (_, why) = lab.fails(&["check", "lab.toml"]);
    assert!(why.contains("the first frame can't start it: its port a is on switch s"), "{why}");
    lab.write(&text.replace("first-frame", "later"));
    let (_, why) = lab.fails(&["check", "lab.toml"]);
    assert!(why.contains("`start` is \"later\"; use true, false or \"first-frame\""), "{why}");
}
