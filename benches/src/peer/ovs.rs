//! Open vSwitch with its DPDK data path (Debian's openvswitch-switch-dpdk), with a separate database and daemon.

use super::{Peer, finish, program};
use crate::{Failure, huge};
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Huge pages of 2 MB used by the daemon.
const PAGES: u64 = 256;
/// Time limit for the start, and for each tool.
const START: Duration = Duration::from_secs(60);
const TOOL: Duration = Duration::from_secs(20);
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const BRIDGE: &str = "bench";

/// A running daemon with one bridge, stopped (SIGSTOP) while the other side is measured.
pub struct Ovs {
    folder: PathBuf,
    children: Vec<Child>,
}

impl Ovs {
    /// Starts it in `folder` with a vhost-user port for each name, forwarding on `core`; its other threads are on the
    /// other core.
    pub fn start(folder: &Path, ports: &[String], core: usize) -> Result<Ovs, Failure> {
        if !Path::new(DAEMON).is_file() {
            return Err("openvswitch-switch-dpdk is not installed".into());
        }
        if huge::free() < PAGES {
            return Err(format!("Open vSwitch needs {PAGES} free huge pages of 2 MB; run as root").into());
        }
        let folder = folder.join("ovs");
        std::fs::create_dir_all(&folder)?;
        let mut ovs = Ovs { folder, children: Vec::new() };
        let (database, socket) = (ovs.path("conf.db"), ovs.path("db.sock"));
        ovs.tool("ovsdb-tool", &["create", &database, SCHEMA], TOOL)?;
        ovs.spawn(
            &program("ovsdb-server")?,
            &[&database, &format!("--remote=punix:{socket}"), "--no-chdir"],
        )?;
        let end = Instant::now() + TOOL;
        while !Path::new(&socket).exists() {
            if Instant::now() > end {
                return Err("ovsdb-server does not start".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let settings = [
            "other_config:dpdk-init=true".to_string(),
            "other_config:dpdk-socket-mem=512".into(),
            format!("other_config:pmd-cpu-mask={:#x}", 1 << core),
            format!("other_config:dpdk-lcore-mask={:#x}", 1 << (1 - core)),
            "other_config:dpdk-extra=--no-pci --no-telemetry --in-memory".into(),
        ];
        let set: Vec<&str> = ["--no-wait", "--", "init", "--", "set", "Open_vSwitch", "."]
            .into_iter()
            .chain(settings.iter().map(String::as_str))
            .collect();
        ovs.vsctl(&set)?;
        ovs.spawn(Path::new(DAEMON), &[&format!("unix:{socket}"), "--no-chdir"])?;
        ovs.vsctl(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
        let add = |port: &'_ String| {
            ["--", "add-port", BRIDGE, port, "--", "set", "Interface", port, "type=dpdkvhostuser"]
                .map(String::from)
        };
        let add: Vec<String> = ports.iter().flat_map(add).collect();
        ovs.vsctl(&add.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(ovs)
    }

    /// The socket of a port.
    pub fn socket(&self, port: &str) -> PathBuf {
        self.folder.join(port)
    }

    /// Replaces all of the bridge's OpenFlow rules; port numbers begin at 1.
    pub fn set_rules(&self, rules: &[&str]) -> Result<(), Failure> {
        let bridge = format!("unix:{}", self.path(&format!("{BRIDGE}.mgmt")));
        self.tool("ovs-ofctl", &["del-flows", &bridge], TOOL)?;
        rules.iter().try_for_each(|rule| self.tool("ovs-ofctl", &["add-flow", &bridge, rule], TOOL))
    }

    /// Replaces all of the bridge's OpenFlow rules by those of a text, one a line.
    pub fn set_flows(&self, rules: &str) -> Result<(), Failure> {
        let (bridge, file) = (format!("unix:{}", self.path(&format!("{BRIDGE}.mgmt"))), self.path("flows"));
        std::fs::write(&file, rules)?;
        self.tool("ovs-ofctl", &["replace-flows", &bridge, &file], START)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn vsctl(&self, arguments: &[&str]) -> Result<(), Failure> {
        let database = format!("--db=unix:{}", self.path("db.sock"));
        let arguments: Vec<&str> =
            std::iter::once(database.as_str()).chain(arguments.iter().copied()).collect();
        self.tool("ovs-vsctl", &arguments, START).map_err(|error| format!("{error}; {}", self.last()).into())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null());
        for folder in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(folder, &self.folder);
        }
        command
    }

    fn tool(&self, name: &str, arguments: &[&str], limit: Duration) -> Result<(), Failure> {
        let mut command = self.command(&program(name)?);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = finish(command.spawn()?, limit).map_err(|error| format!("{name}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
    }

    fn spawn(&mut self, program: &Path, arguments: &[&str]) -> Result<(), Failure> {
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = self.command(program);
        command.args(arguments).stdout(log.try_clone()?).stderr(log);
        self.children.push(command.spawn()?);
        Ok(())
    }

    /// The last warnings and errors of its log.
    fn last(&self) -> String {
        let text = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines = text
            .lines()
            .filter(|line| ["|ERR|", "|WARN|", "|EMER|"].iter().any(|level| line.contains(level)));
        let mut last: Vec<&str> = lines.rev().take(3).collect();
        last.reverse();
        last.join(" / ")
    }
}

impl Peer for Ovs {
    fn run(&self, on: bool) -> Result<(), Failure> {
        let signal = if on { Signal::CONT } else { Signal::STOP };
        self.children.iter().try_for_each(|child| super::signal(child, signal))
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // The process may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
