//! A running `ringway`.
use crate::eventually;
use ringway_linux_guests::{Attachment, Guest, Interface, Runner, Spec, image};
use rustix::process::Pid;
use serde_json::Value;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Time limit for a guest's boot on a loaded machine.
pub const BOOT: Duration = Duration::from_secs(120);

/// Whether User-Mode Linux is installed; not every distribution offers it.
pub fn has_uml() -> bool {
    image::program("linux.uml").is_some()
}

/// The kind of the peer guest in tests of another guest: the most lightweight one.
pub fn second() -> Runner {
    if has_uml() { Runner::Uml } else { Runner::Qemu }
}

/// The release program, built by `cargo build --release -p ringway-cli`.
pub fn program() -> PathBuf {
    let me = std::env::current_exe().unwrap_or_default();
    let beside = |folder: &Path| folder.join("ringway");
    let folders = me.ancestors().skip(1).take(2);
    folders.map(beside).find(|path| path.is_file()).unwrap_or_else(|| "ringway".into())
}

/// A vhost-user port on the switch `main`, with its socket `NAME.sock` and more keys.
pub fn port(name: &str, more: &str) -> String {
    // A test's guest runs as a separate user unknown to the fabric.
    listed(name, &format!("socket = \"{name}.sock\"\nmode = \"0666\"\n{more}"))
}

/// A vhost-user port that connects to the front-end that listens on `socket`.
pub fn connecting_port(name: &str, socket: &Path, more: &str) -> String {
    listed(name, &format!("socket = \"{}\"\nrole = \"client\"\n{more}", socket.display()))
}

fn listed(name: &str, keys: &str) -> String {
    format!("[port.{name}]\nkind = \"vhost-user\"\nswitch = \"main\"\n{keys}\n")
}

/// A fabric running in a separate folder, ended when dropped.
pub struct Fabric {
    child: Child,
    name: String,
    folder: PathBuf,
}

impl Fabric {
    /// Starts the fabric `name` from `text`, and waits until it answers.
    pub fn up(folder: &Path, name: &str, text: &str) -> io::Result<Fabric> {
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, format!("[fabric]\nname = \"{name}\"\n{text}"))?;
        let log = File::options().create(true).append(true).open(folder.join(format!("{name}.log")))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(program()).arg("up").arg(&file);
        command.env("RINGWAY_RUN", folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut fabric =
            Fabric { child: command.spawn()?, name: name.to_string(), folder: folder.to_path_buf() };
        let mut ended = false;
        let up = eventually(Duration::from_secs(20), || {
            ended = fabric.child.try_wait().is_ok_and(|status| status.is_some());
            ended || fabric.ask(&["ps", "--json"]).is_ok()
        });
        if up && !ended {
            return Ok(fabric);
        }
        let log = std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
        Err(io::Error::other(format!("fabric {name} does not come up:\n{log}")))
    }

    /// The process of `control`.
    pub fn process(&self) -> u32 {
        let ps = self.ask(&["ps", "--json"]).ok();
        ps.and_then(|ps| u32::try_from(ps["fabric"]["pid"].as_u64()?).ok()).unwrap_or_default()
    }

    /// A socket of one of its ports.
    pub fn socket(&self, file: &str) -> PathBuf {
        self.folder.join(&self.name).join(file)
    }

    /// The JSON output of a `ringway` command for this fabric.
    pub fn ask(&self, words: &[&str]) -> io::Result<Value> {
        serde_json::from_slice(&self.tell(words)?).map_err(io::Error::other)
    }

    /// The output of a `ringway` command for this fabric.
    pub fn tell(&self, words: &[&str]) -> io::Result<Vec<u8>> {
        let mut command = Command::new(program());
        command
            .args(["--fabric", &self.name])
            .args(words)
            .env("RINGWAY_RUN", &self.folder)
            .stdin(Stdio::null());
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(output.stdout)
    }

    /// Kills the fabric, like a crash.
    pub fn crash(mut self) {
        let control = i32::try_from(self.process()).ok().and_then(Pid::from_raw);
        // The processes may have ended already. The keeper would start another `control`.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(control) = control {
            let _ = rustix::process::kill_process(control, rustix::process::Signal::KILL);
        }
    }

    /// Kills its data process, and waits until another one is there.
    pub fn kill_data(&self) {
        let data = || {
            let ps = self.ask(&["ps", "--json"]).ok()?;
            Pid::from_raw(i32::try_from(ps["fabric"]["data_pid"].as_i64()?).ok()?)
        };
        let Some(pid) = data() else { return };
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        let is_there = eventually(BOOT, || data().is_some_and(|new| new != pid));
        assert!(is_there, "no other data process");
    }

    /// A counter of port `name`, summed over its queues.
    pub fn counted(&self, name: &str, counter: &str) -> io::Result<u64> {
        let stats = self.ask(&["stats", "--json"])?;
        let port = stats["ports"].as_array().and_then(|all| all.iter().find(|port| port["name"] == name));
        let value = port.and_then(|port| port["total"][counter].as_u64());
        value.ok_or_else(|| io::Error::other(format!("port {name} has no {counter}")))
    }

    /// Starts a guest on port `port` and waits until it is ready.
    pub fn guest(&self, kind: Runner, port: &str, host: u8, options: &[&str]) -> Guest {
        self.guest_with(kind, port, host, |spec| {
            spec.interfaces[0].options = options.iter().map(ToString::to_string).collect();
        })
    }

    /// As [`Fabric::guest`], with changes to the guest's description.
    pub fn guest_with(&self, kind: Runner, port: &str, host: u8, change: impl FnOnce(&mut Spec)) -> Guest {
        let attachment =
            Attachment::VhostUser { socket: self.socket(&format!("{port}.sock")), listen: false };
        let address = Some(format!("10.99.0.{host}/24"));
        // With a fixed MAC address, neighbours reach the next guest with this IP address at once.
        let mac = Some(format!("02:00:00:00:00:{host:02x}"));
        let interface = Interface { address, mac, ..Interface::new(attachment) };
        let mut spec = Spec::new(port, kind, vec![interface]);
        change(&mut spec);
        start(spec, &self.folder.join(format!("guest-{port}")))
    }
}

/// Starts a guest and waits until it is ready; a test can't continue without it.
#[allow(clippy::panic)]
pub fn start(spec: Spec, folder: &Path) -> Guest {
    let ready = Guest::start(spec, folder).and_then(|guest| guest.ready(BOOT).map(|()| guest));
    ready.unwrap_or_else(|error| {
        let console = std::fs::read_to_string(folder.join("console.log")).unwrap_or_default();
        let last: Vec<&str> = console.lines().rev().take(15).collect();
        panic!("{error}\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
    })
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        if !ended(&mut self.child) {
            // Success is checked below.
            let _ = Command::new(program())
                .args(["--fabric", &self.name, "down"])
                .env("RINGWAY_RUN", &self.folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            eventually(Duration::from_secs(5), || ended(&mut self.child));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
