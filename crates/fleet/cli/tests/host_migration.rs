//! `ringway guest migrate --to ssh://HOST`: two hosts, which are network namespaces with an SSH server each, run
//! directories of their own, and nothing else in common; the commands of docs/migration.md.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::guest_migration::blocks;
use crate::lab::net::{namespace6, within};
use crate::lab::{Lab, Running, until};
use ringway_linux_guests::image;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The host where the guest starts, and the other one: the fabric's name, and the addresses in the network of hosts.
const HOSTS: [(&str, &str); 2] = [("lab", "192.0.2.1"), ("other", "192.0.2.2")];

/// A host.
struct Host {
    fabric: &'static str,
    namespace: String,
    /// Its programs and its run directory.
    folder: PathBuf,
    _namespace: Running,
    sshd: Option<Running>,
}

impl Host {
    /// A command in this host.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace)).args(["--", program]);
        let path = format!("{}:{}", self.folder.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("RINGWAY_RUN", self.folder.join("run")).env_remove("RINGWAY_LOG");
        command.current_dir(&self.folder);
        command
    }

    fn ringway(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_ringway"));
        command.args(words);
        command
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.ringway(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}{}", text(&output.stderr), self.log());
        text(&output.stdout)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join(format!("run/{}.log", self.fabric))).unwrap_or_default()
    }

    fn state(&self) -> String {
        let list: serde_json::Value = serde_json::from_str(&self.ok(&["guest", "list", "--json"])).unwrap();
        list[0]["state"].as_str().unwrap().into()
    }

    fn control(&self) -> Pid {
        let ps: serde_json::Value = serde_json::from_str(&self.ok(&["ps", "--json"])).unwrap();
        Pid::from_raw(ps["fabric"]["pid"].as_i64().unwrap() as i32).unwrap()
    }

    /// The processes of ssh's server that serve somebody.
    fn served(&self) -> Vec<Pid> {
        let sshd = self.sshd.as_ref().unwrap().0.id().to_string();
        let children = format!("/proc/{sshd}/task/{sshd}/children");
        let children = fs::read_to_string(children).unwrap();
        children.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The two hosts.
struct Hosts {
    hosts: [Host; 2],
    /// Removes the folders at the end.
    lab: Lab,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.hosts {
            // It may not be up.
            let _ = host.ringway(&["down"]).output();
        }
    }
}

impl Hosts {
    /// `None` if this machine lacks what they need.
    fn new(name: &str) -> Option<Hosts> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: network namespaces need root");
            return None;
        }
        for program in ["qemu-system-x86_64", "ssh", "sshd", "ssh-keygen"] {
            if image::program(program).is_none() {
                eprintln!("left out: there is no {program}");
                return None;
            }
        }
        // The hosts have no network from which a kernel could be fetched.
        if let Err(error) = image::qemu(&[]) {
            eprintln!("left out: {error}");
            return None;
        }
        let lab = Lab::new(name, "");
        let hosts = HOSTS.map(|(fabric, _)| {
            let (process, namespace) = namespace6();
            let folder = lab.folder.join(fabric);
            fs::create_dir(&folder).unwrap();
            Host { fabric, namespace, folder, _namespace: process, sshd: None }
        });
        let mut hosts = Hosts { hosts, lab };
        hosts.wire();
        for host in 0..2 {
            hosts.serve_ssh(host);
        }
        Some(hosts)
    }

    /// Connects the hosts by a cable.
    fn wire(&self) {
        let [left, right] = self.hosts.each_ref().map(|host| &host.namespace);
        let peer = right.split('/').nth(2).unwrap();
        within(left, &format!("ip link add cable type veth peer name cable netns {peer}"));
        for (host, (_, address)) in self.hosts.iter().zip(HOSTS) {
            let script =
                format!("ip address add {address}/24 dev cable; ip link set cable up; ip link set lo up");
            within(&host.namespace, &script);
        }
    }

    /// Starts ssh's server at a host, which lets the other one bring guests, as the page says; and gives the other one
    /// an `ssh` that uses a configuration of its own instead of the user's.
    fn serve_ssh(&mut self, at: usize) {
        let (_, address) = HOSTS[at];
        let (folder, fabric) = (self.hosts[at].folder.clone(), self.hosts[at].fabric);
        let there = self.hosts[1 - at].folder.clone();
        keygen(&folder.join("host_key"));
        keygen(&there.join("key"));
        let line = block("authorized_keys", fabric);
        let program =
            format!("RINGWAY_RUN={} {}", folder.join("run").display(), env!("CARGO_BIN_EXE_ringway"));
        let line = line.replacen("ringway", &program, 1);
        let (options, _) = line.split_once(" ssh-ed25519").unwrap();
        write(&folder.join("authorized"), &format!("{options} {}", public(&there.join("key"))));
        let settings = format!(
            "ListenAddress {address}\nHostKey {0}/host_key\nAuthorizedKeysFile {0}/authorized\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n",
            folder.display()
        );
        write(&folder.join("sshd_config"), &settings);
        // Privileges are separated in this folder.
        let _ = fs::create_dir("/run/sshd");
        let sshd = image::program("sshd").unwrap();
        let mut server = self.hosts[at].command(sshd.to_str().unwrap());
        server.args(["-D", "-e", "-f"]).arg(folder.join("sshd_config"));
        server.stderr(fs::File::create(folder.join("sshd.log")).unwrap());
        self.hosts[at].sshd = Some(Running(server.spawn().unwrap()));
        until("ssh's server listens", || {
            fs::read_to_string(folder.join("sshd.log")).unwrap().contains("listening on")
        });
        write(&there.join("known"), &format!("{address} {}", public(&folder.join("host_key"))));
        let settings = format!(
            "Host host{}\n HostName {address}\n User root\n IdentityFile {1}/key\n IdentitiesOnly yes\n \
             UserKnownHostsFile {1}/known\n GlobalKnownHostsFile none\n",
            at + 1,
            there.display()
        );
        write(&there.join("ssh_config"), &settings);
        let ssh = image::program("ssh").unwrap();
        let script = format!("#!/bin/sh\nexec {} -F {}/ssh_config \"$@\"\n", ssh.display(), there.display());
        write(&there.join("ssh"), &script);
        fs::set_permissions(there.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Brings the page's fabrics up, with the ends of their tunnel in the network of hosts, and marks the guest.
    fn up(&self) {
        let files = blocks("toml");
        for (at, host) in self.hosts.iter().enumerate() {
            let [local, peer] = [HOSTS[at].1, HOSTS[1 - at].1];
            let text = files[at]
                .replace("local = \"127.0.0.1\"", &format!("local = \"{local}\""))
                .replace("peer = \"127.0.0.1\"", &format!("peer = \"{peer}\""));
            assert!(text.contains(local) && text.contains(peer), "{text}");
            write(&host.folder.join("fabric.toml"), &text);
            host.ok(&["up", "fabric.toml", "--detach"]);
        }
        self.hosts[0].ok(&["guest", "wait"]);
        self.hosts[0].ok(&["guest", "exec", "vm", "echo marked >/tmp/mark"]);
    }

    /// The guest runs here and nowhere else.
    fn runs_only(&self, at: usize) {
        until("it runs here", || self.hosts[at].state() == "running");
        until("it has ended elsewhere", || self.hosts[1 - at].state() == "stopped");
        assert_eq!(self.hosts[at].ok(&["guest", "exec", "vm", "cat /tmp/mark"]).trim(), "marked");
    }

    fn migrate(&self, at: usize, more: &[&str]) -> Child {
        let to = ["ssh://host2/other", "ssh://host1/lab"][at];
        let mut command = self.hosts[at].ringway(&["guest", "migrate", "vm", "--to", to]);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Begins to migrate it slowly to the other host, and waits until memory is copied.
    fn copies(&self) -> Child {
        let mut child = self.migrate(0, &["--bandwidth", "1"]);
        until("memory is copied", || {
            let shown = self.hosts[0].ringway(&["ps", "--json"]).output().unwrap();
            assert_eq!(child.try_wait().unwrap(), None, "it ended: {}", text(&shown.stdout));
            self.hosts[1].state() == "arriving" && self.hosts[1].served().len() >= 2
        });
        child
    }

    /// The message of a migration that fails before anything changes.
    fn refused(&self) -> String {
        let Output { status, stderr, .. } = self.migrate(0, &[]).wait_with_output().unwrap();
        let why = text(&stderr);
        assert!(status.code() == Some(1) && why.contains("guest vm runs on as before"), "{why}");
        self.runs_only(0);
        why
    }
}

/// The page's line about `fabric`'s key, in a block of `language`.
fn block(language: &str, fabric: &str) -> String {
    blocks(language).concat().trim().replace("other", fabric)
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

fn keygen(path: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    assert!(made.unwrap().success());
}

fn public(key: &Path) -> String {
    fs::read_to_string(key.with_extension("pub")).unwrap()
}

#[test]
fn a_guest_moves_to_another_host_and_back() {
    let Some(hosts) = Hosts::new("two-hosts") else { return };
    hosts.up();
    // A key that nobody has let in, and a host that is another one.
    let [authorized, known] = [hosts.hosts[1].folder.join("authorized"), hosts.hosts[0].folder.join("known")];
    for (file, said) in [(&authorized, "Permission denied"), (&known, "Host key verification failed")] {
        let right = fs::read_to_string(file).unwrap();
        write(file, "");
        let why = hosts.refused();
        assert!(why.contains("no fabric answers on ssh://host2/other") && why.contains(said), "{why}");
        write(file, &right);
    }
    // The page's commands, there and back.
    for (at, line) in blocks("bash").concat().lines().enumerate() {
        let words: Vec<&str> = line.strip_prefix("ringway ").unwrap().split(' ').collect();
        let said = hosts.hosts[at].ok(&words);
        assert!(said.contains("guest vm runs in the fabric of ssh://host"), "{said}");
        hosts.runs_only(1 - at);
    }
    hosts.runs_only(0);
    assert!(hosts.lab.folder.exists());
    // The key is for guests that arrive, and for nothing else.
    let mut ssh = hosts.hosts[0].command("ssh");
    let output = ssh.args(["host2", "ringway", "down"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&output.stdout), "ringway guest receive 1\n");
    assert_eq!(hosts.hosts[1].state(), "stopped", "the fabric is up");
}

#[test]
fn a_guest_runs_on_if_the_other_host_is_gone() {
    let Some(hosts) = Hosts::new("host-gone") else { return };
    hosts.up();
    // The other host's operator gives it up first.
    let child = hosts.migrate(0, &["--bandwidth", "1"]);
    until("it arrives", || hosts.hosts[1].state() == "arriving");
    let said = hosts.hosts[1].ok(&["guest", "migrate", "vm", "--cancel"]);
    assert_eq!(said, "cancelled: guest vm does not arrive\n");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(1));
    hosts.runs_only(0);
    let child = hosts.copies();
    let served = hosts.hosts[1].served();
    for process in served {
        // One may end by itself.
        let _ = kill_process(process, Signal::KILL);
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("guest vm was not migrated"), "{}", text(&output.stderr));
    hosts.runs_only(0);
    // Nothing is left there, and it may come again.
    until("nobody is served", || hosts.hosts[1].served().is_empty());
    let again = hosts.migrate(0, &[]).wait_with_output().unwrap();
    assert!(again.status.success(), "{}{}", text(&again.stderr), hosts.hosts[1].log());
    hosts.runs_only(1);
}

#[test]
fn a_guest_stays_if_it_is_cancelled_or_a_control_process_is_killed() {
    let Some(hosts) = Hosts::new("host-kills") else { return };
    hosts.up();
    let child = hosts.copies();
    let said = hosts.hosts[0].ok(&["guest", "migrate", "vm", "--cancel"]);
    assert_eq!(said, "cancelled: guest vm runs on here\n");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(1));
    hosts.runs_only(0);
    // It is known where it runs.
    for end in ["source", "destination"] {
        let output = hosts.hosts[0].ringway(&["guest", "migrate", "vm", "--resolve", end]).output().unwrap();
        let why = text(&output.stderr);
        assert!(output.status.code() == Some(1) && why.contains("nobody has to decide"), "{why}");
    }
    // The source's, then the destination's, which goes on as the same fabric.
    for host in &hosts.hosts {
        until("nobody is served", || hosts.hosts[1].served().is_empty());
        let child = hosts.copies();
        let killed = host.control();
        kill_process(killed, Signal::KILL).unwrap();
        assert!(!child.wait_with_output().unwrap().status.success());
        hosts.runs_only(0);
        assert_ne!(host.control(), killed);
    }
    until("nobody is served", || hosts.hosts[1].served().is_empty());
    let again = hosts.migrate(0, &[]).wait_with_output().unwrap();
    assert!(again.status.success(), "{}{}", text(&again.stderr), hosts.hosts[1].log());
    hosts.runs_only(1);
}
