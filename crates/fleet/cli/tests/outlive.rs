//! The control process is killed, alone and with the data process, or the fabric is upgraded: guests, programs,
//! functions and hosts go on as the same processes, and what happens to them meanwhile is noticed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::exec::may_create_namespaces;
use crate::guests::{file, run};
use crate::lab::frames::{next, patched, program, send};
use crate::lab::http::identity;
use crate::lab::net::can_create_taps;
use crate::lab::{Lab, isolations, until};
use ringway_ring_client::Ring;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

fn signal(pid: u64, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// Kills `control`, with `data` if it is said; `also` is called before another one runs.
fn kill(lab: &Lab, with_data: bool, also: impl FnOnce()) {
    let before = lab.json(&["ps"])["fabric"].clone();
    let names: &[&str] = if with_data { &["pid", "data_pid"] } else { &["pid"] };
    names.iter().for_each(|name| signal(before[name].as_u64().unwrap(), Signal::KILL));
    also();
    until("another one answers", || {
        let now = lab.json(&["ps"])["fabric"].clone();
        names.iter().all(|name| now[name] != before[name] && now[name] != 0)
    });
    // A process that ran for a second is replaced at once.
    let end = Instant::now() + Duration::from_millis(1100);
    until("it has run for a while", || Instant::now() > end);
}

/// How the processes of a fabric are replaced.
#[derive(Clone, Copy, Debug)]
enum Replaced {
    /// `control` is killed.
    Control,
    /// `control` and `data` are killed.
    Both,
    /// The fabric is upgraded.
    Upgrade,
}

fn replace(lab: &Lab, how: Replaced) {
    match how {
        Replaced::Control => kill(lab, false, || {}),
        Replaced::Both => kill(lab, true, || {}),
        Replaced::Upgrade => _ = lab.ok(&["upgrade"]),
    }
}

/// The object of a list with this name.
fn find(lab: &Lab, kind: &str, name: &str) -> Value {
    let all = lab.json(&[kind, "list"]);
    all.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

fn pid(lab: &Lab, kind: &str, name: &str) -> u64 {
    find(lab, kind, name)["pid"].as_u64().unwrap()
}

fn await_state(lab: &Lab, kind: &str, name: &str, state: &str) {
    until(&format!("{name} is {state}: {}\n{}", find(lab, kind, name), lab.log()), || {
        find(lab, kind, name)["state"] == state
    });
}

/// Numbers that a log has in lines which begin with `word`. None is missing between the first and the last.
fn numbers(log: &str, word: &str) -> Vec<u64> {
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let number = |line: &str| line.trim().strip_prefix(word)?.trim().parse().ok();
    let numbers: Vec<u64> = whole.lines().filter_map(number).collect();
    let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
    assert_eq!(gap, None, "a line is missing");
    numbers
}

fn last(log: &str, word: &str) -> u64 {
    numbers(log, word).last().copied().unwrap_or(0)
}

/// A program in place of QEMU, whose guest writes to its console, and runs commands.
const GUEST: &str = "#!/bin/sh\n\
    case $* in *--version) echo QEMU emulator version 9.0.1; exit;; esac\n\
    printf '=ringway 0 0 4\\n6.1\\n'\n\
    (n=0; while :; do n=$((n+1)); echo \"tick $n\" >&2; sleep 0.02; done) &\n\
    while read id time words; do\n\
    case $words in poweroff*) exit 0;; esac\n\
    out=$(eval \"$words\" 2>&1); printf '=ringway %s %s %s\\n%s' $id $? ${#out} \"$out\"\n\
    done\n";

#[test]
fn a_guest_outlives_control_and_its_console_and_commands_go_on() {
    let lab = Lab::new("outlive-guest", "");
    let script = lab.folder.join("qemu");
    std::fs::write(&script, GUEST).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(lab.folder.join("modules")).unwrap();
    std::fs::write(lab.folder.join("kernel"), "").unwrap();
    let guest = "program = \"qemu\"\nkernel = \"kernel\"\nmodules = \"modules\"\ninitrd = \"kernel\"";
    lab.write(&file("kind = \"vhost-user\"", guest));
    assert!(run(&lab, &["up", "lab.toml", "--detach"]).status.success(), "{}", lab.log());
    await_state(&lab, "guest", "left", "running");
    let first = pid(&lab, "guest", "left");
    let console = lab.folder.join("run/lab/guests/left/console.log");
    let ticks = || last(&std::fs::read_to_string(&console).unwrap(), "tick ");
    let fabric = identity(&lab);
    for how in [Replaced::Control, Replaced::Upgrade, Replaced::Both, Replaced::Upgrade] {
        until("it writes", || ticks() > 10);
        replace(&lab, how);
        await_state(&lab, "guest", "left", "running");
        assert_eq!(pid(&lab, "guest", "left"), first, "{}", lab.log());
        assert_eq!(identity(&lab), fabric, "other fabrics believe it what it says of guests");
        let before = ticks();
        until("it writes on", || ticks() > before + 10);
        assert_eq!(lab.ok(&["guest", "exec", "left", "--", "echo", "hello"]).trim(), "hello");
    }
    // The end of the guest while nobody looks.
    kill(&lab, false, || signal(first, Signal::KILL));
    await_state(&lab, "guest", "left", "ended");
    let reason = find(&lab, "guest", "left")["reason"].to_string();
    assert!(reason.contains("signal: 9"), "{reason}");
    // The end is known to the next one too, and the one after that.
    kill(&lab, false, || {});
    assert_eq!(find(&lab, "guest", "left")["state"], "ended");
    assert!(find(&lab, "guest", "left")["reason"].to_string().contains("signal: 9"));
    run(&lab, &["guest", "start", "left"]);
    await_state(&lab, "guest", "left", "running");
    let before = pid(&lab, "guest", "left");
    run(&lab, &["guest", "restart", "left"]);
    await_state(&lab, "guest", "left", "running");
    assert_ne!(pid(&lab, "guest", "left"), before, "another process");
    lab.ok(&["guest", "stop", "left"]);
    await_state(&lab, "guest", "left", "stopped");
    kill(&lab, false, || {});
    await_state(&lab, "guest", "left", "stopped");
    assert_eq!(find(&lab, "guest", "left")["reason"], "");
    lab.ok(&["down"]);
    assert!(run(&lab, &["up", "lab.toml", "--detach"]).status.success(), "{}", lab.log());
    assert_ne!(identity(&lab), fabric, "it does not know what it said");
    lab.ok(&["down"]);
}

#[test]
fn a_program_outlives_control_and_no_line_of_it_is_lost() {
    if !may_create_namespaces() {
        return;
    }
    let lab = Lab::new(
        "outlive-program",
        "[switch.main]\n\
         [program.speaks]\ncommand = [\"sh\", \"-c\", \"n=0; while :; do m=$((n+100)); \
         while [ $n -lt $m ]; do n=$((n+1)); echo line $n; done; sleep 0.01; done\"]\n\
         switch = \"main\"\naddress = \"10.0.0.2/24\"\nrestart = \"on-failure\"\n\
         [program.once]\ncommand = [\"sleep\", \"1000\"]\n\
         switch = \"main\"\naddress = \"10.0.0.3/24\"\nrestart = \"never\"\n",
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    await_state(&lab, "program", "speaks", "running");
    await_state(&lab, "program", "once", "running");
    let (first, once) = (pid(&lab, "program", "speaks"), pid(&lab, "program", "once"));
    let log = |name: &str| {
        let path = lab.folder.join("run/lab/programs").join(name);
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let lines = || last(&(log("speaks.log.1") + &log("speaks.log")), "line ");
    for how in [Replaced::Control, Replaced::Both, Replaced::Upgrade] {
        replace(&lab, how);
        assert_eq!(find(&lab, "program", "speaks")["state"], "running");
        assert_eq!(pid(&lab, "program", "speaks"), first, "{}", lab.log());
        let before = lines();
        until("it writes on", || lines() > before);
    }
    // Both end while nobody looks.
    kill(&lab, false, || {
        signal(first, Signal::KILL);
        signal(once, Signal::KILL);
    });
    until("it is started again", || {
        let now = find(&lab, "program", "speaks");
        now["state"] == "running" && now["restarts"] == 1
    });
    await_state(&lab, "program", "once", "ended");
    assert_eq!(find(&lab, "program", "once")["reason"], "signal: 9 (SIGKILL)");
    lab.ok(&["program", "stop", "speaks"]);
    await_state(&lab, "program", "speaks", "stopped");
    kill(&lab, false, || {});
    assert_eq!(find(&lab, "program", "speaks")["state"], "stopped");
    assert_eq!(find(&lab, "program", "once")["state"], "ended");
    lab.ok(&["program", "start", "speaks"]);
    await_state(&lab, "program", "speaks", "running");
    lab.ok(&["down"]);
}

/// Sends frames until one comes back.
fn exchange(ring: &mut Ring) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        send(ring, 1);
        if next(ring, Duration::from_millis(20)).is_some() {
            break;
        }
        assert!(Instant::now() < end, "no frame comes back");
    }
    while next(ring, Duration::ZERO).is_some() {}
}

#[test]
fn functions_outlive_control_with_what_they_have() {
    for isolation in isolations() {
        let function = format!(
            "[function.one]\nisolation = \"{isolation}\"\nmemory = \"64MB\"\nport = \"one\"\n\
             click = \"FromPort(one) -> c :: Counter -> ToPort(one);\"\n"
        );
        let lab = Lab::new(&format!("outlive-{isolation}"), &(patched(&[["one", "far"]]) + &function));
        lab.ok(&["up", "lab.toml", "--detach"]);
        await_state(&lab, "function", "one", "running");
        let mut far = program(&lab, "far");
        exchange(&mut far);
        let first = pid(&lab, "function", "one");
        let count = || lab.ok(&["function", "read", "one", "c.count"]).trim().parse::<u64>().unwrap();
        for how in [Replaced::Control, Replaced::Upgrade, Replaced::Both, Replaced::Upgrade] {
            let before = count();
            assert!(before > 0);
            replace(&lab, how);
            await_state(&lab, "function", "one", "running");
            assert_eq!(pid(&lab, "function", "one"), first, "{isolation}: {}", lab.log());
            assert_eq!(find(&lab, "function", "one")["restarts"], 0);
            assert!(count() >= before, "{isolation}: its state is the same");
            exchange(&mut far);
            assert!(count() > before);
        }
        // The end of the function while nobody looks.
        kill(&lab, false, || signal(first, Signal::KILL));
        until("it is started again", || {
            let now = find(&lab, "function", "one");
            now["state"] == "running" && now["restarts"] == 1
        });
        exchange(&mut far);
        lab.ok(&["function", "suspend", "one"]);
        kill(&lab, false, || {});
        assert_eq!(find(&lab, "function", "one")["state"], "suspended");
        lab.ok(&["function", "resume", "one"]);
        exchange(&mut far);
        if isolation == "vm" {
            lab.ok(&["function", "snapshot", "one", "kept"]);
            kill(&lab, false, || {});
            assert!(lab.ok(&["snapshot", "list"]).contains("kept"));
            lab.ok(&["snapshot", "remove", "kept"]);
        }
        lab.ok(&["function", "stop", "one"]);
        kill(&lab, false, || {});
        assert_eq!(find(&lab, "function", "one")["state"], "stopped");
        lab.ok(&["function", "start", "one"]);
        exchange(&mut far);
        let before = pid(&lab, "function", "one");
        lab.ok(&["function", "restart", "one"]);
        until("another process runs", || {
            find(&lab, "function", "one")["state"] == "running" && pid(&lab, "function", "one") != before
        });
        exchange(&mut far);
        lab.ok(&["down"]);
    }
}

#[test]
fn a_host_outlives_control_with_its_interface_and_its_programs() {
    if !can_create_taps() {
        return;
    }
    let lab = Lab::new(
        "outlive-host",
        "[switch.main]\n\
         [host.near]\nswitch = \"main\"\naddress = \"10.0.0.1/24\"\nrun = [\"sleep 1000\", \"exit 3\"]\n\
         [host.far]\nswitch = \"main\"\naddress = \"10.0.0.2/24\"\n\
         run = [\"sleep 2000 & exec sleep 1000\"]\n",
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    let programs = |host: &str| find(&lab, "host", host)["programs"].clone();
    until("programs run", || {
        programs("near")[0]["state"] == "running"
            && programs("near")[1]["state"] == "ended"
            && programs("far")[0]["state"] == "running"
    });
    let identity = |host: &str| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(lab.folder.join("run/lab/hosts").join(host).join("net")).unwrap().ino()
    };
    let (before, near, far) = (programs("near"), identity("near"), identity("far"));
    let pings = || {
        let words = ["host", "exec", "near", "--", "ping", "-n", "-W", "5", "-c", "1", "10.0.0.2"];
        until("a ping is answered", || lab.run(&words).status.success());
    };
    for how in [Replaced::Control, Replaced::Both, Replaced::Upgrade] {
        pings();
        replace(&lab, how);
        assert_eq!((identity("near"), identity("far")), (near, far), "{}", lab.log());
        assert_eq!(programs("near"), before);
        pings();
    }
    let pid = programs("far")[0]["pid"].as_u64().unwrap();
    kill(&lab, false, || signal(pid, Signal::TERM));
    until("its end is noticed", || programs("far")[0]["state"] == "ended");
    assert!(programs("far")[0]["reason"].to_string().contains("signal: 15"));
    assert_eq!(programs("near"), before);
    lab.ok(&["down"]);
    assert!(!lab.folder.join("run/lab/hosts").exists());
}

#[test]
fn what_is_left_ends_when_the_keeper_and_control_are_killed() {
    if !may_create_namespaces() {
        return;
    }
    let lab = Lab::new(
        "outlive-none",
        &("[switch.main]\n\
           [program.sleeps]\ncommand = [\"sleep\", \"1000\"]\nswitch = \"main\"\naddress = \"10.0.0.2/24\"\n"
            .to_string()
            + &patched(&[["one", "far"]])
            + "[function.one]\nport = \"one\"\nclick = \"FromPort(one) -> Discard;\"\n"),
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    await_state(&lab, "program", "sleeps", "running");
    await_state(&lab, "function", "one", "running");
    let pids = [pid(&lab, "program", "sleeps"), pid(&lab, "function", "one")];
    let control = lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{control}/stat")).unwrap();
    let keeper = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    signal(keeper, Signal::KILL);
    signal(control, Signal::KILL);
    let lives = |pid: &u64| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    until("both have ended", || !pids.iter().any(lives));
}
