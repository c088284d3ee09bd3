//! Arguments of `ringway pktgen`.

use crate::values::whole;
use clap::{Args, Subcommand};
use ringway_pktgen::rfc2544::SIZES;
use ringway_pktgen::{Flows, Rate, ShapeError, Sizes, Vary};
use ringway_spec::MacAddress;
use ringway_spec::file::units;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// What to do.
#[derive(Subcommand)]
pub enum PktgenCommand {
    /// Send numbered frames with a payload that `rx` checks.
    #[command(after_help = "\
A frame is Ethernet, IPv4 and UDP; its size is without FCS. The command fails if it can't keep its rate.

Examples:
  ringway pktgen tx a --to 02:00:00:00:00:02
  ringway pktgen tx a --rate 2Mpps --size 128 --duration 10s
  ringway pktgen tx a --rate 1gbit --size imix --flows 1000 --vary from-ip,to-port
  ringway pktgen tx a --count 1000 --vlan 7 --json")]
    Tx(Tx),
    /// Receive, and count frames that came, and those lost, reordered, duplicated or corrupted.
    #[command(after_help = "\
Loss is counted from the first frame that comes. Latency is that of a sender on this host.

Examples:
  ringway pktgen rx b
  ringway pktgen rx b --count 1000000 --json
  ringway pktgen rx b --idle 2s          ends when the sender has ended")]
    Rx(Rx),
    /// Send a frame, wait for its return, send the next; show round-trip times.
    #[command(after_help = "\
Examples:
  ringway pktgen ping a --count 10000
  ringway pktgen ping a --rate 100pps --duration 10s --spin 50us --json")]
    Ping(Ping),
    /// Send every frame back to its sender.
    #[command(after_help = "\
Examples:
  ringway pktgen pong b
  ringway pktgen pong b --spin 50us")]
    Pong(Pong),
    /// Measure what is between two ports by RFC 2544: throughput, latency, back-to-back frames.
    #[command(after_help = "\
Frames go from the first port to the second. Sizes are with FCS, as in RFC 2544. A rate that the generator
missed is no result: then the command fails, and says at which rate. docs/pktgen.md explains the result.

Examples:
  ringway pktgen rfc2544 a b
  ringway pktgen rfc2544 a b --sizes 64,1518 --trial 10s --svg result.svg
  ringway pktgen rfc2544 a b --max-rate 1Mpps --burst 0 --json > result.json")]
    Rfc2544(Rfc2544),
}

/// A port of the running fabric.
#[derive(Args)]
pub struct At {
    /// The ring port, or the path of its socket; in a guest, the folder of the PCI device.
    pub port: String,
    /// Slots of each ring, a power of two from 64 to 4096; 0: the port's own choice.
    #[arg(long, default_value_t = 0, value_name = "SLOTS", value_parser = whole::<u32>)]
    pub slots: u32,
    /// How long to poll before sleeping, such as 50us; polling takes a core.
    #[arg(long, default_value = "0us", value_name = "TIME", value_parser = time)]
    pub spin: u64,
}

/// The frames' headers.
#[derive(Args)]
pub struct Headers {
    /// Destination MAC address.
    #[arg(long, value_name = "MAC")]
    pub to: Option<MacAddress>,
    /// Source MAC address.
    #[arg(long, default_value = "02:00:00:00:00:01", value_name = "MAC")]
    pub from: MacAddress,
    /// VLAN.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Destination IP address.
    #[arg(long, default_value = "198.19.0.1", value_name = "ADDRESS")]
    pub to_ip: Ipv4Addr,
    /// Source IP address.
    #[arg(long, default_value = "198.18.0.1", value_name = "ADDRESS")]
    pub from_ip: Ipv4Addr,
    /// Destination port of UDP.
    #[arg(long, default_value_t = 9, value_name = "PORT")]
    pub to_port: u16,
    /// Source port of UDP.
    #[arg(long, default_value_t = 49_152, value_name = "PORT")]
    pub from_port: u16,
    /// Number of flows; frames go round.
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub flows: u32,
    /// Fields that grow by one from flow to flow: from, to, from-ip, to-ip, from-port, to-port, vlan.
    #[arg(long, default_value = "from-port", value_name = "FIELD,...", value_delimiter = ',',
        value_parser = vary)]
    pub vary: Vec<Vary>,
}

impl Headers {
    /// The flows; to `other` if no destination was given.
    pub fn flows(&self, other: MacAddress) -> Flows {
        Flows {
            to: self.to.unwrap_or(other),
            from: self.from,
            vlan: self.vlan,
            from_ip: self.from_ip,
            to_ip: self.to_ip,
            from_port: self.from_port,
            to_port: self.to_port,
            count: self.flows,
            vary: self.vary.clone(),
        }
    }
}

/// When to end.
#[derive(Args)]
pub struct Until {
    /// End after so many frames.
    #[arg(long, short, value_name = "FRAMES", value_parser = whole::<u64>)]
    pub count: Option<u64>,
    /// End after this time, such as 10s.
    #[arg(long, short, value_name = "TIME", value_parser = time)]
    pub duration: Option<u64>,
}

/// What `tx` sends.
#[derive(Args)]
pub struct Tx {
    /// Where.
    #[command(flatten)]
    pub at: At,
    /// Bytes of a frame, without FCS, or imix: 60, 590 and 1514 bytes as 7 to 4 to 1.
    #[arg(long, default_value = "60", value_name = "BYTES", value_parser = sizes)]
    pub size: Sizes,
    /// How fast, such as 1Mpps, or 10gbit of frames without FCS; without it, as fast as the port takes frames.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<Rate>,
    /// Headers.
    #[command(flatten)]
    pub headers: Headers,
    /// When to end.
    #[command(flatten)]
    pub until: Until,
}

/// What `rx` receives.
#[derive(Args)]
pub struct Rx {
    /// Where.
    #[command(flatten)]
    pub at: At,
    /// Destination port of the frames.
    #[arg(long, default_value_t = 9, value_name = "PORT")]
    pub to_port: u16,
    /// Number of flows, if they differ in their destination port.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub ports: u16,
    /// Headers may be changed on the way, by a router or NAT: only the payload is checked.
    #[arg(long)]
    pub changed_headers: bool,
    /// When to end.
    #[command(flatten)]
    pub until: Until,
    /// End when no frame came for this time, after the first one.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub idle: Option<u64>,
}

/// What `ping` sends.
#[derive(Args)]
pub struct Ping {
    /// Where.
    #[command(flatten)]
    pub at: At,
    /// Bytes of a frame, without FCS.
    #[arg(long, default_value = "60", value_name = "BYTES", value_parser = sizes)]
    pub size: Sizes,
    /// Frames a second at most, such as 100pps; without it, the next one follows an answer at once.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<Rate>,
    /// How long an answer is waited for.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    pub timeout: u64,
    /// Headers.
    #[command(flatten)]
    pub headers: Headers,
    /// When to end.
    #[command(flatten)]
    pub until: Until,
}

/// What `pong` answers.
#[derive(Args)]
pub struct Pong {
    /// Where.
    #[command(flatten)]
    pub at: At,
    /// Its own MAC address.
    #[arg(long, default_value = "02:00:00:00:00:02", value_name = "MAC")]
    pub from: MacAddress,
    /// When to end.
    #[command(flatten)]
    pub until: Until,
}

/// How to measure.
#[derive(Args)]
pub struct Rfc2544 {
    /// The ring port that sends, or the path of its socket.
    pub tx: String,
    /// The ring port that receives, or the path of its socket.
    pub rx: String,
    /// Slots of each ring, a power of two from 64 to 4096; 0: the port's own choice.
    #[arg(long, default_value_t = 0, value_name = "SLOTS", value_parser = whole::<u32>)]
    pub slots: u32,
    /// Sizes of frames with FCS.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_values_t = SIZES,
        value_parser = with_fcs)]
    pub sizes: Vec<usize>,
    /// Length of a trial; RFC 2544 asks for 60s.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    pub trial: u64,
    /// How long to wait for frames after the last one was sent; RFC 2544 asks for 2s.
    #[arg(long, default_value = "200ms", value_name = "TIME", value_parser = time)]
    pub settle: u64,
    /// How exact a rate is found.
    #[arg(long, default_value = "0.5%", value_name = "SHARE", value_parser = resolution)]
    pub resolution: f64,
    /// Highest rate, such as 1Mpps; without it, a bit more than the ports take.
    #[arg(long, value_name = "RATE", value_parser = frames)]
    pub max_rate: Option<f64>,
    /// Loads at which latency is measured, as shares of the throughput.
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "10%,50%,90%",
        value_parser = share)]
    pub loads: Vec<f64>,
    /// Longest burst of back-to-back frames; 0: they are not measured.
    #[arg(long, default_value_t = 1 << 17, value_name = "FRAMES", value_parser = whole::<u64>)]
    pub burst: u64,
    /// How often the longest burst is searched for; RFC 2544 asks for 50.
    #[arg(long, default_value_t = 3, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Draw the result as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Say nothing about each trial.
    #[arg(long, short)]
    pub quiet: bool,
    /// Headers.
    #[command(flatten)]
    pub headers: Headers,
}

fn said<T>(read: Result<T, units::Wrong>) -> Result<T, String> {
    read.map_err(|(what, fix)| format!("{what}; {fix}"))
}

/// Reads a time in nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    said(units::duration(text))
}

/// Reads a share.
fn share(text: &str) -> Result<f64, String> {
    said(units::share(text))
}

/// Reads a share above zero.
fn resolution(text: &str) -> Result<f64, String> {
    let found = share(text)?;
    if (0.0001..=0.5).contains(&found) { Ok(found) } else { Err("use a value from 0.01% to 50%".into()) }
}

/// Reads a rate.
fn rate(text: &str) -> Result<Rate, String> {
    if text.to_ascii_lowercase().ends_with("pps") {
        return Ok(Rate::Frames(frames(text)?));
    }
    let bits = units::bits(text).map_err(|(what, _)| {
        format!("{what}; write frames a second, such as \"1Mpps\", or bits a second, such as \"10gbit\"")
    })?;
    Ok(Rate::Bits(bits as f64))
}

/// Reads a rate in frames a second.
fn frames(text: &str) -> Result<f64, String> {
    match said(units::rate(text))? {
        0 => Err("use a rate above zero, such as \"1Mpps\"".into()),
        rate => Ok(rate as f64),
    }
}

/// Reads sizes of frames.
fn sizes(text: &str) -> Result<Sizes, String> {
    if text.eq_ignore_ascii_case("imix") {
        return Ok(Sizes::imix());
    }
    let bytes = text.strip_suffix(['B', 'b']).unwrap_or(text);
    let bytes = whole::<usize>(bytes).map_err(|what| format!("{what}; write bytes, or \"imix\""))?;
    Sizes::all(bytes).map_err(|error| error.to_string())
}

/// Reads a size with FCS.
fn with_fcs(text: &str) -> Result<usize, String> {
    let bytes: usize = whole(text)?;
    let size = Sizes::all(bytes.saturating_sub(ringway_pktgen::rfc2544::FCS));
    size.map(|_| bytes).map_err(|_| "use sizes from 64 to 9218, with FCS".into())
}

/// Reads a field.
fn vary(text: &str) -> Result<Vary, String> {
    text.parse().map_err(|error: ShapeError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_frames_or_bits() {
        assert_eq!(rate("1.5Mpps"), Ok(Rate::Frames(1.5e6)));
        assert_eq!(rate("10gbit"), Ok(Rate::Bits(1e10)));
        assert_eq!(rate("10mbps"), Ok(Rate::Bits(8e7)));
        assert!(rate("1000").unwrap_err().contains("such as \"1Mpps\", or bits"));
        assert!(rate("0pps").unwrap_err().contains("above zero"));
    }

    #[test]
    fn sizes_and_shares_are_in_range() {
        assert_eq!((sizes("imix"), sizes("128B")), (Ok(Sizes::imix()), Ok(Sizes::all(128).unwrap())));
        assert!(sizes("59").unwrap_err().contains("from 60"));
        assert!(sizes("big").unwrap_err().contains("imix"));
        assert_eq!((with_fcs("64"), with_fcs("63").is_err()), (Ok(64), true));
        assert_eq!((resolution("1%"), resolution("0%").is_err()), (Ok(0.01), true));
        assert!(vary("ttl").unwrap_err().contains("from-port"));
    }
}
