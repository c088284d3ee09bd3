//! `ringway pktgen` on the ports of a real fabric.

use crate::docs::shown;
use crate::lab::frames::{self, patched};
use crate::lab::{Lab, Running};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};

/// Two ports on a switch.
fn switched(name: &str) -> Lab {
    let lab = Lab::new(name, &frames::switched(&["a", "b"]));
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

/// A command that runs beside others.
fn started(lab: &Lab, words: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.arg("pktgen").args(words).current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
    Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// A command that runs beside others, once it has its port.
fn beside(lab: &Lab, port: &str, words: &[&str]) -> Running {
    let running = started(lab, words);
    crate::lab::until("the program is on its port", || lab.state(port) == "up");
    running
}

/// The JSON that a command prints until it ends.
fn ended(mut running: Running) -> Value {
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let mut errors = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(running.0.wait().unwrap().success(), "{text}{errors}");
    serde_json::from_str(&text).unwrap()
}

/// What a command prints, also if it failed since this machine kept it from its rate.
fn printed(lab: &Lab, words: &[&str]) -> Value {
    let output = lab.run(&[words, &["--json"][..]].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let in_time = output.status.success() || errors.contains("missed");
    assert!(in_time, "{words:?}: {errors}{}", lab.log());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_frame_of_a_sender_is_checked_by_a_receiver() {
    let lab = Lab::new("pktgen-tx", "[port.p]\nkind = \"pipe\"\nsocket = \"p.sock\"\n");
    lab.ok(&["up", "lab.toml", "--detach"]);
    // On a pipe a sender waits for its receiver, so that no frame is lost.
    let rx = started(&lab, &["rx", "p", "--count", "20000", "--ports", "8", "--json"]);
    let words = ["pktgen", "tx", "p", "--count", "20000", "--size", "imix", "--flows", "8"];
    let sent = lab.json(&[&words[..], &["--vary", "from-ip,to-port", "--vlan", "7"][..]].concat());
    assert_eq!((&sent["frames"], &sent["skipped"]), (&20_000.into(), &0.into()), "{sent}");
    let received = ended(rx);
    assert_eq!((&received["frames"], &received["lost"]), (&20_000.into(), &0.into()), "{received}");
    for none in ["reordered", "duplicates", "corrupted", "foreign", "old"] {
        assert_eq!(received[none], 0, "{none}: {received}");
    }
    assert_eq!(sent["bytes"], received["bytes"]);
    assert_eq!(received["latency"]["frames"], 20_000);
    assert!(received["histogram"].as_array().unwrap().len() > 1);
}

#[test]
fn a_receiver_shows_losses_and_ends_when_nothing_comes_any_more() {
    let lab = Lab::new(
        "pktgen-loss",
        "[port.a]\nkind = \"ring\"\nsocket = \"a.sock\"\n[port.b]\nkind = \"ring\"\nsocket = \"b.sock\"\n\
         [link.wan]\nports = [\"a\", \"b\"]\nloss = \"20%\"\nduplicate = \"10%\"\n",
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    let rx = beside(&lab, "b", &["rx", "b", "--idle", "500ms", "--json"]);
    let sent = printed(&lab, &["pktgen", "tx", "a", "--rate", "10kpps", "--count", "5000"]);
    assert_eq!(sent["frames"], 5000);
    let received = ended(rx);
    let count = |name: &str| received[name].as_u64().unwrap();
    // The first and the last frames may be among those lost, and a loaded machine may lose more.
    assert!(count("lost") > 700 && count("frames") + count("lost") <= 5000, "{received}");
    assert!(count("duplicates") > 0 && count("corrupted") == 0, "{received}");
}

#[test]
fn pings_come_back_and_their_times_are_shown() {
    let lab = switched("pktgen-ping");
    let pong = beside(&lab, "b", &["pong", "b", "--json"]);
    let pinged = lab.json(&["pktgen", "ping", "a", "--count", "300", "--to", "02:00:00:00:00:02"]);
    assert_eq!(
        (&pinged["sent"], &pinged["received"], &pinged["lost"]),
        (&300.into(), &300.into(), &0.into())
    );
    assert_eq!(pinged["latency"]["frames"], 300);
    assert!(pinged["latency"]["min"].as_u64() > Some(0) && pinged["histogram"].is_array());
    let text = lab.ok(&["pktgen", "ping", "a", "--rate", "200pps", "--count", "10", "--size", "200"]);
    assert!(text.contains("10 sent, 10 received, 0 lost") && text.contains("p99.9"), "{text}");
    let pid = rustix::process::Pid::from_raw(pong.0.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(ended(pong)["returned"], 310);
    // Nobody answers any more.
    let (code, why) = lab.fails(&["pktgen", "ping", "a", "--count", "1", "--timeout", "1ms"]);
    assert!(code == 6 && why.contains("no frame came back"), "{why}");
}

#[test]
fn a_switch_is_measured_by_rfc_2544() {
    let lab = switched("pktgen-rfc2544");
    let words =
        ["pktgen", "rfc2544", "a", "b", "--sizes", "64,1518", "--trial", "50ms", "--max-rate", "5kpps"];
    let more = ["--burst", "64", "--repeat", "1", "--resolution", "5%", "--svg", "result.svg"];
    let report = printed(&lab, &[&words[..], &more].concat());
    let sizes = report["sizes"].as_array().unwrap();
    assert_eq!(sizes.iter().map(|size| size["frame"].as_u64().unwrap()).collect::<Vec<_>>(), [64, 1518]);
    for size in sizes {
        // A loaded machine may delay the worker for longer than frames wait.
        let (ndr, trials) = (&size["ndr"], size["trials"].as_array().unwrap());
        assert!(ndr["rate"].is_f64() || ndr["why"].as_str().unwrap().contains("missed"), "{ndr}");
        assert!(trials.iter().any(|trial| trial["received"]["frames"].as_u64() > Some(0)), "{size}");
        assert!(trials.iter().all(|trial| trial["received"]["corrupted"] == 0), "{size}");
        assert!(size["back_to_back"]["searches"].as_array().unwrap().len() == 1);
    }
    let svg = std::fs::read_to_string(lab.folder.join("result.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("1518 B"), "{svg}");
}

/// With shorter times, and rates that a loaded machine reaches.
#[test]
fn the_examples_of_the_documentation_run() {
    let lab = Lab::new("pktgen-docs", &shown("pktgen.md", "toml")[0]);
    let mut lines = shown("pktgen.md", "sh")[0].clone();
    let short = "--sizes 64,1518 --trial 50ms --max-rate 5kpps --burst 0";
    for (slow, quick) in [("1Mpps", "5kpps"), ("10s", "500ms"), ("--sizes 64,1518", short)] {
        assert!(lines.contains(slow), "{lines}");
        lines = lines.replace(slow, quick);
    }
    let mut rx = None;
    for line in lines.lines() {
        if let Some(line) = line.strip_suffix(" &") {
            let mut command = lab.shell(&format!("exec {line} --json"));
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            rx = Some(Running(child));
            crate::lab::until("the receiver is on its port", || lab.state("b") == "up");
            continue;
        }
        let output = lab.shell(line).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || errors.contains("missed"), "{line}: {errors}{}", lab.log());
    }
    assert!(ended(rx.unwrap())["frames"].as_u64() > Some(0));
    assert!(std::fs::read_to_string(lab.folder.join("result.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn ports_of_other_kinds_and_impossible_frames_are_refused() {
    let lab = Lab::new(
        "pktgen-wrong",
        &format!("{}[switch.s]\n[port.n]\nkind = \"null\"\nswitch = \"s\"\n", patched(&[["a", "b"]])),
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    for (words, code, part) in [
        (&["tx", "c"][..], 5, "there is no port \"c\""),
        (&["rx", "n"], 1, "is of kind null; a program's port is of kind ring"),
        (&["tx", "a", "--size", "20"], 2, "use a size from 60 to 9214"),
        (&["tx", "a", "--rate", "1000"], 2, "write frames a second, such as \"1Mpps\""),
        (&["tx", "a", "--rate", "10Mbps"], 2, "are bits for some programs and bytes for tc"),
        (&["tx", "a", "--flows", "5000", "--vary", "vlan", "--vlan", "7"], 1, "there is no VLAN 5006"),
        (&["tx", "a", "--vary", "ttl"], 2, "flows can't differ in \"ttl\""),
        (&["rfc2544", "a", "a"], 1, "name two ports"),
        (&["rfc2544", "a", "b", "--svg", "/nowhere/x.svg"], 1, "/nowhere/x.svg: "),
    ] {
        let (found, why) = lab.fails(&[&["pktgen"][..], words].concat());
        assert!(found == code && why.contains(part), "{words:?}: {found}, {why}");
    }
}
