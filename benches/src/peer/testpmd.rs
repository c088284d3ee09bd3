//! DPDK's testpmd, controlled by its standard input.

use super::Peer;
use crate::{Failure, huge};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Huge pages of 2 MB used by a testpmd.
const PAGES: u64 = 256;
/// Time limit for the start.
const START: Duration = Duration::from_secs(30);
/// What stands before the forwarding core's ticks in statistics.
const CYCLES: &str = "(total cycles=";

/// A running testpmd, stopped (SIGSTOP) while the other side is measured.
pub struct Testpmd {
    child: Child,
    input: ChildStdin,
    log: PathBuf,
}

/// Work to do while testpmd starts.
pub type Meanwhile<'a> = &'a mut dyn FnMut() -> Result<(), Failure>;

/// Parameters of testpmd.
pub struct Task<'a> {
    /// Its unique name.
    pub name: &'a str,
    /// The forwarding core; the console sleeps on the other.
    pub core: usize,
    /// Devices.
    pub devices: Vec<String>,
    /// Arguments of testpmd itself.
    pub arguments: Vec<String>,
    /// Arguments of DPDK's environment.
    pub environment: &'a [&'a str],
}

impl Testpmd {
    /// Starts a testpmd in `folder`, and waits until it accepts commands; `meanwhile` serves its back-end.
    pub fn start(folder: &Path, task: &Task<'_>, meanwhile: Meanwhile<'_>) -> Result<Testpmd, Failure> {
        let program = super::program("dpdk-testpmd")?;
        if huge::free() < PAGES {
            return Err(format!("DPDK needs {PAGES} free huge pages of 2 MB; run as root").into());
        }
        let log = folder.join(format!("{}.log", task.name));
        let other = 1 - task.core;
        let mut command = Command::new("setpriv");
        // Output to a file would otherwise be block-buffered.
        command.args(["--pdeathsig", "KILL", "--", "stdbuf", "-oL"]).arg(program);
        // libxdp's dispatcher of several programs needs a mounted BPF file system.
        command.env("LIBXDP_SKIP_DISPATCHER", "1");
        command.args(["-l", "0,1", "--main-lcore", &other.to_string(), "--in-memory", "--no-pci"]);
        command.args(["--no-telemetry", "-m", "512", "--file-prefix"]);
        command.arg(format!("rwb-{}-{}", std::process::id(), task.name)).args(task.environment);
        for device in &task.devices {
            command.args(["--vdev", device]);
        }
        command.args(["--", "-i", "--nb-cores=1"]).args(&task.arguments);
        let output = File::create(&log)?;
        command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        let mut child = command.spawn().map_err(|error| format!("setpriv: {error}"))?;
        let input = child.stdin.take().ok_or("testpmd has no input")?;
        let mut testpmd = Testpmd { child, input, log };
        testpmd.wait_with("testpmd>", 1, START, meanwhile)?;
        Ok(testpmd)
    }

    /// Sends a command.
    pub fn command(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush())?;
        Ok(())
    }

    /// Changes the retry setting: frames that a port does not take are retried after `delay` microseconds, at most
    /// `times` times.
    pub fn retry(&mut self, delay: u32, times: u32) -> Result<(), Failure> {
        const WORD: &str = "with retry - ports=";
        let before = self.text().matches(WORD).count();
        self.command("stop")?;
        self.command("set fwd io retry")?;
        self.command(&format!("set burst tx delay {delay} retry {times}"))?;
        self.command("start")?;
        self.wait_for(WORD, before + 1, Duration::from_secs(5))
    }

    /// Frames received by the first two ports.
    pub fn received(&mut self) -> Result<u64, Failure> {
        const WORD: &str = "RX-packets:";
        let before = self.text().matches(WORD).count();
        self.command("show port stats all")?;
        self.wait_for(WORD, before + 2, Duration::from_secs(5))?;
        let text = self.text();
        let numbers = text.split(WORD).skip(1 + before);
        let numbers = numbers.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        Ok(numbers.take(2).sum())
    }

    /// The share of time that the forwarding core spends on non-empty bursts during `work`. `work` must not stop the
    /// process, since its clock continues.
    pub fn busy(&mut self, work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
        let (begin, before) = (ringway_host::ticks(), self.ticks()?);
        work()?;
        let spent = self.ticks()?.saturating_sub(before);
        Ok(spent as f64 / ringway_host::ticks().wrapping_sub(begin).max(1) as f64)
    }

    /// Ticks that the forwarding core has spent on non-empty bursts so far.
    fn ticks(&mut self) -> Result<u64, Failure> {
        let text = self.statistics("Accumulated forward statistics")?;
        let last = text.rsplit(CYCLES).next().filter(|_| text.contains(CYCLES));
        Ok(last.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0))
    }

    /// Ticks that the forwarding core has spent on non-empty bursts so far, and the frames that came in them, of which
    /// there must be one.
    pub fn handled(&mut self) -> Result<[u64; 2], Failure> {
        let text = self.statistics(CYCLES)?;
        handled_of(&text).ok_or_else(|| format!("testpmd's statistics: {}", self.last()).into())
    }

    /// Its output, once it has printed statistics of forwarding as far as `word`.
    fn statistics(&mut self, word: &str) -> Result<String, Failure> {
        let before = self.text().matches(word).count();
        self.command("show fwd stats all")?;
        self.wait_for(word, before + 1, Duration::from_secs(5))?;
        Ok(self.text())
    }

    /// The last lines of its output, for an error.
    pub fn last(&self) -> String {
        let text = self.text();
        let mut last: Vec<&str> = text.lines().rev().take(6).collect();
        last.reverse();
        last.join(" / ")
    }

    /// Its output.
    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until the output contains a word this many times.
    pub fn wait_for(&mut self, word: &str, times: usize, bound: Duration) -> Result<(), Failure> {
        self.wait_with(word, times, bound, &mut || Ok(()))
    }

    /// As [`Testpmd::wait_for`], with `meanwhile` called repeatedly.
    pub fn wait_with(
        &mut self,
        word: &str,
        times: usize,
        bound: Duration,
        meanwhile: Meanwhile<'_>,
    ) -> Result<(), Failure> {
        let end = Instant::now() + bound;
        while self.text().matches(word).count() < times {
            let ended = self.child.try_wait()?.is_some();
            if ended || Instant::now() > end {
                return Err(format!("testpmd did not print `{word}`, but: {}", self.last()).into());
            }
            meanwhile()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Peer for Testpmd {
    fn run(&self, on: bool) -> Result<(), Failure> {
        super::signal(&self.child, if on { Signal::CONT } else { Signal::STOP })
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ticks and frames of the last statistics.
fn handled_of(text: &str) -> Option<[u64; 2]> {
    let (_, last) = text.rsplit_once(CYCLES)?;
    let (ticks, rest) = last.split_once(" / total ")?;
    let (_, rest) = rest.split_once(" packets=")?;
    let (frames, _) = rest.split_once(')')?;
    Some([ticks.parse().ok()?, frames.parse().ok()?])
}

/// The net_vhost back-end on two sockets, forwarding between them on `core`.
pub fn back_end(folder: &Path, sockets: [&Path; 2], core: usize) -> Result<Testpmd, Failure> {
    let device = |index: usize| format!("net_vhost{index},iface={}", sockets[index].display());
    forwarding("io", folder, "back", vec![device(0), device(1)], core, &[])
}

/// Runs one of testpmd's modes on `core`; `io` forwards between two devices, or from a single device to itself.
pub fn forwarding(
    mode: &str,
    folder: &Path,
    name: &str,
    devices: Vec<String>,
    core: usize,
    more: &[&str],
) -> Result<Testpmd, Failure> {
    let of_mode = format!("--forward-mode={mode}");
    let arguments = [of_mode.as_str(), "--no-lsc-interrupt", "--burst=64", "--txd=1024", "--rxd=1024"];
    let arguments = arguments.iter().chain(more).map(ToString::to_string).collect();
    let task = Task { name, core, devices, arguments, environment: &[] };
    let mut testpmd = Testpmd::start(folder, &task, &mut || Ok(()))?;
    // Before forwarding begins, or the first count covers all time since the start.
    testpmd.command("set record-core-cycles on")?;
    testpmd.command("start")?;
    testpmd.wait_for(&format!("{mode} packet forwarding - ports"), 1, Duration::from_secs(5))?;
    Ok(testpmd)
}

/// Two virtio-user front-ends on `core` that exchange frames of `frame` bytes.
pub fn front_end(
    folder: &Path,
    name: &str,
    sockets: [&Path; 2],
    core: usize,
    options: &str,
    frame: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<Testpmd, Failure> {
    let mac = |index: usize| format!("02:00:00:00:00:a{index}");
    let device = |index: usize| {
        let (path, mac) = (sockets[index].display(), mac(index));
        format!("net_virtio_user{index},path={path},mac={mac},queues=1,queue_size=1024{options}")
    };
    let mut arguments =
        ["--forward-mode=mac", "--burst=64", "--txd=1024", "--rxd=1024"].map(String::from).to_vec();
    arguments.push(format!("--eth-peer=0,{}", mac(1)));
    arguments.push(format!("--eth-peer=1,{}", mac(0)));
    arguments.push(format!("--txpkts={frame}"));
    let devices = vec![device(0), device(1)];
    let task = Task { name, core, devices, arguments, environment: &["--single-file-segments"] };
    Testpmd::start(folder, &task, meanwhile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_statistics_are_read() {
        let of = |ticks: u64, frames: u64| {
            format!("\n  CPU cycles/packet=5.6 (total cycles={ticks} / total RX packets={frames}) at 2 MHz\n")
        };
        let text = of(563, 10) + "testpmd> " + &of(6_000, 100);
        assert_eq!(handled_of(&text), Some([6_000, 100]));
        assert_eq!(handled_of("  RX-packets: 0\n"), None);
        // The line is still being written.
        assert_eq!(handled_of("(total cycles=563 / total RX pack"), None);
    }
}
