//! The real program: fabrics are brought up, queried, changed and taken down, each in its own run directory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::{Lab, until};
use rustix::fs::{FileType, Mode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

const LOAD: &str = "
[switch.main]
lookup = \"static\"
static = { \"02:00:00:00:00:02\" = \"sink\" }
[port.load]
kind = \"source\"
switch = \"main\"
[port.sink]
kind = \"null\"
switch = \"main\"
";

#[test]
fn a_fabric_starts_forwards_and_stops() {
    let lab = Lab::new("load", LOAD);
    assert!(lab.ok(&["up", "lab.toml", "--detach"]).starts_with("up: fabric lab\n"));
    let received = || lab.json(&["stats"])["ports"][1]["total"]["rx_frames"].as_u64().unwrap();
    until("frames arrive", || received() > 0);
    let before = received();
    until("and go on arriving", || received() > before);
    assert_eq!(lab.state("load"), "up");
    let table = lab.json(&["switch", "table", "main"]);
    assert_eq!(table["entries"][0]["port"], "sink");
    assert!(table["entries"][0]["age"].is_null());
    assert_eq!(lab.fails(&["switch", "table", "nain"]).0, 5);
    let rates = lab.json(&["stats", "--watch", "--count", "1", "--interval", "0.05"]);
    assert!(rates["ports"][1]["rx_frames"].as_f64().unwrap() > 0.0, "{rates}");
    let graph = lab.json(&["graph", "--seconds", "0.05"]);
    assert_eq!(
        (graph["nodes"][0]["name"].as_str(), graph["edges"].as_array().unwrap().len()),
        (Some("load"), 2)
    );
    assert!(graph["nodes"][0]["tx_frames"].as_u64().unwrap() > 0, "{graph}");
    let drawn = lab.ok(&["graph", "--seconds", "0"]);
    assert!(drawn.starts_with("<svg ") && drawn.contains(">switch, static<") && drawn.ends_with("</svg>\n"));
    let (code, words) = lab.fails(&["up", "lab.toml", "--detach"]);
    assert!(code == 1 && words.contains("is up already (process "), "{words}");
    assert!(!lab.log().contains("is up already"), "the log of the running fabric");
    assert_eq!(lab.ok(&["down"]), "down: fabric lab\n");
    assert!(!lab.folder.join("run/lab").exists());
    let (code, words) = lab.fails(&["ps"]);
    assert!(code == 4 && words.contains("no fabric is up"), "{words}");
    let (code, words) = lab.fails(&["apply", "lab.toml"]);
    assert!(code == 4 && words.contains("fabric lab is not up") && words.contains("ringway up lab.toml"));
}

#[test]
fn devices_and_idle_pipes_are_refused_as_fabric_files() {
    let lab = Lab::new("endless", LOAD);
    let fifo = lab.folder.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    for (file, wrong) in [("/dev/zero", "a device, not a file"), ("fifo", "a pipe that nobody writes to")] {
        for words in [vec!["check", file], vec!["up", file], vec!["apply", file]] {
            let (code, message) = lab.fails(&words);
            let fix = "give the path of a fabric file";
            assert_eq!((code, message), (1, format!("error: {file}: {wrong}; {fix}\n")), "{words:?}");
        }
        let (_, message) = lab.fails(&["place", "--inventory", file, "hosts"]);
        assert_eq!(message, format!("error: {file}: {wrong}; give the path of an inventory file\n"));
    }
}

#[test]
fn a_foreign_socket_is_reported_as_no_fabric() {
    let lab = Lab::new("stranger", LOAD);
    let listener = UnixListener::bind(lab.folder.join("stranger")).unwrap();
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(b"this is no HTTP\r\n\r\n").unwrap();
        // Read until the other end is closed.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (code, words) = lab.fails(&["--socket", "stranger", "ps"]);
    assert!(code == 4 && words.contains("stranger is no control socket; name api.sock"), "{words}");
    stranger.join().unwrap();
}

#[test]
fn check_uses_the_run_directory_of_the_given_name() {
    let port = "[port.ring]\nkind = \"ring\"\nsocket = \"ring.sock\"\nswitch = \"main\"\n";
    let lab = Lab::new("named", &format!("{LOAD}{port}"));
    for name in ["lab", "other"] {
        let at = lab.folder.join("run").join(name);
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("ring.sock"), "in the way").unwrap();
        let (code, words) = lab.fails(&["check", "lab.toml"]);
        assert!(code == 3 && words.contains("run/lab/ring.sock is there already"), "{words}");
        assert_eq!(lab.run(&["check", "lab.toml", "--fabric", "other"]).status.success(), name == "lab");
    }
    std::fs::remove_file(lab.folder.join("run/lab/ring.sock")).unwrap();
    assert!(lab.ok(&["check", "lab.toml"]).starts_with("good: fabric lab"));
    let (code, words) = lab.fails(&["--fabric", "other", "up", "lab.toml", "--detach"]);
    assert!(code == 3 && words.contains("run/other/ring.sock is there already"), "{words}");
}

#[test]
fn apply_changes_only_differences_and_an_invalid_file_changes_nothing() {
    let ring = "[port.ring]\nkind = \"ring\"\nsocket = \"ring.sock\"\nswitch = \"main\"\n";
    let lab = Lab::new("apply", LOAD);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let sent = || lab.json(&["stats"])["ports"][0]["total"]["tx_frames"].as_u64().unwrap();
    until("frames are sent", || sent() > 0);
    let before = sent();
    lab.write(&format!("{LOAD}{ring}"));
    assert_eq!(lab.ok(&["apply", "lab.toml"]), "add port ring (ring)\n");
    assert!(sent() >= before, "the counters of a port that stays go on");
    assert!(lab.socket("ring.sock").exists());
    assert_eq!(lab.ok(&["apply", "lab.toml"]), "nothing to change\n");

    lab.write(&format!("{LOAD}{ring}colour = \"red\"\n"));
    let (code, words) = lab.fails(&["apply", "lab.toml"]);
    assert!(code == 3 && words.contains("lab.toml:17:1: port.ring has no key `colour`"), "{words}");
    let (code, words) = lab.fails(&["--json", "apply", "lab.toml"]);
    let reply: Value = serde_json::from_str(&words).unwrap();
    assert!(code == 3 && reply["code"] == 3 && reply["problems"][0]["line"] == 17, "{words}");
    // A socket path that is in use: the changes before it are undone.
    let listener = UnixListener::bind(lab.socket("taken.sock")).unwrap();
    let taken = "[port.taken]\nkind = \"ring\"\nsocket = \"taken.sock\"\nswitch = \"main\"\n";
    lab.write(&format!("{LOAD}[port.new]\nkind = \"null\"\nswitch = \"main\"\n{taken}"));
    let (code, words) = lab.fails(&["apply", "lab.toml"]);
    assert!(code == 1 && words.contains("another program listens"), "{words}");
    let ps = lab.json(&["ps"]);
    let names: Vec<&str> =
        ps["ports"].as_array().unwrap().iter().map(|port| port["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["load", "sink", "ring"]);
    drop(listener);
    // A file at the path that is not a socket is found before any change is made.
    std::fs::remove_file(lab.socket("taken.sock")).unwrap();
    std::fs::write(lab.socket("taken.sock"), "").unwrap();
    let (code, words) = lab.fails(&["apply", "lab.toml"]);
    assert!(code == 3 && words.contains("is there already, and is no socket"), "{words}");
    std::fs::remove_file(lab.socket("taken.sock")).unwrap();

    lab.write(LOAD);
    assert_eq!(lab.ok(&["apply", "lab.toml"]), "remove port ring\n");
    assert!(!lab.socket("ring.sock").exists());
}

#[test]
fn two_fabrics_run_side_by_side() {
    let lab = Lab::new("two", LOAD);
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab.ok(&["--fabric", "other", "up", "lab.toml", "--detach"]);
    let (code, words) = lab.fails(&["ps"]);
    assert!(code == 4 && words.contains("say which with --fabric: lab, other"), "{words}");
    assert_eq!(lab.json(&["--fabric", "other", "ps"])["fabric"]["name"], "other");
    lab.ok(&["--fabric", "lab", "down"]);
    assert_eq!(lab.json(&["ps"])["fabric"]["name"], "other");
}

#[test]
fn front_ends_connect_and_disconnect() {
    let lab = Lab::new("peers", "");
    let far = lab.folder.join("far.sock");
    lab.write(&format!(
        "[switch.main]\n[port.near]\nkind = \"vhost-user\"\nsocket = \"near.sock\"\nmode = \"0600\"\n\
         switch = \"main\"\n\
         [port.far]\nkind = \"vhost-user\"\nrole = \"client\"\nsocket = \"{}\"\nswitch = \"main\"\n",
        far.display()
    ));
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert_eq!((lab.state("near"), lab.state("far")), ("waiting".into(), "waiting".into()));
    // Server: twice, since it accepts again.
    for _ in 0..2 {
        let peer = UnixStream::connect(lab.socket("near.sock")).unwrap();
        until("near has its peer", || lab.state("near") != "waiting");
        drop(peer);
        until("near lost its peer", || lab.state("near") == "waiting");
    }
    // A front-end that sends invalid messages is disconnected, and the next one is served.
    let mut peer = UnixStream::connect(lab.socket("near.sock")).unwrap();
    peer.write_all(&[0xff; 64]).unwrap();
    // An error counts as the end.
    let _ = peer.read_to_end(&mut Vec::new());
    let ps = lab.json(&["ps"]);
    assert!(!ps["ports"][0]["reason"].as_str().unwrap().is_empty(), "{ps}");
    // Client: the port connects by itself, and reconnects after the test closed the connection.
    let listener = UnixListener::bind(&far).unwrap();
    for _ in 0..2 {
        let (peer, _) = listener.accept().unwrap();
        until("far has its peer", || lab.state("far") != "waiting");
        drop(peer);
    }
}

/// The descriptors of a process.
fn descriptors(pid: u64) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect()
}

#[test]
fn a_flood_of_reconnecting_front_ends_leaks_nothing() {
    let lab = Lab::new("flood", "");
    let ports: String = ["a", "b"]
        .map(|port| {
            format!("[port.{port}]\nkind = \"vhost-user\"\nsocket = \"{port}.sock\"\nswitch = \"main\"\n")
        })
        .concat();
    lab.write(&format!("[switch.main]\n{ports}"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let pid = |which: &str| lab.json(&["ps"])["fabric"][which].as_u64().unwrap();
    let (control, data) = (pid("pid"), pid("data_pid"));
    let held = || [control, data].map(|pid| descriptors(pid).len());
    // The other port keeps its front-end all the time.
    let _stays = UnixStream::connect(lab.socket("b.sock")).unwrap();
    until("b has its peer", || lab.state("b") != "waiting");
    // A port keeps the descriptors that its first front-end needed.
    let first = UnixStream::connect(lab.socket("a.sock")).unwrap();
    until("a has its first peer", || lab.state("a") != "waiting");
    drop(first);
    until("a lost its first peer", || lab.state("a") == "waiting");
    let before = held();
    // A fault is logged although the peer caused many other lines before it.
    for _ in 0..200 {
        drop(UnixStream::connect(lab.socket("a.sock")).unwrap());
    }
    let mut faulty = UnixStream::connect(lab.socket("a.sock")).unwrap();
    faulty.write_all(&[0xff; 64]).unwrap();
    until("the fault is logged", || lab.log().contains("the peer broke its protocol"));
    for round in 0..2000 {
        let Ok(mut peer) = UnixStream::connect(lab.socket("a.sock")) else { continue };
        // Some front-ends send a valid message, an invalid one, or half of one. The connection may be closed already.
        let _ = match round % 4 {
            0 => Ok(()),
            1 => peer.write_all(&[1_u32, 1, 0].map(u32::to_ne_bytes).concat()),
            2 => peer.write_all(&[0xff; 64]),
            _ => peer.write_all(&[2, 0, 0, 0, 1, 0, 0]),
        };
    }
    until("the last one is gone", || lab.state("a") == "waiting");
    assert_ne!(lab.state("b"), "waiting");
    until("no descriptor is left", || held().iter().zip(&before).all(|(now, before)| now <= before));
    assert_eq!((pid("data_pid"), &lab.json(&["ps"])["fabric"]["restarts"]), (data, &0.into()));
    // The log is limited to a few lines a minute, regardless of the number of front-ends.
    let lines = lab.log().lines().count();
    assert!(lines < 2000, "{lines} lines");
    let _next = UnixStream::connect(lab.socket("a.sock")).unwrap();
    until("a has its next peer", || lab.state("a") != "waiting");
}

/// The shared mappings of a process: device, inode and name.
fn shared(pid: u64) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let fields = maps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // The kernel's rings of asynchronous I/O are private to a process, although they are shared mappings.
    let is_aio = |fields: &[&str]| fields.get(5) == Some(&"/[aio]");
    let shared = fields.filter(|fields| fields[1].ends_with('s') && fields[4] != "0" && !is_aio(fields));
    shared.map(|fields| fields[3..].join(" ")).collect()
}

#[test]
fn the_data_process_is_confined_to_the_descriptors_it_was_given() {
    let lab = Lab::new("confined", LOAD);
    // The process that starts a fabric may have left a descriptor open.
    let left = File::open(lab.folder.join("lab.toml")).unwrap();
    rustix::io::fcntl_setfd(&left, rustix::io::FdFlags::empty()).unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("frames arrive", || lab.json(&["stats"])["ports"][1]["total"]["rx_frames"].as_u64().unwrap() > 0);
    let pid = |which: &str| lab.json(&["ps"])["fabric"][which].as_u64().unwrap();
    let (control, data) = (pid("pid"), pid("data_pid"));
    let mut threads = 0;
    for thread in std::fs::read_dir(format!("/proc/{data}/task")).unwrap() {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().to_string()
        };
        assert_eq!((field("Seccomp"), field("NoNewPrivs")), ("2".into(), "1".into()), "{status}");
        for capabilities in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&field(capabilities), 16), Ok(0), "{status}");
        }
        threads += 1;
    }
    assert!(threads > 1, "a worker is a thread");
    // The OOM killer prefers other processes, if CAP_SYS_RESOURCE (bit 24) allows setting that.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = own.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    if u64::from_str_radix(capabilities.trim(), 16).unwrap() & 1 << 24 != 0 {
        let score = |pid| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(score(data).trim(), "-900");
        assert_ne!(score(control).trim(), "-900", "its guests would inherit it");
    }
    // `control` and `data` share only the notice of the end of `data`, whose file is sealed: `control` reads the
    // counters from their file.
    let both: Vec<String> = shared(control).intersection(&shared(data)).cloned().collect();
    assert!(matches!(&both[..], [one] if one.contains("/memfd:ringway-end ")), "{both:?}");
    assert_eq!(shared(data).len(), 2, "the notice, and the page of counters");
    for held in descriptors(data) {
        let begins = |with: &&str| held.to_str().unwrap().starts_with(with);
        let known = ["socket:", "anon_inode:", "/memfd:", "pipe:", "/dev/null"].iter().any(begins);
        // The kernel's statistics of its workers' threads, for the watchdog, opened by `control`.
        let counted = begins(&&*format!("/proc/{data}/task/")) && held.to_str().unwrap().ends_with("stat");
        assert!(known || counted || held.ends_with("run/lab.log"), "{}", held.display());
    }
}

#[test]
fn a_killed_data_process_is_restarted() {
    let lab = Lab::new("restart", LOAD);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let data = || lab.json(&["ps"])["fabric"]["data_pid"].as_u64().unwrap();
    let received = || lab.json(&["stats"])["ports"][1]["total"]["rx_frames"].as_u64().unwrap();
    let first = data();
    until("frames arrive", || received() > 0);
    let data_process = Pid::from_raw(first.try_into().unwrap()).unwrap();
    kill_process(data_process, Signal::KILL).unwrap();
    until("another data process is there", || ![0, first].contains(&data()));
    until("the ports are up", || lab.state("sink") == "up" && lab.state("load") == "up");
    let before = received();
    until("frames arrive again", || received() > before);
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 1);
}

#[test]
fn a_fabric_that_does_not_come_up_leaves_no_folder() {
    let lab = Lab::new(
        "refused",
        "[switch.s]\n[port.a]\nkind = \"ring\"\nsocket = \"/proc/a.sock\"\nswitch = \"s\"\n",
    );
    let (code, words) = lab.fails(&["up", "lab.toml"]);
    assert!(code == 1 && words.contains("port a: /proc/a.sock: "), "{words}");
    assert!(!lab.folder.join("run/lab").exists());
}

#[test]
fn errors_of_a_fabric_file_are_reported() {
    let lab = Lab::new("check", "[port.a]\nkind = \"nul\"\nswitch = \"main\"\n");
    let (code, words) = lab.fails(&["check", "lab.toml"]);
    assert_eq!(code, 3);
    assert_eq!(
        words,
        "lab.toml:4:8: `kind` can't be \"nul\"; did you mean \"null\"?\n\
         lab.toml:5:10: there is no switch \"main\"; add [switch.main]\n"
    );
    let output = lab.run(&["check", "lab.toml", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let problems: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&problems[0]["line"], &problems[0]["column"]), (&4.into(), &8.into()));
    lab.write(LOAD);
    assert_eq!(lab.ok(&["check", "lab.toml"]), "good: fabric lab, 1 switch, 2 ports, 0 guests, 1 worker\n");
}

/// Names of a process, as `ps -o comm` and `ps -o args` show them.
fn process_names(pid: &Value) -> (String, String) {
    let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    (read("comm").trim().into(), read("cmdline").trim_end_matches('\0').replace('\0', " "))
}

#[test]
fn a_signal_to_the_keeper_or_to_control_takes_the_fabric_down() {
    for to_keeper in [true, false] {
        let lab = Lab::new("signals", "[switch.s]\n");
        lab.ok(&["up", "lab.toml", "--detach"]);
        let control = lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
        let keeper = crate::lab::api::parent(control);
        let to = if to_keeper { keeper } else { control };
        let to = rustix::process::Pid::from_raw(to.try_into().unwrap()).unwrap();
        rustix::process::kill_process(to, rustix::process::Signal::TERM).unwrap();
        let lives = |pid: u64| std::path::Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
        until("both have ended", || !lives(control) && !lives(keeper));
        assert!(lab.log().ends_with("down\n"), "{}", lab.log());
        assert!(!lab.folder.join("run/lab").exists());
    }
}

#[test]
fn processes_are_called_by_their_roles() {
    let ring = "[switch.s]\n[port.a]\nkind = \"ring\"\nsocket = \"a.sock\"\nswitch = \"s\"\n";
    let lab = Lab::new(
        "names",
        &format!("{ring}[function.mirror]\nport = \"a\"\nclick = \"FromPort(a) -> Discard;\"\n"),
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the function runs", || lab.json(&["function", "list"])[0]["state"] == "running");
    let fabric = lab.json(&["ps"]);
    let (name, arguments) = process_names(&fabric["fabric"]["pid"]);
    assert_eq!(name, "ringway up");
    assert!(
        arguments.starts_with("ringway up --detached") && arguments.ends_with("-- lab.toml"),
        "{arguments}"
    );
    let keeper = crate::lab::api::parent(fabric["fabric"]["pid"].as_u64().unwrap());
    assert_eq!(process_names(&keeper.into()).0, "ringway keeper");
    let (name, arguments) = process_names(&fabric["fabric"]["data_pid"]);
    assert_eq!((&*name, &*arguments), ("ringway data", "ringway --fabric lab data --log text"));
    let (name, arguments) = process_names(&lab.json(&["function", "list"])[0]["pid"]);
    assert_eq!((&*name, &*arguments), ("ringway mirror", "ringway --fabric lab run-function"));
    lab.ok(&["down"]);
}

#[test]
fn messages_name_the_object_and_the_remedy() {
    let ring = |name| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\nswitch = \"s\"\n");
    let ports = format!("[switch.s]\n{}{}", ring("a"), ring("b"));
    let function = "[function.nat]\nport = \"a\"\nclick = \"FromPort(a) -> Discard;\"\n";
    let lab = Lab::new("messages", &format!("{ports}{function}"));
    let fails = |words: &[&str], code, part: &str| {
        let (status, message) = lab.fails(words);
        assert!(status == code && message.contains(part), "{words:?}: {status} {message}");
    };
    fails(&["status"], 2, "error: `ringway status` is no command; `ringway ps` shows ports");
    fails(&["function", "ls"], 2, "`ringway function ls` is no command; `ringway function list`");
    fails(&["ps"], 4, "start one with `ringway up FILE --detach`");
    fails(&["--socket", ".", "ps"], 1, ". is a folder; name the socket in it: ./api.sock");
    fails(&["--socket", "lab.toml", "ps"], 1, "lab.toml is no socket; name api.sock of a run directory");
    fails(&["--fabric", "..", "ps"], 2, "use letters, digits");
    fails(&["up", "lab.toml", "--extender=010.0.0.1:80"], 2, "leave out leading zeros");
    fails(&["function", "create", "new", "--port", "b"], 2, "--config <FILE>|--click <TEXT>");
    std::fs::write(lab.folder.join("lab.json"), "{\"port\": {}}").unwrap();
    fails(&["check", "lab.json"], 3, "lab.json:1:1: this is JSON; the file is read as TOML");

    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the function runs", || lab.json(&["function", "list"])[0]["state"] == "running");
    let create = ["function", "create", "new", "--port", "b", "--click"];
    fails(&[&create[..], &[""]].concat(), 2, "a value is required for '--click <TEXT>'");
    let small = ["Idle;", "--isolation", "vm", "--memory", "16MB"];
    fails(&[&create[..], &small].concat(), 2, "16MB is out of range; use a value from 32MB to 1024GB");
    let large = ["Idle;", "--isolation", "vm", "--memory", "4GB"];
    let said = "/memory: `memory` is 4GB; use a value from 32MB to 2000MB";
    fails(&[&create[..], &large].concat(), 1, said);
    fails(&[&create[..], &["Idle;", "--fallback", "process"]].concat(), 1, "/fallback: only a function with");
    // A wrong file changes nothing, and is named.
    std::fs::write(lab.folder.join("new.click"), "Idle\n  -> Conter -> Discard;").unwrap();
    let before = lab.json(&["function", "list"]);
    fails(&["function", "update", "nat", "new.click"], 1, "new.click:2:6: ");
    assert_eq!(lab.json(&["function", "list"]), before);
    fails(&["function", "create", "new", "--port", "b", "--config", "new.click"], 1, "new.click:2:6: ");
    fails(&["function", "snapshot", "nat", ".."], 1, "\"..\" can't be a name; use letters");
    lab.ok(&["down"]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_image_of_functions_is_told_from_a_programs() {
    let ring = "[switch.s]\n[port.a]\nkind = \"ring\"\nsocket = \"a.sock\"\nswitch = \"s\"\n";
    let lab = Lab::new("image", &format!("{ring}[function.f]\nport = \"a\"\nimage = \"function.elf\"\n"));
    lab.ok(&["function", "image", "--output", "function.elf"]);
    let (code, words) = lab.fails(&["check", "lab.toml"]);
    assert!(
        code == 3 && words.contains("lab.toml:10:9: function.elf: this is the image of functions"),
        "{words}"
    );
}

#[test]
fn the_api_is_described() {
    let lab = Lab::new("openapi", "");
    let api = lab.json(&["openapi"]);
    for path in [
        "/v1/fabric",
        "/v1/ports",
        "/v1/links",
        "/v1/links/{name}",
        "/v1/stats",
        "/v1/switches/{name}/table",
        "/v1/guests",
        "/v1/shutdown",
        "/v1/place",
    ] {
        assert!(api["paths"][path].is_object(), "{path}");
    }
    assert!(api["components"]["schemas"]["PortStats"].is_object());
}
