//! `[program.NAME]` and `ringway program`: unmodified programs that the fabric starts, watches and ends.

use crate::exec::may_create_namespaces;
use crate::lab::{Lab, until};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn find(lab: &Lab, name: &str) -> Value {
    let all = lab.json(&["program", "list"]);
    all.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

fn await_state(lab: &Lab, name: &str, state: &str) {
    until(&format!("{name} is {state}"), || find(lab, name)["state"] == state);
}

fn logs(lab: &Lab, name: &str) -> String {
    let output = lab.run(&["program", "logs", name]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// The example, without its name.
fn example() -> &'static str {
    let file = include_str!("../../../../examples/programs.toml");
    file.split_once("name = \"programs\"\n").unwrap().1
}

#[test]
fn the_example_s_programs_serve_and_ask_and_follow_orders() {
    if !may_create_namespaces() {
        return;
    }
    let lab = Lab::new("programs", example());
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the client is answered", || logs(&lab, "client").contains("200\n"));
    assert!(lab.ok(&["stack", "ss", "web", "--all"]).contains("0.0.0.0:8000"));
    assert!(lab.ok(&["ps"]).contains("web      running"), "{}", lab.ok(&["ps"]));
    let words = lab.ok(&["program", "show", "web"]);
    assert!(words.contains("python3 -m http.server 8000") && words.contains("always"), "{words}");

    lab.ok(&["program", "stop", "web"]);
    await_state(&lab, "web", "stopped");
    until("the client notices", || logs(&lab, "client").contains("000\n"));
    lab.ok(&["program", "start", "web"]);
    await_state(&lab, "web", "running");
    let first = find(&lab, "web")["pid"].clone();
    lab.ok(&["program", "restart", "web"]);
    until("another runs", || {
        let web = find(&lab, "web");
        web["state"] == "running" && web["pid"] != first
    });
    assert_eq!(find(&lab, "web")["restarts"], 0);
    let pid = find(&lab, "web")["pid"].as_i64().unwrap() as i32;
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("it is started again", || {
        let web = find(&lab, "web");
        web["state"] == "running" && web["restarts"] == 1
    });
    let answered = logs(&lab, "client").matches("200\n").count();
    until("the client goes on", || logs(&lab, "client").matches("200\n").count() > answered);
    let (code, words) = lab.fails(&["program", "stop", "none"]);
    assert!(code == 5 && words.contains("there is no program \"none\"; `ringway program list`"), "{words}");
    changes(&lab);
}

/// What `apply` does with programs, and `down`.
fn changes(lab: &Lab) {
    let client = find(lab, "client")["pid"].clone();
    let deaf = "\n[program.deaf]\ncommand = [\"sh\", \"-c\", \"trap '' TERM; \
        setsid sh -c \\\"trap '' TERM HUP; \
        echo child \\\\$\\\\$; while :; do sleep 0.1; done\\\" & while :; do sleep 0.1; done\"]\n\
        switch = \"main\"\naddress = \"10.0.0.3/24\"\n";
    lab.write(&(example().replace("1024", "1000") + deaf));
    let made = lab.ok(&["apply", "lab.toml"]);
    for words in ["remove program web", "add port deaf (ring)", "add program web", "add program deaf"] {
        assert!(made.contains(words), "{words}: {made}");
    }
    assert!(!made.contains("program client"), "{made}");
    assert_eq!(find(lab, "client")["pid"], client, "it is as it was");
    until("the deaf one has a child", || logs(lab, "deaf").contains("child "));
    let child = logs(lab, "deaf").split_once("child ").unwrap().1.trim().to_string();
    let pids = ["client", "web", "deaf"].map(|name| find(lab, name)["pid"].to_string());
    assert!(lives(&child) && pids.iter().all(|pid| lives(pid)));
    // A wrong file changes nothing.
    lab.write(&example().replace("\"always\"", "\"often\""));
    let (code, words) = lab.fails(&["apply", "lab.toml"]);
    assert!(code == 3 && words.contains("lab.toml:") && words.contains("on-failure"), "{words}");
    assert!(pids.iter().all(|pid| lives(pid)));
    lab.ok(&["down"]);
    assert!(!pids.iter().any(|pid| lives(pid)) && !lives(&child), "nothing is left");
    assert!(!lab.folder.join("run/lab").exists());
}

#[test]
fn programs_that_end_are_started_again_as_their_files_say() {
    if !may_create_namespaces() {
        return;
    }
    let program = |name: &str, last: u8, command: &str, keys: &str| {
        format!(
            "[program.{name}]\nswitch = \"main\"\naddress = \"10.0.0.{last}/24\"\n\
             command = {command}\n{keys}\n"
        )
    };
    let file = [
        "[switch.main]\n".to_string(),
        program("once", 1, "[\"sh\", \"-c\", \"exit 3\"]", "restart = \"never\""),
        program("done", 2, "[\"true\"]", ""),
        program("fails", 3, "[\"false\"]", ""),
        program("lost", 4, "[\"/no/program\"]", "restart = \"never\""),
        program("later", 5, "[\"true\"]", "start = false\nrestart = \"always\""),
        program(
            "told",
            6,
            "[\"sh\", \"-c\", \"ulimit -n; pwd; echo $WORD; sleep 1000\"]",
            "nofile = 77\nfolder = \"/usr\"\nenvironment = { WORD = \"a b\" }",
        ),
    ];
    let lab = Lab::new("program-ends", &file.join("\n"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    await_state(&lab, "once", "ended");
    assert_eq!(find(&lab, "once")["reason"], "exit status: 3");
    await_state(&lab, "done", "ended");
    await_state(&lab, "lost", "ended");
    let reason = find(&lab, "lost")["reason"].to_string();
    assert!(reason.contains("127; its command was not found"), "{reason}");
    assert!(logs(&lab, "lost").contains("/no/program"));
    assert_eq!(find(&lab, "later")["state"], "stopped");
    until("it is tried again", || find(&lab, "fails")["restarts"].as_u64() > Some(1));
    until("it tells", || logs(&lab, "told").contains("77\n/usr\na b\n"));
    lab.ok(&["program", "start", "later"]);
    until("it runs again and again", || find(&lab, "later")["restarts"].as_u64() > Some(0));
    lab.ok(&["program", "stop", "later", "fails"]);
    await_state(&lab, "later", "stopped");
    await_state(&lab, "fails", "stopped");
}

#[test]
fn a_program_has_its_user_and_a_fabric_needs_no_root() {
    if !rustix::process::geteuid().is_root() || !may_create_namespaces() {
        eprintln!("not run: other users need root");
        return;
    }
    let file = "[switch.main]\n[program.who]\ncommand = [\"sh\", \"-c\", \"id -u; sleep 1000\"]\n\
        switch = \"main\"\naddress = \"10.0.0.1/24\"\nfolder = \"/\"\n";
    let lab = Lab::new("program-user", &format!("{file}user = \"nobody\"\n"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it tells", || logs(&lab, "who").contains("65534\n"));
    lab.ok(&["down"]);

    lab.write(file);
    std::fs::set_permissions(&lab.folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let run = lab.folder.join("nobody");
    let ringway = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_ringway")]);
        command.args(words).current_dir(&lab.folder).env("RINGWAY_RUN", &run).env("HOME", Path::new("/"));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let (up, said) = ringway(&["up", "lab.toml", "--detach"]);
    assert!(up, "{said}");
    until("it tells", || ringway(&["program", "logs", "who"]).1.contains("65534\n"));
    let (shown, text) = ringway(&["stack", "show", "who"]);
    assert!(shown && text.contains("addresses  10.0.0.1/24"), "{text}");
    assert!(ringway(&["down"]).0);
}
