//! tcpdump at a port, by our libpcap, and at a veth interface, by the kernel's packet sockets: the highest rate at
//! which it captures every frame.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::exec::lab::{Running, program};
use crate::harness::{LOAD, Pinned};
use crate::keys::Folder;
use crate::peer::net::Veth;
use crate::peer::packet::PacketLine;
use crate::peer::{self, finish, signal};
use crate::plan::Plan;
use ringway_pktgen::run::{Load, transmit};
use ringway_pktgen::{Flows, Generator, Line, Rate, RingLine, Sizes};
use ringway_ring_client::{Ring, RingOptions};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZE: usize = 64;
/// How long frames are sent for a trial.
const TRIAL: Duration = Duration::from_millis(500);
/// After the last frame, until tcpdump is told to end: the kernel hands over a block that is not full after a second.
const SETTLE: Duration = Duration::from_millis(1200);
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The lowest rate that is tried, in frames a second, the factor between two rates, and their number.
const LOWEST: f64 = 10_000.0;
const FACTOR: f64 = 1.19;
const RATES: usize = 40;
/// KB of tcpdump's buffer: both sides have the same.
const BUFFER: &str = "32768";
const SENDER: &str = "rw-from";
const SINK: &str = "rw-to";

/// A place where tcpdump captures what a line sends.
trait Place {
    type Line: Line;

    /// tcpdump with the words that say where it captures.
    fn tcpdump(&self) -> Result<Command, Failure>;
    fn line(&mut self) -> &mut Self::Line;
}

/// A port of a fabric, whose frames go to a port that drops them.
struct Port {
    folder: Folder,
    library: PathBuf,
    line: RingLine,
    _fabric: Running,
}

impl Port {
    fn new() -> Result<Port, Failure> {
        let ringway = program()?;
        let library = ringway.ancestors().nth(2).map(|target| target.join("pcap")).unwrap_or_default();
        if !library.join("libpcap.so.0.8").exists() {
            return Err("target/pcap/libpcap.so.0.8 is not built (make pcap-library)".into());
        }
        let folder = Folder::new()?;
        let fabric = Running::fabric(folder.path(), "pcap", FABRIC)?;
        let options = RingOptions { slots: [4096, 64], ..RingOptions::default() };
        let (path, end) = (folder.path().join("pcap/from"), Instant::now() + START_TIMEOUT);
        let ring = loop {
            match Ring::connect_with(&path, options, Some(START_TIMEOUT)) {
                Ok(ring) => break ring,
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        Ok(Port { folder, library, line: RingLine::new(ring, None).polling(), _fabric: fabric })
    }
}

const FABRIC: &str = "[fabric]\nname = \"pcap\"\n\n\
    [port.from]\nkind = \"ring\"\nsocket = \"from\"\n\n[port.to]\nkind = \"null\"\n\n\
    [patch.all]\nports = [\"from\", \"to\"]\n";

impl Place for Port {
    type Line = RingLine;

    fn tcpdump(&self) -> Result<Command, Failure> {
        let mut command = Command::new(peer::program("tcpdump")?);
        command.env("LD_LIBRARY_PATH", &self.library).env("RINGWAY_PROGRAM", program()?);
        command.env("RINGWAY_RUN", self.folder.path()).args(["-i", "ringway:pcap:from"]);
        Ok(command)
    }

    fn line(&mut self) -> &mut RingLine {
        &mut self.line
    }
}

/// A veth pair, whose other end tcpdump captures.
struct Wire {
    line: PacketLine,
    veth: Veth,
}

impl Wire {
    fn new() -> Result<Wire, Failure> {
        let veth = Veth::new(SENDER, SINK)?;
        Ok(Wire { line: PacketLine::open(SENDER)?, veth })
    }
}

impl Place for Wire {
    type Line = PacketLine;

    fn tcpdump(&self) -> Result<Command, Failure> {
        let path = peer::program("tcpdump")?;
        let mut command = self.veth.space.command(path.to_str().ok_or("tcpdump's path")?);
        command.args(["-i", SINK]);
        Ok(command)
    }

    fn line(&mut self) -> &mut PacketLine {
        &mut self.line
    }
}

/// tcpdump, which captures into nothing.
fn start(place: &impl Place) -> Result<(Child, BufReader<std::process::ChildStderr>), Failure> {
    let mut command = place.tcpdump()?;
    command.args(["-n", "-p", "-B", BUFFER, "-w", "/dev/null", "udp"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut errors = BufReader::new(child.stderr.take().ok_or("no output")?);
    let mut said = String::new();
    while !said.contains("listening on ") {
        if errors.read_line(&mut said)? == 0 {
            return Err(format!("tcpdump: {}", said.trim()).into());
        }
    }
    Ok((child, errors))
}

/// The frames that tcpdump says it captured.
fn captured_of(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.strip_suffix(" packets captured")?.parse().ok())
}

/// Frames a second that were sent, if tcpdump captured all of them.
fn trial(place: &mut impl Place, generator: &Generator, rate: f64) -> Result<Option<f64>, Failure> {
    let (child, mut errors) = start(place)?;
    let time = Some(TRIAL.as_nanos() as u64);
    let load = Load { rate: Rate::Frames(rate), first: 0, frames: None, time };
    let sent = transmit(place.line(), generator, load, |_, _| true);
    std::thread::sleep(SETTLE);
    signal(&child, Signal::INT)?;
    let sent = sent?;
    let mut said = String::new();
    errors.read_to_string(&mut said)?;
    finish(child, START_TIMEOUT)?;
    let captured = captured_of(&said).ok_or_else(|| format!("tcpdump says: {}", said.trim()))?;
    // A sender that is slower than was asked shows nothing about a higher rate.
    Ok((captured == sent.frames && sent.rate() > 0.9 * rate).then(|| sent.rate()))
}

/// The highest rate of a place without loss, in Mpps, by bisection.
fn highest(place: &mut impl Place, generator: &Generator) -> Result<f64, Failure> {
    let (mut low, mut high, mut best) = (0, RATES, None);
    while low < high {
        let middle = (low + high) / 2;
        match trial(place, generator, LOWEST * FACTOR.powi(middle as i32))? {
            Some(rate) => (low, best) = (middle + 1, Some(rate)),
            None => high = middle,
        }
    }
    best.map(|rate| rate / 1e6).ok_or_else(|| format!("tcpdump loses frames at {LOWEST} a second").into())
}

/// Both sides take turns; a search has 5 or 6 trials.
pub fn captured(plan: &Plan) -> Result<Entry, Failure> {
    let generator = Generator::new(&Sizes::all(SIZE)?, &Flows::default())?;
    let (mut port, mut veth) = (Port::new()?, Wire::new()?);
    let _pinned = Pinned::to(LOAD)?;
    let mut slices = Slices::default();
    for _ in 0..plan.slices(12 * TRIAL) {
        crate::machine::sample();
        slices.ours.push(highest(&mut port, &generator)?);
        slices.peer.push(highest(&mut veth, &generator)?);
    }
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(2.0);
    Ok(entry.note(
        "64 B, written to /dev/null with a filter, buffers of 32 MB; the highest of rates 19% apart at which \
         the sender keeps its rate and tcpdump has each frame",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcpdumps_count_is_read() {
        let said =
            "tcpdump: listening on x\n125 packets captured\n130 packets received by filter\n5 dropped\n";
        assert_eq!((captured_of(said), captured_of("nothing")), (Some(125), None));
    }
}
