//! Arguments of `ringway trace`.

use clap::Args;
use std::path::PathBuf;

/// Says what would become of a frame that a port's peer sends: lookup, functions, links, offloads, destinations, drops.
#[derive(Args)]
#[command(after_help = "\
FRAME is the frame's fields in the words of ovs-ofctl (`man ovs-fields`), its bytes in hexadecimal, or `-` for
standard input, which may be a capture file too. Lengths and checksums are computed. Nothing changes in the
fabric unless --inject is given. docs/trace.md describes the output.

Examples:
  ringway trace left tcp,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80
  ringway trace in_port=left,arp,arp_tpa=10.0.0.2
  ringway trace left --read left.pcapng --frame 7
  ringway trace left udp,nw_dst=10.0.0.2,len=9000 --gso-size 1472
  ringway trace left icmp,nw_dst=10.0.0.2 --inject    send it, too
  ringway trace left --live 20                        what happens to the next 20 frames")]
pub struct TraceArguments {
    /// The port that the frame enters; not needed if the frame has `in_port`.
    pub port: Option<String>,
    /// The frame.
    #[arg(value_name = "FRAME", conflicts_with_all = ["read", "live"])]
    pub description: Option<String>,
    /// Take the frame from a capture, in pcap's or pcapng's format.
    #[arg(short, long, value_name = "FILE", conflicts_with = "live")]
    pub read: Option<PathBuf>,
    /// The number of the frame in the capture; the first if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub frame: Option<u64>,
    /// Its sender leaves the checksum of TCP or UDP to the host, as guests do.
    #[arg(long, conflicts_with = "live")]
    pub checksum_offload: bool,
    /// Its sender leaves segmentation to the host: bytes of payload of a segment.
    #[arg(long, value_name = "BYTES", conflicts_with = "live",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub gso_size: Option<u16>,
    /// Send it then, as if the port's peer had sent it; it is counted.
    #[arg(long, conflicts_with = "live")]
    pub inject: bool,
    /// Show what happens to the next N frames that the port's peer sends.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "port")]
    pub live: Option<u64>,
    /// Only frames that match this expression, as `ringway capture` has it.
    #[arg(short, long, value_name = "EXPRESSION", requires = "live")]
    pub filter: Option<String>,
}
