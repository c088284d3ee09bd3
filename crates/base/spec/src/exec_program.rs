//! Unmodified programs with a network of their own, as `ringway exec` runs them.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// A program that the fabric starts on a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecProgram {
    /// The name.
    pub name: String,
    /// The program's file and its arguments; at least the file.
    pub command: Vec<String>,
    /// Its port.
    pub port: String,
    /// Its addresses, at least one.
    pub addresses: Vec<IpNet>,
    /// Gateways to other networks.
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Whose TCP serves it.
    pub stack: ProgramStack,
    /// Whether connections may move to a stack within its processes.
    #[serde(default)]
    pub direct: bool,
    /// Folders that it may write to, in a guest.
    pub writable: Vec<PathBuf>,
    /// The congestion controller, if it is not the default.
    pub cc: Option<String>,
    /// Settings of its network: names as of sysctl, and values.
    pub sysctls: Vec<(String, String)>,
    /// The user whose rights it has, if not those of the fabric.
    pub user: Option<String>,
    /// Its working directory; the folder of the fabric file if none.
    pub folder: Option<PathBuf>,
    /// Variables of its environment, in addition to the fabric's.
    pub environment: Vec<(String, String)>,
    /// Whether it is started again when it has ended.
    pub restart: Restart,
    /// Limits of each of its processes: open descriptors.
    pub nofile: Option<u64>,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Seconds of processor time.
    pub cpu: Option<u64>,
    /// Whether it is started with the fabric.
    pub start: bool,
}

/// Whose TCP serves a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramStack {
    /// Ringway's.
    #[default]
    Native,
    /// The host kernel's.
    Kernel,
    /// That of a guest in which the program runs, of User-Mode Linux.
    Linux,
}

impl ProgramStack {
    /// The words of the file.
    pub const ALL: &[(&str, ProgramStack)] =
        &[("native", ProgramStack::Native), ("kernel", ProgramStack::Kernel), ("linux", ProgramStack::Linux)];

    /// Its word.
    pub fn word(self) -> &'static str {
        ProgramStack::ALL.iter().find(|(_, stack)| *stack == self).map_or("", |(word, _)| word)
    }
}

/// Whether a program that has ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Never.
    Never,
    /// If it has failed: by its exit status, or by a signal.
    #[default]
    OnFailure,
    /// Always.
    Always,
}

impl Restart {
    /// The words of the file.
    pub const ALL: &[(&str, Restart)] =
        &[("never", Restart::Never), ("on-failure", Restart::OnFailure), ("always", Restart::Always)];

    /// Its word.
    pub fn word(self) -> &'static str {
        Restart::ALL.iter().find(|(_, restart)| *restart == self).map_or("", |(word, _)| word)
    }
}
