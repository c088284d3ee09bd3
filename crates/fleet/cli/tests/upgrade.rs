//! `ringway upgrade`: a fabric moves to another program and back, and goes back by itself from one that fails.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::frames::{LONG, next, patched, program, send};
use crate::lab::{Lab, example, until};
use ringway_ring_client::Ring;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies a program to a file of the lab.
fn copy(lab: &Lab, from: &Path, name: &str) -> String {
    let to = lab.folder.join(name);
    // A process that another test starts meanwhile may have a copy of the open file for a moment.
    until("the copy runs", || {
        std::fs::copy(from, &to).unwrap();
        Command::new(&to).arg("--version").output().is_ok()
    });
    to.display().to_string()
}

fn ringway() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ringway"))
}

/// A version that fails at a place.
fn failing(lab: &Lab, place: &str) -> String {
    let built = example("ringway-cli", "failing-upgrade");
    copy(lab, &built, &format!("version.{place}"))
}

/// The keeper, `control` and `data`, and the file of each one's program.
fn processes(lab: &Lab) -> ([u64; 3], [PathBuf; 3]) {
    let fabric = lab.json(&["ps"])["fabric"].clone();
    let [control, data] = ["pid", "data_pid"].map(|name| fabric[name].as_u64().unwrap());
    let status = std::fs::read_to_string(format!("/proc/{control}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    let all = [parent.trim().parse().unwrap(), control, data];
    (all, all.map(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap()))
}

/// Frames pass both ways.
fn passes(rings: &mut [Ring; 2], number: u32) {
    for (from, to) in [(0, 1), (1, 0)] {
        assert!(send(&mut rings[from], number));
        while next(&mut rings[to], LONG).unwrap() != number {}
    }
}

fn count(lab: &Lab, port: &str) -> u64 {
    let stats = lab.json(&["stats"]);
    let found =
        stats["ports"].as_array().unwrap().iter().find(|found| found["name"] == port).unwrap().clone();
    found["total"]["tx_frames"].as_u64().unwrap()
}

fn started(name: &str, more: &str) -> Lab {
    let lab = Lab::new(name, &(patched(&[["left", "right"]]) + more));
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

#[test]
fn a_fabric_moves_to_another_program_and_back() {
    let switch = "[switch.s]\n[port.idle]\nkind = \"ring\"\nsocket = \"idle.sock\"\nswitch = \"s\"\n\
                  [port.sink]\nkind = \"null\"\nswitch = \"s\"\n";
    let lab = started("upgrade", switch);
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    passes(&mut rings, 1);
    let (before, ours) = processes(&lab);
    let other = copy(&lab, ringway(), "other");
    let done = lab.json(&["upgrade", "--binary", &other]);
    assert_eq!((done["fabric"].as_str(), done["done"].as_bool()), (Some("lab"), Some(true)), "{done}");
    let (after, theirs) = processes(&lab);
    assert_eq!(theirs, [(); 3].map(|()| PathBuf::from(&other)), "{}", lab.log());
    assert_eq!(after[0], before[0], "the keeper is the same process");
    assert!(after[1] != before[1] && after[2] != before[2]);
    passes(&mut rings, 2);
    assert_eq!(count(&lab, "left"), 2, "counters go on");
    // What was not connected can be now, and the fabric can change.
    let idle = program(&lab, "idle");
    lab.write(&patched(&[["left", "right"]]));
    lab.ok(&["apply", "lab.toml"]);
    drop(idle);
    // The program's file may be gone: the command's own one is the default.
    std::fs::remove_file(&other).unwrap();
    let said = lab.ok(&["upgrade"]);
    assert!(said.contains("upgraded: fabric lab runs") && said.contains(ours[0].to_str().unwrap()), "{said}");
    let (back, again) = processes(&lab);
    assert_eq!((back[0], again), (before[0], ours));
    passes(&mut rings, 3);
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 2);
    // As without an upgrade.
    lab.ok(&["down"]);
    until("the keeper has ended", || !Path::new(&format!("/proc/{}/exe", before[0])).exists());
    assert!(!lab.socket("").exists(), "the run directory is removed");
}

/// The fabric runs from a file that is replaced meanwhile: what it goes back to is what ran.
#[test]
fn a_fabric_goes_back_from_a_program_that_fails() {
    let lab = Lab::new("upgrade-fails", &patched(&[["left", "right"]]));
    let ours = copy(&lab, ringway(), "ours");
    let up = Command::new(&ours)
        .args(["up", "lab.toml", "--detach"])
        .current_dir(&lab.folder)
        .env("RINGWAY_RUN", lab.folder.join("run"))
        .status();
    assert!(up.unwrap().success());
    std::fs::remove_file(&ours).unwrap();
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    let (before, programs) = processes(&lab);
    let mut restarts = 0;
    for (number, (place, why)) in (10..).zip([
        ("control-crashes", "its control process ended"),
        ("control-ends", "its control process ended"),
        ("data-crashes", "its control process ended"),
        ("control-hangs", "it did not serve the fabric within 20 s"),
    ]) {
        let (code, said) = lab.fails(&["upgrade", "--binary", &failing(&lab, place)]);
        assert!(
            code == 1 && said.contains(why) && said.contains("went back"),
            "{place}: {said}{}",
            lab.log()
        );
        let (after, again) = processes(&lab);
        assert_eq!((after[0], &again), (before[0], &programs), "{place}");
        passes(&mut rings, number);
        let now = lab.json(&["ps"])["fabric"]["restarts"].as_u64().unwrap();
        assert!(now >= restarts, "{place}: {now}");
        restarts = now;
    }
    // It fails sooner or later, and frames pass again whatever is left.
    let later = lab.run(&["upgrade", "--binary", &failing(&lab, "data-crashes-later")]);
    let said = String::from_utf8_lossy(&later.stderr);
    assert!(later.status.success() || said.contains("went back"), "{said}{}", lab.log());
    lab.ok(&["upgrade", "--binary", ringway().to_str().unwrap()]);
    assert_eq!(processes(&lab).0[0], before[0]);
    passes(&mut rings, 20);
}

#[test]
fn a_program_that_is_refused_changes_nothing() {
    let lab = started("upgrade-refused", "");
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    let (before, programs) = processes(&lab);
    let refused = |binary: &str| lab.fails(&["upgrade", "--binary", binary]).1;
    let why = refused(&copy(&lab, Path::new("/bin/true"), "truth"));
    assert!(why.contains("nothing has changed") && why.contains("knows no `ringway upgrade-check`"), "{why}");
    let why = refused(&failing(&lab, "check"));
    assert!(why.contains("and says: this version reads nothing"), "{why}");
    let why = refused("/nowhere/ringway");
    assert!(why.contains("/nowhere/ringway: No such file"), "{why}");
    let why = refused(lab.folder.to_str().unwrap());
    assert!(why.contains("it is no file"), "{why}");
    let theirs = copy(&lab, ringway(), "theirs");
    std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o775)).unwrap();
    let why = refused(&theirs);
    assert!(why.contains("others than its owner can write it; use `chmod go-w`"), "{why}");
    let good: Value = lab.json(&["upgrade", "--check"]);
    assert_eq!((good["done"].as_bool(), good["to"].as_str()), (Some(false), Some(env!("CARGO_PKG_VERSION"))));
    assert_eq!(processes(&lab), (before, programs));
    passes(&mut rings, 1);
}

#[test]
fn a_guest_loses_its_card_only_if_that_is_accepted() {
    let card = "[port.card]\nkind = \"e1000\"\nmodel = \"82540em\"\nmac = \"02:00:00:00:00:01\"\n\
                socket = \"card.sock\"\n[port.other]\nkind = \"null\"\n\
                [patch.card]\nports = [\"card\", \"other\"]\n";
    let lab = started("upgrade-card", card);
    lab.ok(&["upgrade", "--check"]);
    let _monitor = UnixStream::connect(lab.socket("card.sock")).unwrap();
    let why = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    until("the card has a guest", || {
        let output = lab.run(&["upgrade", "--check"]);
        !output.status.success() && why(output).contains("port card: its guest loses the device")
    });
    let said = lab.ok(&["upgrade", "--disconnect"]);
    assert!(said.contains("port card: its peer must connect again"), "{said}");
}
