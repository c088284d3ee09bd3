//! `ringway save` and `ringway apply --dry-run`: the saved file describes what runs.

use crate::lab::frames::switched;
use crate::lab::{Lab, api, until};
use serde_json::Value;

const NONE: &str = "nothing to change\n";

fn file() -> String {
    let ring = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    format!(
        "# Where the guests are.\n{}{}{}# Slow.\n[link.wan]\nports = [\"near\", \"far\"]\ndelay = \"1ms\"\n\n\
         [function.echo]\nclick = \"FromPort(own) -> EtherMirror -> ToPort(own)\"\nport = \"own\"\n",
        switched(&["left", "own", "free"]),
        ring("near"),
        ring("far")
    )
}

/// Changes the running fabric by every command that does.
fn change(lab: &Lab) {
    lab.ok(&["switch", "add", "lan", "ageing=60s"]);
    lab.ok(&["port", "add", "sink", "--kind", "null", "--switch", "lan", "link.loss=1%"]);
    lab.ok(&["port", "add", "more", "--kind", "ring", "--switch", "main", "socket=more.sock", "mode=0660"]);
    lab.ok(&["port", "remove", "left"]);
    lab.ok(&["link", "set", "wan", "delay=7ms"]);
    lab.ok(&["link", "set", "wan", "--from", "far", "loss=2%"]);
    lab.ok(&["link", "set", "sink", "delay=3ms"]);
    let click =
        |port: &str, what: &str| format!("FromPort({port})\n  -> {what}\n  -> ToPort({port}); // \"it\"\n");
    for (name, text) in [
        ("new.click", click("more", "EtherMirror")),
        ("late.click", click("free", "EtherMirror")),
        ("echo.click", click("own", "EtherMirror -> Null")),
    ] {
        std::fs::write(lab.folder.join(name), text).unwrap();
    }
    lab.ok(&["function", "create", "new", "--config", "new.click", "--port", "more", "--memory", "64MB"]);
    lab.ok(&["function", "create", "late", "--config", "late.click", "--port", "free"]);
    lab.ok(&["function", "destroy", "late"]);
    until("it runs", || api::is_running(lab, "echo"));
    lab.ok(&["function", "update", "echo", "echo.click"]);
}

#[test]
fn the_saved_file_describes_what_runs() {
    let lab = Lab::new("save", &file());
    lab.ok(&["up", "lab.toml", "--detach"]);
    let first = std::fs::read_to_string(lab.folder.join("lab.toml")).unwrap();
    assert_eq!(lab.ok(&["save"]), first, "nothing has changed");
    change(&lab);
    // The file that was applied last would undo what was ordered.
    let undone = lab.ok(&["apply", "lab.toml", "--dry-run"]);
    for line in ["remove switch lan", "add port left (ring)", "remove function new", "change port wan/near"] {
        assert!(undone.lines().any(|own| own == line), "{line} is not in {undone}");
    }
    let before = lab.json(&["ps"])["ports"].clone();
    let saved = lab.ok(&["save"]);
    for part in ["# Where the guests are.\n[switch.main]\n", "# Slow.\n[link.wan]\n", "[switch.lan]\n", "7ms"]
    {
        assert!(saved.contains(part), "{part} is not in {saved}");
    }
    assert!(!saved.contains("left"), "{saved}");
    lab.ok(&["save", "saved.toml"]);
    assert_eq!(std::fs::read_to_string(lab.folder.join("saved.toml")).unwrap(), saved);
    assert_eq!(lab.ok(&["check", "saved.toml"]).lines().count(), 1);
    assert_eq!(lab.ok(&["apply", "saved.toml", "--dry-run"]), NONE);
    // What was ordered outlives the control process.
    let pid = || lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
    let control = pid();
    api::kill(control);
    until("another one answers", || lab.run(&["ps"]).status.success() && pid() != control);
    assert_eq!(lab.ok(&["save"]), saved);
    // The file replaces the one before.
    lab.ok(&["save", "lab.toml"]);
    assert_eq!(lab.ok(&["apply", "lab.toml"]), NONE);
    assert_eq!(lab.ok(&["save"]), saved);
    assert_eq!(lab.json(&["apply", "lab.toml", "--dry-run"])["changes"], Value::Array(Vec::new()));
    let names =
        |ports: &Value| ports.as_array().unwrap().iter().map(|port| port["name"].clone()).collect::<Vec<_>>();
    let mut both = [names(&before), names(&lab.json(&["ps"])["ports"])];
    both.iter_mut().for_each(|names| names.sort_by_key(Value::to_string));
    assert_eq!(both[0], both[1]);
    lab.ok(&["down"]);
}

#[test]
fn what_a_dry_run_can_not_do_it_says() {
    let lab = Lab::new("save-wrong", &switched(&["left"]));
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab.write(&(switched(&["left"]) + "[worker.w]\n"));
    let (code, why) = lab.fails(&["apply", "lab.toml", "--dry-run"]);
    assert!(code == 1 && why.contains("its workers can't change"), "{why}");
    lab.write("[port.left]\nkind = \"nul\"\n");
    assert_eq!(lab.fails(&["apply", "lab.toml", "--dry-run"]).0, 3);
    lab.write(&switched(&["left", "right"]));
    assert_eq!(lab.ok(&["apply", "lab.toml", "--dry-run"]), "add port right (ring)\n");
    assert_eq!(lab.json(&["port", "list"]).as_array().unwrap().len(), 1, "nothing was changed");
    let (code, why) = lab.fails(&["save", "no/such/folder.toml"]);
    assert!(code == 1 && why.contains("no/such/folder.toml: "), "{why}");
    lab.ok(&["down"]);
}
