//! `ringway up --detach`: its log, and what it says if the fabric does not come up.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::Lab;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

const FABRIC: &str = "[switch.s]\n[port.a]\nkind = \"ring\"\nsocket = \"a.sock\"\nswitch = \"s\"\n";

/// Attack: a link in a folder where others can write, to a file that root must not write.
#[test]
fn a_log_that_is_a_link_is_not_written() {
    let lab = Lab::new("detach-link", FABRIC);
    let (run, precious) = (lab.folder.join("run"), lab.folder.join("precious"));
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(&precious, "precious").unwrap();
    let log = run.join("lab.log");
    symlink(&precious, &log).unwrap();
    let (_, why) = lab.fails(&["up", "lab.toml", "--detach"]);
    assert!(why.contains("lab.log: a symbolic link, which is not followed"), "{why}");
    std::fs::remove_file(&log).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &log,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let (_, why) = lab.fails(&["up", "lab.toml", "--detach"]);
    assert!(why.contains("lab.log: a pipe, not a file"), "{why}");
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    std::fs::remove_file(&log).unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert!(lab.log().contains("up"), "{}", lab.log());
}

/// Attack: the owner of a folder above the run directory, who would put one with links in its place.
#[test]
fn a_run_directory_below_a_folder_of_another_user_is_refused_with_its_place() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lab = Lab::new("detach-above", "");
    let above = lab.folder.join("par");
    std::fs::create_dir(&above).unwrap();
    std::os::unix::fs::chown(&above, Some(65_534), None).unwrap();
    lab.write(&format!("run = \"{}\"\n{FABRIC}", above.join("sw").display()));
    for words in [&["check", "lab.toml"][..], &["up", "lab.toml"], &["up", "lab.toml", "--detach"]] {
        let (code, why) = lab.fails(words);
        let reason = format!("{} belongs to user 65534", above.display());
        assert!(code == 3 && why.contains(&reason) && why.contains("lab.toml:3:7"), "{words:?}: {why}");
    }
    assert_eq!(std::fs::read_dir(&above).unwrap().count(), 0, "nothing was made there");
}

/// Its error is on standard error, and nothing else of its log.
#[test]
fn a_fabric_that_does_not_come_up_says_why() {
    let lab = Lab::new("detach-error", FABRIC);
    let (code, why) = lab.fails(&["up", "lab.toml", "--detach", "--extender=203.0.113.1:7"]);
    assert!(code == 1 && why.starts_with("error: the extender of kube-scheduler: 203.0.113.1:7: "), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");
    let json = lab.run(&["up", "lab.toml", "--detach", "--extender=203.0.113.1:7", "--json"]);
    let error: serde_json::Value = serde_json::from_slice(&json.stderr).unwrap();
    assert!(error["error"].as_str().unwrap().ends_with("use another address with --extender"), "{error}");
}

#[test]
fn a_full_disk_is_the_reason_that_is_told() {
    let lab = Lab::new("detach-full", FABRIC);
    std::fs::create_dir_all(lab.folder.join("run")).unwrap();
    let script = "mount -t tmpfs -o size=16k full run && { cat /dev/zero > run/ballast 2>/dev/null; \
        RINGWAY_RUN=$PWD/run exec \"$0\" up lab.toml --detach; }";
    let unshare = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let mut command = Command::new("unshare");
    command.args([unshare, "sh", "-c", script, env!("CARGO_BIN_EXE_ringway")]);
    let output = command.current_dir(&lab.folder).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && why.contains("run/lab: No space left on device"), "{why}");
}

/// A service of systemd with `Type=notify` is started once its fabric is up. Nothing below the keeper may tell systemd
/// something.
#[test]
fn the_service_manager_is_told_when_the_fabric_is_up() {
    let lab = Lab::new("notify", FABRIC);
    let socket = UnixDatagram::bind(lab.folder.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut command = lab.command(&["up", "lab.toml"]);
    let mut keeper = command.env("NOTIFY_SOCKET", lab.folder.join("notify")).spawn().unwrap();
    let mut text = [0; 100];
    let length = socket.recv(&mut text).unwrap();
    assert_eq!(std::str::from_utf8(&text[..length]).unwrap().trim_end(), "READY=1");
    assert_eq!(lab.state("a"), "waiting", "the fabric is up");
    let control = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", keeper.id())).unwrap();
    let control = control.split_whitespace().next().unwrap();
    let environment = std::fs::read(format!("/proc/{control}/environ")).unwrap();
    assert!(!environment.windows(13).any(|part| part == b"NOTIFY_SOCKET"));
    lab.ok(&["down"]);
    assert!(keeper.wait().unwrap().success());
}
