//! Switches with flow tables: rules of the file and by `ringway flow`, frames and counters, traces, killed processes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::faults::process;
use crate::lab::api::ask;
use crate::lab::frames::{LONG, program};
use crate::lab::{Lab, until};
use ringway_ring_client::{Ring, Wait};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const PORTS: [&str; 4] = ["a", "b", "c", "d"];

fn up(name: &str, keys: &str) -> Lab {
    let port = |name: &&str| format!("[port.{name}]\nkind='ring'\nsocket='{name}.sock'\nswitch='main'\n");
    let ports: String = PORTS.iter().map(port).collect();
    let lab = Lab::new(name, &format!("[switch.main]\nlookup = \"flow\"\n{keys}\n{ports}"));
    std::fs::write(lab.folder.join("main.flows"), "").unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

/// A frame to station `to` with a number.
fn frame(to: u8, number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 0xaa, 0x88, 0xb5, number];
    frame.resize(60, 0);
    frame
}

fn send(ring: &mut Ring, frame: &[u8]) {
    assert!(ring.tx.push(frame).unwrap(), "there is room");
    ring.sync().unwrap();
}

/// The next frame that comes within a while.
fn receive(ring: &mut Ring, most: Duration) -> Option<Vec<u8>> {
    let (mut out, end) = (vec![0; 2048], Instant::now() + most);
    loop {
        let received = ring.rx.pop(&mut out).unwrap();
        ring.rx.sync().unwrap();
        if let Some(received) = received {
            out.truncate(received.len);
            return Some(out);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        ring.wait(Wait::RX, Some(left)).unwrap();
    }
}

fn drops(lab: &Lab, port: &str) -> Value {
    let stats = lab.json(&["stats"]);
    let ports = stats["ports"].as_array().unwrap();
    ports.iter().find(|found| found["name"] == port).unwrap()["total"]["tx_drops"].clone()
}

/// The frames of the flows that a match contains.
fn packets(lab: &Lab, of: &str) -> u64 {
    let view = lab.json(&["flow", "dump", "main", of]);
    view["flows"].as_array().unwrap().iter().map(|flow| flow["packets"].as_u64().unwrap()).sum()
}

/// Writes the whole file.
fn rewrite(lab: &Lab, text: &str) {
    std::fs::write(lab.folder.join("lab.toml"), text).unwrap();
}

fn programs(lab: &Lab) -> [Ring; 4] {
    PORTS.map(|name| program(lab, name))
}

#[test]
fn flows_groups_and_meters_decide_and_count() {
    let lab = up("flows", "flows = \"main.flows\"");
    let mut rings = programs(&lab);
    send(&mut rings[0], &frame(1, 1));
    until("it is dropped", || drops(&lab, "a") == json!({ "flow": 1 }));
    let group = "group_id=1,type=all,bucket=output:b,bucket=mod_vlan_vid:7,output:c,\
        bucket=mod_dl_src:02:00:00:00:00:dd,output:d";
    lab.ok(&["flow", "group", "add", "main", group]);
    lab.ok(&["flow", "add", "main", "dl_dst=02:00:00:00:00:01,actions=group:1"]);
    send(&mut rings[0], &frame(1, 2));
    assert_eq!(receive(&mut rings[1], LONG), Some(frame(1, 2)));
    let tagged = receive(&mut rings[2], LONG).unwrap();
    assert_eq!((&tagged[12..18], tagged.len()), (&[0x81, 0, 0, 7, 0x88, 0xb5][..], 64));
    assert_eq!(receive(&mut rings[3], LONG).unwrap()[11], 0xdd);
    // A meter lets two frames pass in the first moment.
    lab.ok(&["flow", "meter", "add", "main", "meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=2"]);
    lab.ok(&["flow", "add", "main", "dl_dst=02:00:00:00:00:02,actions=meter:1,output:b"]);
    (0..6).for_each(|number| send(&mut rings[0], &frame(2, number)));
    until("some are dropped", || drops(&lab, "a")["meter"].as_u64().is_some_and(|count| count >= 3));
    until("all are counted", || packets(&lab, "dl_dst=02:00:00:00:00:02") == 6);
    let meters = lab.json(&["flow", "meter", "dump", "main"]);
    assert_eq!((&meters[0]["packets"], &meters[0]["dropped"]), (&json!(6), &drops(&lab, "a")["meter"]));
    assert_eq!(packets(&lab, ""), 7);
    let dump = lab.ok(&["flow", "dump", "main", "dl_dst=02:00:00:00:00:01"]);
    assert!(dump.contains(" n_packets=1, n_bytes=60, dl_dst=02:00:00:00:00:01 actions=group:1"), "{dump}");
    // A trace says what happens.
    let said = lab.ok(&["trace", "a", "dl_src=02:00:00:00:00:aa,dl_dst=02:00:00:00:00:01,dl_type=0x88b5"]);
    for line in [
        "flow         table 0: priority=32768 dl_dst=02:00:00:00:00:01 actions=group:1\n",
        "flow         group 1: bucket 1\n",
        "b (ring), queue 0: delivered",
        "d (ring), queue 0: delivered",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(packets(&lab, ""), 7, "it counts nothing");
    assert_eq!(lab.json(&["switch", "show", "main"])["flows"], 2);
    lab.ok(&["down"]);
}

#[test]
fn a_replacement_loses_no_frame_of_flows_that_stay() {
    let lab = up("flows-replace", "rules = 'dl_dst=02:00:00:00:00:01,actions=output:b'");
    let mut rings = programs(&lab);
    let file = |text: &str| std::fs::write(lab.folder.join("new.flows"), text).unwrap();
    let mut got = 0;
    for round in 0..20u8 {
        let other = format!("priority={},dl_dst=02:00:00:00:00:03,actions=output:c", 1 + round);
        file(&format!("dl_dst=02:00:00:00:00:01,actions=output:b\n{other}\n"));
        (0..10).for_each(|number| send(&mut rings[0], &frame(1, number)));
        lab.ok(&["flow", "replace", "main", "new.flows"]);
        (0..10).for_each(|number| send(&mut rings[0], &frame(1, number)));
        while got < 20 * (u64::from(round) + 1) {
            assert!(receive(&mut rings[1], LONG).is_some(), "round {round}, {got}: {}", drops(&lab, "a"));
            got += 1;
        }
    }
    until("all are counted", || packets(&lab, "dl_dst=02:00:00:00:00:01") == 400);
    assert_eq!(drops(&lab, "a"), json!({}));
    let diff = lab.ok(&["flow", "diff", "main", "new.flows"]);
    assert_eq!(diff, "");
    file("dl_dst=02:00:00:00:00:01,actions=drop\n");
    let diff = lab.ok(&["flow", "diff", "main", "new.flows"]);
    assert_eq!(diff.lines().map(|line| &line[..1]).collect::<Vec<_>>(), ["-", "-", "+"], "{diff}");
    // Of another revision, nothing is changed.
    let (code, view) = ask(&lab, "GET", "switches/main/flows", &json!({}));
    let revision = view["revision"].as_u64().unwrap();
    assert_eq!(code, 200);
    let change = |revision: u64| json!({ "changes": "flow delete", "revision": revision });
    assert_eq!(ask(&lab, "POST", "switches/main/flows", &change(revision + 1)).0, 409);
    let (code, changed) = ask(&lab, "POST", "switches/main/flows", &change(revision));
    assert_eq!((code, &changed["count"]), (200, &json!(2)), "{changed}");
    lab.ok(&["down"]);
}

#[test]
fn a_wrong_text_names_its_column_and_changes_nothing() {
    let lab = up("flows-wrong", "rules = 'actions=output:b'");
    let before = lab.ok(&["flow", "dump", "main", "--rules"]);
    for (words, said) in [
        (&["add", "main", "ip,foo=1,actions=drop"][..], "column 4: unknown word `foo`"),
        (&["add", "main", "actions=drop", "in_port=nobody,actions=drop"], "line 2, column 9: "),
        (&["mod", "main", "ip"], "a flow needs actions"),
        (&["del", "main", "priority=5"], "--strict"),
        (&["add", "main", "actions=group:9"], "there is no group 9"),
        (&["add", "main"], "nothing is named"),
        (&["group", "add", "main", "group_id=1"], "type="),
        (&["dump", "main", "bar"], "column 1: unknown word `bar`"),
        (&["dump", "nobody"], "there is no switch \"nobody\""),
    ] {
        let (code, text) = lab.fails(&[&["flow"][..], words].concat());
        assert!(code != 0 && text.contains(said), "{words:?}: {text}");
    }
    let (_, text) = lab.fails(&["port", "set", "a", "tag=5"]);
    assert!(text.contains("flow tables of switch main decide"), "{text}");
    assert_eq!(lab.ok(&["flow", "dump", "main", "--rules"]), before);
    // In a file, the error has the line and the column of that file, and nothing changes.
    std::fs::write(lab.folder.join("bad.flows"), "# rules\nip,actions=drop\ntcp,tp_dst=x,actions=drop\n")
        .unwrap();
    let good = std::fs::read_to_string(lab.folder.join("lab.toml")).unwrap();
    rewrite(&lab, &good.replace("rules = 'actions=output:b'", "flows = 'bad.flows'"));
    let (_, text) = lab.fails(&["apply", "lab.toml"]);
    assert!(text.contains("bad.flows:3:12: "), "{text}");
    assert_eq!(lab.ok(&["flow", "dump", "main", "--rules"]), before);
    lab.ok(&["down"]);
}

#[test]
fn an_unchanged_file_is_no_change_and_stays() {
    let lab = up("flows-same", "flows = \"main.flows\"");
    let write = |text: &str| std::fs::write(lab.folder.join("main.flows"), text).unwrap();
    // Names and numbers, in an order that is not that of the ports.
    write("in_port=d,actions=drop\nin_port=b,actions=output:1\nin_port=1,actions=output:b,output:4\n");
    assert_eq!(lab.ok(&["apply", "lab.toml"]).trim(), "change flows of switch main");
    let nothing = lab.ok(&["apply", "lab.toml"]);
    assert!(!nothing.contains("change flows"), "{nothing}");
    assert!(!lab.ok(&["apply", "lab.toml", "--dry-run"]).contains("change flows"));
    let saved = lab.ok(&["save"]);
    assert!(saved.contains("flows = \"main.flows\"") && !saved.contains("rules"), "{saved}");
    // A flow by name and by number is refused before anything changes.
    write("in_port=a,actions=drop\nin_port=1,actions=output:b\n");
    let good = std::fs::read_to_string(lab.folder.join("lab.toml")).unwrap();
    rewrite(&lab, &(good.clone() + "[port.e]\nkind='null'\nswitch='main'\n"));
    let (_, text) = lab.fails(&["apply", "lab.toml"]);
    assert!(text.contains("line 2, column 1: a line above is the same flow"), "{text}");
    let stats = lab.json(&["stats"]);
    assert!(stats["ports"].as_array().unwrap().iter().all(|port| port["name"] != "e"), "{stats}");
    assert_eq!(lab.ok(&["flow", "dump", "main", "--rules"]).lines().count(), 3);
    // What a request changes is written to the saved file.
    rewrite(&lab, &good);
    write("in_port=d,actions=drop\nin_port=b,actions=output:1\nin_port=1,actions=output:b,output:4\n");
    lab.ok(&["flow", "add", "main", "arp,actions=flood"]);
    let saved = lab.ok(&["save"]);
    assert!(saved.contains("rules = ") && !saved.contains("main.flows"), "{saved}");
    lab.ok(&["down"]);
}

/// Kills a process, and waits until another one serves the ports.
fn kill(lab: &Lab, name: &str) {
    let before = process(lab, name);
    kill_process(before, Signal::KILL).unwrap();
    until("another one is there", || {
        let fabric = lab.json(&["ps"])["fabric"].clone();
        let now = fabric[name].as_i64().unwrap_or(0);
        now != 0
            && now != i64::from(before.as_raw_nonzero().get())
            && PORTS.iter().all(|port| lab.state(port) == "up")
    });
}

#[test]
fn flows_outlive_killed_processes_an_upgrade_and_a_saved_file() {
    let lab = up("flows-kept", "rules = 'dl_dst=02:00:00:00:00:01,actions=output:b'");
    let mut rings = programs(&lab);
    lab.ok(&[
        "flow",
        "add",
        "main",
        "priority=7,cookie=0x9,dl_dst=02:00:00:00:00:02,actions=mod_vlan_vid:5,output:c",
    ]);
    lab.ok(&["flow", "group", "add", "main", "group_id=3,type=select,bucket=output:b,bucket=output:d"]);
    lab.ok(&["flow", "add", "main", "priority=1,hard_timeout=1,actions=flood"]);
    until("its time has ended", || lab.ok(&["events"]).contains("flows-expired"));
    let rules = lab.ok(&["flow", "dump", "main", "--rules"]);
    assert_eq!(rules.lines().count(), 3, "{rules}");
    let numbers = lab.ok(&["flow", "ports", "main"]);
    let passes = |rings: &mut [Ring; 4], number: u8| {
        send(&mut rings[0], &frame(1, number));
        assert_eq!(receive(&mut rings[1], LONG), Some(frame(1, number)));
        send(&mut rings[0], &frame(2, number));
        assert_eq!(receive(&mut rings[2], LONG).unwrap().len(), 64);
    };
    let same = |when: &str| {
        assert_eq!(lab.ok(&["flow", "dump", "main", "--rules"]), rules, "{when}");
        assert_eq!(lab.ok(&["flow", "ports", "main"]), numbers, "{when}");
    };
    passes(&mut rings, 1);
    kill(&lab, "pid");
    same("after a killed control process");
    passes(&mut rings, 2);
    until("counters go on", || packets(&lab, "") == 4);
    lab.ok(&["upgrade"]);
    same("after an upgrade");
    passes(&mut rings, 3);
    until("counters go on", || packets(&lab, "") == 6);
    kill(&lab, "data_pid");
    same("after a killed data process");
    passes(&mut rings, 4);
    until("counters began again", || packets(&lab, "") == 2);
    // A port that comes again has its number.
    lab.ok(&["port", "add", "e", "--kind", "null", "--switch", "main"]);
    lab.ok(&["flow", "add", "main", "priority=9,dl_dst=02:00:00:00:00:05,actions=output:e"]);
    assert!(lab.ok(&["flow", "ports", "main"]).lines().any(|line| line.split_whitespace().eq(["5", "e"])));
    let (_, why) = lab.fails(&["port", "remove", "e"]);
    assert!(why.contains("flows of switch main name port e; change them first: `ringway flow`"), "{why}");
    lab.ok(&["flow", "del", "main", "out_port=e"]);
    lab.ok(&["port", "remove", "e"]);
    let saved = lab.ok(&["save"]);
    assert!(saved.contains("cookie=0x9,table=0,priority=7,dl_dst=02:00:00:00:00:02 actions="), "{saved}");
    drop(rings);
    lab.ok(&["down"]);
    rewrite(&lab, &saved);
    lab.ok(&["up", "lab.toml", "--detach"]);
    same("of the saved file");
    let mut rings = programs(&lab);
    passes(&mut rings, 5);
    // A changed text changes the rules, and no port.
    rewrite(&lab, &saved.replace("output:b", "output:d"));
    assert_eq!(lab.ok(&["apply", "lab.toml"]).trim(), "change flows of switch main");
    send(&mut rings[0], &frame(1, 6));
    assert_eq!(receive(&mut rings[3], LONG), Some(frame(1, 6)));
    lab.ok(&["down"]);
}

/// The lines of the page's blocks in `language`.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/flows.md");
    let text = std::fs::read_to_string(page).unwrap();
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_string()).collect()
}

#[test]
fn every_example_of_the_page_works() {
    let lab = Lab::new("flows-page", &blocks("toml").concat());
    lab.ok(&["up", "lab.toml", "--detach"]);
    std::fs::write(lab.folder.join("changes.txt"), "flow delete tcp\ngroup add group_id=5,type=all\n")
        .unwrap();
    let mut count = 0;
    for line in blocks("sh").concat().lines() {
        let binary = env!("CARGO_BIN_EXE_ringway");
        let line = line.replacen("ringway ", &format!("{binary} "), 1);
        let path = lab.command(&["ps"]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-ec", &line]).current_dir(&lab.folder);
        shell.envs(path.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        count += 1;
    }
    assert!(count >= 20, "{count} examples");
    assert!(std::fs::read_to_string(lab.folder.join("main.flows")).unwrap().contains("group_id=1,type=all"));
    let groups = lab.ok(&["flow", "group", "dump", "main"]);
    assert!(groups.contains("group_id=5") && !groups.contains("group_id=2"), "{groups}");
    lab.ok(&["down"]);
}
