//! What every noun of the command line has: `list`, `show`, and the logs of what writes some.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::{Lab, until};
use serde_json::Value;
use std::process::{Command, Stdio};

const FILE: &str = "
[switch.main]
[port.a]
kind = \"ring\"
socket = \"a.sock\"
switch = \"main\"
[port.b]
kind = \"ring\"
socket = \"b.sock\"
[port.c]
kind = \"ring\"
socket = \"c.sock\"
[link.wan]
ports = [\"b\", \"c\"]
delay = \"1ms\"
[port.in]
kind = \"ring\"
socket = \"in.sock\"
switch = \"main\"
[function.wall]
click = \"FromPort(in) -> Discard;\"
port = \"in\"
[port.one]
kind = \"ring\"
socket = \"one.sock\"
[port.two]
kind = \"ring\"
socket = \"two.sock\"
[chain.web]
ports = [\"one\", \"two\"]
functions = [\"pass\"]
[function.pass]
ports = [\"outside\", \"inside\"]
isolation = \"worker\"
click = \"FromPort(outside) -> ToPort(inside); FromPort(inside) -> ToPort(outside);\"
";

/// The value of a key in what `show` prints.
fn value(shown: &str, key: &str) -> Option<String> {
    let line = shown.lines().find(|line| line.split_whitespace().next() == Some(key))?;
    Some(line[key.len()..].trim().to_string())
}

fn up(name: &str) -> Lab {
    let lab = Lab::new(name, FILE);
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the functions run", || {
        let all = lab.json(&["function", "list"]);
        all.as_array().unwrap().iter().all(|function| function["state"] == "running")
    });
    lab
}

#[test]
fn every_noun_lists_and_shows_its_objects() {
    let lab = up("nouns");
    for (noun, name) in [("port", "a"), ("function", "wall")] {
        let all = lab.json(&[noun, "list"]);
        let one = all.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
        let shown = lab.json(&[noun, "show", name]);
        assert_eq!((&shown["name"], &shown["ports"]), (&one["name"], &one["ports"]), "{shown}");
        let text = lab.ok(&[noun, "show", name]);
        assert_eq!(value(&text, "name").as_deref(), Some(name), "{text}");
        assert!(lab.ok(&[noun, "list"]).contains(name));
    }
    assert_eq!(value(&lab.ok(&["port", "show", "a"]), "to").as_deref(), Some("switch main"));
    assert_eq!(value(&lab.ok(&["function", "show", "wall"]), "configuration").as_deref(), Some("inline"));
    let switch = serde_json::json!({
        "name": "main", "lookup": "learning", "ports": ["a", "in"], "addresses": 0,
    });
    assert_eq!(lab.json(&["switch", "show", "main"]), switch);
    assert_eq!(lab.json(&["switch", "list"])[0]["ports"], switch["ports"]);
    assert_eq!(lab.ok(&["switch", "list"]), "SWITCH  LOOKUP    PORTS\nmain    learning  a in\n");
    let worker = &lab.json(&["worker", "list"])[0];
    let name = worker["name"].as_str().unwrap();
    assert_eq!(lab.json(&["worker", "show", name])["queues"], worker["queues"]);
    assert_eq!(value(&lab.ok(&["worker", "show", name]), "name").as_deref(), Some(name));
    assert!(lab.ok(&["worker", "list"]).starts_with("WORKER  NODE  QUEUES  ACTIVE"));
    let chain = serde_json::json!({
        "name": "web", "state": "up", "ports": ["one", "two"], "functions": ["pass"], "reason": "",
    });
    until("the chain is up", || lab.json(&["chain", "show", "web"]) == chain);
    assert_eq!(lab.json(&["chain", "list"])[0], chain);
    assert!(lab.ok(&["chain", "list"]).contains("one - pass - two"));
    assert_eq!(lab.ok(&["snapshot", "list"]), "SNAPSHOT  FUNCTION  PORTS  MB\n");
    let links: Value = lab.json(&["link", "list"]);
    assert_eq!(links[0]["name"], "wan");
    assert!(lab.ok(&["link", "list", "wan"]).contains("delay=1ms"));
    for (noun, list) in [
        ("port", "port list"),
        ("switch", "switch list"),
        ("link", "link show"),
        ("host", "host list"),
        ("guest", "guest list"),
        ("function", "function list"),
        ("chain", "chain list"),
        ("worker", "worker list"),
        ("snapshot", "snapshot list"),
    ] {
        let (code, words) = lab.fails(&[noun, "show", "no\u{1b}ne"]);
        let expected =
            format!("there is no {noun} \"no\\u{{1b}}ne\"; `ringway {list}` shows those there are");
        assert!(code == 5 && words.contains(&expected), "{words}");
    }
    assert_eq!(lab.fails(&["switch", "table", "none"]).0, 5);
    lab.ok(&["down"]);
}

#[test]
fn the_origin_of_a_configuration_is_shown_after_an_update() {
    let lab = up("origin");
    let file = lab.folder.join("new.click");
    std::fs::write(&file, "FromPort(in) -> Counter -> Discard;").unwrap();
    lab.ok(&["function", "update", "wall", "new.click"]);
    let shown = || value(&lab.ok(&["function", "show", "wall"]), "configuration").unwrap();
    assert!(shown().ends_with("/new.click"), "{}", shown());
    lab.ok(&["function", "destroy", "wall"]);
    lab.ok(&["function", "create", "wall", "--config", "new.click", "--port", "in"]);
    assert!(shown().ends_with("/new.click"), "{}", shown());
    lab.ok(&["apply", "lab.toml"]);
    assert_eq!(shown(), "inline", "the file has the text");
    lab.ok(&["down"]);
}

#[test]
fn logs_of_a_fabric_and_of_its_functions() {
    let lab = up("logs");
    let about = |line: &str| line.contains("function=\"wall\"");
    let of_wall = lab.ok(&["function", "logs", "wall"]);
    assert!(of_wall.contains("started function=\"wall\"") && of_wall.lines().all(about), "{of_wall}");
    let all = lab.ok(&["logs"]);
    assert!(
        all.lines().count() > of_wall.lines().count() && of_wall.lines().all(|line| all.contains(line)),
        "{all}"
    );
    let last = lab.ok(&["logs", "--lines", "2"]);
    assert!(last.lines().count() == 2 && all.ends_with(&last), "{last}");
    let json = lab.ok(&["function", "logs", "wall", "-n", "1", "--json"]);
    assert_eq!(Some(&*serde_json::from_str::<String>(&json).unwrap()), of_wall.lines().last());
    for words in [["function", "logs", "none"], ["guest", "logs", "none"], ["host", "logs", "none"]] {
        assert_eq!(lab.fails(&words).0, 5);
    }
    let mut follow = Command::new(env!("CARGO_BIN_EXE_ringway"));
    follow.args(["logs", "--follow"]).env("RINGWAY_RUN", lab.folder.join("run")).stdout(Stdio::piped());
    let follow = follow.spawn().unwrap();
    lab.ok(&["function", "stop", "wall"]);
    lab.ok(&["down"]);
    let followed = String::from_utf8(follow.wait_with_output().unwrap().stdout).unwrap();
    assert!(followed.contains("stopping function=\"wall\""), "{followed}");
}

#[test]
fn a_fabric_that_logs_to_a_pipe_says_so() {
    let lab = Lab::new("piped", FILE);
    let mut up = Command::new(env!("CARGO_BIN_EXE_ringway"));
    up.args(["up", "lab.toml"]).current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("it is up", || lab.run(&["ps"]).status.success());
    let (code, words) = lab.fails(&["logs"]);
    assert!(code == 1 && words.contains("logs to the terminal or the program"), "{words}");
    assert!(words.contains("`ringway up FILE --detach` writes a file"), "{words}");
    lab.ok(&["down"]);
    up.wait().unwrap();
}

#[test]
fn a_command_whose_output_nobody_reads_ends_without_a_word() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringway"));
    let mut child = child.arg("openapi").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned()),
        (Some(1), String::new())
    );
}
