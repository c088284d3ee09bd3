//! `ringway exec`.

use crate::values::{gateway, interface_address, name, server};
use clap::{Args, ValueEnum};
use ringway_exec::{Cidr, Limit};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// Whose TCP serves the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StackKind {
    /// Ringway's, in user space.
    #[default]
    Native,
    /// The host kernel's.
    Kernel,
    /// Linux's in user space: the program runs in User-Mode Linux over the host's files.
    Linux,
}

/// A program and its network.
#[derive(Args)]
#[command(after_help = "\
docs/exec.md says what works. The exit status and signals are the program's.

Examples:
  ringway exec --port web --address 10.0.0.2/24 -- curl http://10.0.0.1/
  ringway exec --port web --address 10.0.0.2/24 --stack kernel -- nginx -g 'daemon off;'
  ringway exec --stack linux --writable . -- sh -c 'ss -tin >sockets'
  ringway exec --cc bbr --link loss=1%,delay=100ms -- curl -o /dev/null http://example.org/
  ringway exec --port a --address fd00::2/64 --sysctl net.ipv4.tcp_rmem='4096 65536 1000000' -- iperf3 -s")]
pub struct Exec {
    /// The ring port or pipe of the running fabric, or the path of its socket; by default, a network with the host.
    /// With --stack linux also a vhost-user port, which is faster.
    #[arg(long, value_name = "PORT")]
    pub port: Option<String>,
    /// An address and the length of its prefix; may be given several times. Required with --port.
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = interface_address)]
    pub address: Vec<Cidr>,
    /// The gateway to other networks; one for each version of IP.
    #[arg(long, value_name = "ADDRESS", value_parser = gateway)]
    pub gateway: Vec<IpAddr>,
    /// A name server; may be given several times.
    #[arg(long, value_name = "ADDRESS", value_parser = server)]
    pub dns: Vec<IpAddr>,
    /// Largest IP packet in bytes.
    #[arg(long, default_value_t = 1500, value_name = "BYTES",
        value_parser = clap::value_parser!(u16).range(1280..=65_521))]
    pub mtu: u16,
    /// Its name for `ringway stack`; by default that of the port, or of the program's file.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// Whose TCP serves the program.
    #[arg(long, value_enum, default_value_t)]
    pub stack: StackKind,
    /// The congestion controller: bbr, bbr3, cubic, reno, dctcp; with the other stacks one that the kernel has.
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// A setting of the stack, with its name in sysctl; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub sysctl: Vec<String>,
    /// An emulated link to the host, in both directions; docs/link.md has the keys.
    #[arg(long, value_name = "KEY=VALUE,...", conflicts_with = "port")]
    pub link: Option<String>,
    /// Reach the host, and all that it reaches, by sockets of `ringway exec`, and not by an interface of the host,
    /// which needs root. The default for other users.
    #[arg(long, conflicts_with = "port")]
    pub user_network: bool,
    /// Let the gateway's address stand for the host's loopback interface, if the network is one by sockets of
    /// `ringway exec`: the program reaches services that only this machine reaches.
    #[arg(long, conflicts_with = "port")]
    pub host_loopback: bool,
    /// Let the user be root in the program's user namespace.
    #[arg(long)]
    pub map_root: bool,
    /// Print how each socket is served, and which options are not.
    #[arg(long)]
    pub explain: bool,
    /// With --stack native, let connections that the program uses often move to a stack within its processes.
    #[arg(long)]
    pub direct: bool,
    /// A limit of each of its processes: nofile=N, memory=BYTES of address space, cpu=SECONDS; may be given several
    /// times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = Limit::parse)]
    pub limit: Vec<Limit>,
    /// Seconds that the program may go on after SIGTERM, until it is killed.
    #[arg(long, value_name = "SECONDS")]
    pub kill_after: Option<u16>,
    /// With --stack linux, a folder that the program may write to; its other files are read-only, and /tmp is its
    /// own. May be given several times.
    #[arg(long, value_name = "FOLDER")]
    pub writable: Vec<PathBuf>,
    /// With --stack linux, the User-Mode Linux to run.
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// With --stack linux, the memory of kernel and program.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=65_536))]
    pub memory: Option<u32>,
    /// The name of the program of a fabric that this is, which ends when its control process does.
    #[arg(long, hide = true, value_name = "NAME")]
    pub supervised: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}
