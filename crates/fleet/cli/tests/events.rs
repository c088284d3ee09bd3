//! Events of a running fabric: what happens is told, in order, to all who follow and to no more than there is room for.

use crate::lab::frames::{program, switched};
use crate::lab::{Lab, Running, api, http, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

fn up(name: &str, file: &str) -> Lab {
    let lab = Lab::new(name, file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

/// The events of a kind and an object.
fn seen(lab: &Lab, kind: &str, name: &str) -> Vec<Value> {
    let all = lab.json(&["events", "--count", "2000"]);
    let all = all.as_array().unwrap().iter().filter(|event| event["kind"] == kind && event["name"] == name);
    all.cloned().collect()
}

#[test]
fn whatever_happens_is_an_event() {
    let ring = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let file = switched(&["left", "own"])
        + &ring("near")
        + &ring("far")
        + "[link.wan]\nports = [\"near\", \"far\"]\n"
        + "[program.web]\ncommand = [\"false\"]\nswitch = \"main\"\naddress = \"10.0.0.2/24\"\n\
           start = false\n";
    let lab = up("events", &file);
    let came =
        |kind: &str, name: &str| until(&format!("{kind} {name}"), || !seen(&lab, kind, name).is_empty());
    let ring = program(&lab, "left");
    came("peer-attached", "left");
    drop(ring);
    came("peer-detached", "left");
    lab.ok(&["port", "add", "new", "--kind", "null", "--switch", "main"]);
    lab.ok(&["port", "remove", "new"]);
    let words: Vec<Value> = seen(&lab, "change", "new").iter().map(|event| event["text"].clone()).collect();
    assert_eq!(words, ["add port new (null)", "remove port new"]);
    lab.ok(&["link", "set", "wan", "delay=5ms"]);
    assert_eq!(seen(&lab, "link-set", "wan")[0]["text"], "delay = 5ms");
    std::fs::write(lab.folder.join("echo.click"), "FromPort(own) -> EtherMirror -> ToPort(own);").unwrap();
    lab.ok(&["function", "create", "echo", "--config", "echo.click", "--port", "own"]);
    came("function-up", "echo");
    api::kill(api::pid(&lab, "echo"));
    came("function-ended", "echo");
    until("it runs again", || seen(&lab, "function-up", "echo").len() == 2);
    lab.ok(&["program", "start", "web"]);
    came("program-started", "web");
    came("program-ended", "web");
    api::kill(api::fabric(&lab)["data_pid"].as_u64().unwrap());
    came("data-ended", "");
    came("data-resumed", "");
    lab.ok(&["apply", "lab.toml"]);
    until("the file was applied", || {
        let all = lab.json(&["events", "--count", "2000"]);
        all.as_array().unwrap().iter().any(|event| event["kind"] == "apply")
    });
    let ids: Vec<u64> =
        lab.json(&["events"]).as_array().unwrap().iter().map(|event| event["id"].as_u64().unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    let [.., before, first, _] = *ids else { unreachable!() };
    assert_eq!(lab.json(&["events", "--after", &before.to_string()])[0]["id"], first);
    assert_eq!(lab.json(&["events", "--count", "1"]).as_array().unwrap().len(), 1);
    assert!(lab.ok(&["events"]).contains("data-resumed"));
    lab.ok(&["down"]);
}

/// `ringway events --follow --json`, and its lines.
fn follow(lab: &Lab) -> (Running, impl FnMut() -> Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["events", "--follow", "--json"]).current_dir(&lab.folder).stdout(Stdio::piped());
    let mut child = command.env("RINGWAY_RUN", lab.folder.join("run")).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (Running(child), move || serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap())
}

#[test]
fn a_follower_sees_the_death_of_control_and_the_end() {
    let lab = up("events-follow", &switched(&["left"]));
    let (mut running, mut next) = follow(&lab);
    while next()["text"] != "add port left (ring)" {}
    let pid = || lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
    let before = pid();
    api::kill(before);
    while next()["kind"] != "control-resumed" {}
    lab.ok(&["port", "add", "new", "--kind", "null", "--switch", "main"]);
    while next()["name"] != "new" {}
    lab.ok(&["down"]);
    while next()["kind"] != "down" {}
    assert!(running.0.wait().unwrap().success());
}

/// Follows events, and reads the head of the answer.
fn watch(lab: &Lab) -> (u16, UnixStream) {
    let mut stream = http::ask(lab, "GET", "/v1/events?follow=true&after=1", &Value::Null);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), stream)
}

#[test]
fn many_watchers_are_refused_and_slow_ones_disconnected_with_a_word() {
    let lab = up("events-many", &switched(&["left"]));
    let watchers: Vec<(u16, UnixStream)> = (0..200).map(|_| watch(&lab)).collect();
    let watched = watchers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!((watched, watchers.iter().filter(|(status, _)| *status == 503).count()), (64, 136));
    let (code, why) = lab.fails(&["events", "--follow"]);
    assert!(code == 1 && why.contains("64 clients follow events already"), "{why}");
    assert!(lab.json(&["events"]).as_array().is_some(), "others are answered");
    drop(watchers);
    until("there is room again", || watch(&lab).0 == 200);

    // Small buffers, so that the server notices soon that nothing is read.
    let mut slow = UnixStream::connect(lab.socket("api.sock")).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&slow, 4096).unwrap();
    let request = "GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n";
    slow.write_all(request.as_bytes()).unwrap();
    let add = json!({ "name": "x", "kind": "null", "switch": "main" });
    for _ in 0..2000 {
        api::order(&lab, "POST", "ports", &add);
        api::order(&lab, "DELETE", "ports/x", &Value::Null);
    }
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut text = Vec::new();
    let _ = slow.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("text/event-stream"), "{}", &text[..200]);
    let count = text.matches("\nevent: change\n").count();
    assert!(count > 0 && count < 4000, "{count}");
    assert!(lab.log().contains("a client that follows events is too slow"), "{}", lab.log());
    lab.ok(&["down"]);
}

#[test]
fn who_asked_for_changes_and_what_came_of_it_is_logged_for_good() {
    let file = "audit = \"lab.audit\"\n".to_owned() + &switched(&["left"]);
    let lab = up("audit", &file);
    lab.ok(&["port", "set", "left", "tag=7"]);
    lab.fails(&["port", "remove", "right"]);
    lab.ok(&["ps"]);
    let before = lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
    api::kill(before);
    until("another control process goes on", || {
        let now = serde_json::from_slice::<Value>(&lab.run(&["ps", "--json"]).stdout);
        now.is_ok_and(|now| now["fabric"]["pid"] != before)
    });
    lab.ok(&["port", "set", "left", "tag="]);
    let entries = lab.json(&["audit"]);
    let entries = entries.as_array().unwrap();
    let told: Vec<_> = entries.iter().map(|entry| (&entry["request"], &entry["status"])).collect();
    let expected = [
        (&json!("PATCH /v1/ports/left"), &json!(200)),
        (&json!("DELETE /v1/ports/right"), &json!(404)),
        (&json!("PATCH /v1/ports/left"), &json!(200)),
    ];
    assert_eq!(told, expected, "{entries:?}");
    assert!(entries[0]["body"].as_str().unwrap().contains("\"tag\":7"), "{}", entries[0]);
    assert!(entries[1]["error"].as_str().unwrap().contains("right"), "{}", entries[1]);
    let user = rustix::process::geteuid().as_raw();
    assert!(entries.iter().all(|entry| entry["user"] == user && entry["program"] == "ringway"));
    let shown = lab.ok(&["audit", "--count", "1"]);
    assert!(shown.contains("PATCH /v1/ports/left") && shown.contains("ringway["), "{shown}");
    lab.ok(&["down"]);
    let log = std::fs::read_to_string(lab.folder.join("lab.audit")).unwrap();
    assert_eq!(log.lines().count(), 4, "the end of the fabric is the last one: {log}");
}
