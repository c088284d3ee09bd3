//! Arguments of `ringway capture`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Captures frames of ports.
#[derive(Args)]
#[command(after_help = "\
`In` is what a port's peer sends, `Out` what it receives. Times are UTC. docs/capture.md describes
expressions, which are tcpdump's, files, and what a capture costs.

Examples:
  ringway capture left                          a line a frame
  ringway capture left right tcp port 80
  ringway capture left -w left.pcapng
  ringway capture left -w - | tcpdump -r -
  ringway capture left --only-drops             dropped frames, each with its reason
  ringway capture left -w last.pcapng --ring 64 keep the last 64 MB, write them at Ctrl-C
  ringway capture left --interface mon0         for programs that capture from interfaces, as root
  ringway capture --install-extcap              let Wireshark list ports")]
pub struct CaptureArguments {
    /// Ports, then an expression.
    #[arg(value_name = "PORT... [EXPRESSION]")]
    pub words: Vec<String>,
    /// The expression, if one of its words is also a port.
    #[arg(short, long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Write pcapng to a file, or to standard output (`-`).
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Send the copies through a TAP interface, which lasts as long as the capture.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["write", "ring"])]
    pub interface: Option<String>,
    /// Copy so many bytes of a frame at most; 0 for all.
    #[arg(short, long, value_name = "BYTES", default_value_t = 0)]
    pub snaplen: u32,
    /// End after so many frames.
    #[arg(short, long, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Keep the last so many MB in memory, and write them at the end.
    #[arg(long, value_name = "MB", requires = "write",
        value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub ring: Option<u64>,
    /// Dropped frames too, each with its reason.
    #[arg(long)]
    pub drops: bool,
    /// Only dropped frames.
    #[arg(long, conflicts_with = "direction")]
    pub only_drops: bool,
    /// What the ports' peers send, what they receive, or both.
    #[arg(long, value_enum, default_value_t)]
    pub direction: CaptureDirection,
    /// Memory for copies that are not written yet.
    #[arg(long, value_name = "MB", default_value_t = crate::capture::BUFFER_MB,
        value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub buffer: u64,
    /// Write the statistics of each port also at the beginning, and whenever frames were missed.
    #[arg(long, requires = "write", conflicts_with = "ring")]
    pub statistics: bool,
    /// Say nothing about the capture itself.
    #[arg(short, long)]
    pub quiet: bool,
    /// Add ports to the interfaces that Wireshark lists for this user.
    #[arg(long, exclusive = true)]
    pub install_extcap: bool,
    /// Wireshark's protocol.
    #[command(flatten)]
    pub extcap: Extcap,
}

/// Directions, from the fabric's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CaptureDirection {
    /// What a port's peer sends.
    In,
    /// What it receives.
    Out,
    /// Both.
    #[default]
    Both,
}

/// Options by which Wireshark calls a program that captures.
#[derive(Args, Default)]
pub struct Extcap {
    /// List interfaces.
    #[arg(long, hide = true)]
    pub extcap_interfaces: bool,
    /// Wireshark's version.
    #[arg(long, hide = true, value_name = "VERSION")]
    pub extcap_version: Option<String>,
    /// The interface.
    #[arg(long, hide = true, value_name = "INTERFACE")]
    pub extcap_interface: Option<String>,
    /// List link types.
    #[arg(long, hide = true)]
    pub extcap_dlts: bool,
    /// List options.
    #[arg(long, hide = true)]
    pub extcap_config: bool,
    /// The expression.
    #[arg(long, hide = true, value_name = "EXPRESSION")]
    pub extcap_capture_filter: Option<String>,
    /// Capture.
    #[arg(long, hide = true)]
    pub capture: bool,
    /// Where packets are written.
    #[arg(long, hide = true, value_name = "PATH")]
    pub fifo: Option<PathBuf>,
}
