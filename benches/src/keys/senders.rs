//! Programs that send as fast as they can by sockets of the kernel, a system call a frame, and by its packet generator,
//! beside a program on a ring.

use super::ring;
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::{LOAD, Pinned};
use crate::peer::net::{Veth, ip};
use crate::peer::packet::PacketLine;
use crate::plan::Plan;
use crate::report::Report;
use crate::svg::bars;
use ringway_pktgen::run::{Load, transmit};
use ringway_pktgen::{Flows, Generator, Rate, Sizes};
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);
const SIZE: usize = 64;
/// Ethernet's, IPv4's and UDP's headers.
const HEADERS: usize = 14 + 20 + 8;
/// Frames between two looks at the clock.
const BATCH: usize = 64;
const SENDER: &str = "rw-send";
const SINK: &str = "rw-sink";
/// Where the kernel's packet generator is told what to do.
const PKTGEN: &str = "/proc/net/pktgen";
const RING: &str = "ring through the switch";
const UDP: &str = "UDP socket";
const PACKET: &str = "packet socket";
const KERNEL: &str = "kernel's pktgen";

/// A veth pair whose other end counts frames and drops them.
struct Wire(Veth);

impl Wire {
    fn new() -> Result<Wire, Failure> {
        let veth = Veth::new(SENDER, SINK)?;
        ip(&format!("addr add 10.98.0.1/24 dev {SENDER}"))?;
        // Not the other end's address: IP drops what is for another host before it looks at it.
        ip(&format!("neigh add 10.98.0.2 lladdr 02:00:00:00:00:99 dev {SENDER}"))?;
        Ok(Wire(veth))
    }

    /// Millions of frames that arrive in a second while `send` sends for `time`.
    fn rate(
        &self,
        time: Duration,
        send: impl FnOnce(Duration) -> Result<(), Failure>,
    ) -> Result<f64, Failure> {
        let arrived = || self.0.space.received(SINK);
        let (before, begin) = (arrived()?, Instant::now());
        send(time)?;
        let seconds = begin.elapsed().as_secs_f64();
        match arrived()?.saturating_sub(before) {
            0 => Err("no frame arrives".into()),
            frames => Ok(frames as f64 / seconds / 1e6),
        }
    }
}

/// A UDP socket that is connected to an address behind the wire.
fn udp() -> Result<UdpSocket, Failure> {
    let socket = UdpSocket::bind("10.98.0.1:0")?;
    socket.connect("10.98.0.2:9")?;
    Ok(socket)
}

fn send_datagrams(socket: &UdpSocket, time: Duration) -> Result<(), Failure> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        for _ in 0..BATCH {
            socket.send(&[0; SIZE - HEADERS])?;
        }
    }
    Ok(())
}

fn send_packets(line: &mut PacketLine, generator: &Generator, time: Duration) -> Result<(), Failure> {
    let time = Some(time.as_nanos() as u64);
    transmit(line, generator, Load { rate: Rate::Most, first: 0, frames: None, time }, |_, _| true)?;
    Ok(())
}

/// The kernel's packet generator on the wire; its thread is that of the load's core.
struct KernelPktgen;

impl KernelPktgen {
    fn new() -> Result<KernelPktgen, Failure> {
        if !Path::new(PKTGEN).exists() {
            return Err("the kernel has no pktgen (modprobe pktgen)".into());
        }
        let thread = format!("kpktgend_{LOAD}");
        KernelPktgen::tell(&thread, &format!("add_device {SENDER}"))?;
        let settings = [
            "count 0",
            "delay 0",
            "clone_skb 0",
            "pkt_size 64",
            "dst 10.98.0.2",
            "dst_mac 02:00:00:00:00:99",
        ];
        settings.into_iter().try_for_each(|setting| KernelPktgen::tell(SENDER, setting))?;
        Ok(KernelPktgen)
    }

    fn tell(file: &str, words: &str) -> Result<(), Failure> {
        std::fs::write(format!("{PKTGEN}/{file}"), words)
            .map_err(|error| format!("pktgen: {words}: {error}"))?;
        Ok(())
    }

    /// Writing `start` returns when it was stopped.
    fn send(&self, time: Duration) -> Result<(), Failure> {
        std::thread::scope(|scope| {
            let running =
                scope.spawn(|| KernelPktgen::tell("pgctrl", "start").map_err(|error| error.to_string()));
            std::thread::sleep(time);
            KernelPktgen::tell("pgctrl", "stop")?;
            Ok(running.join().map_err(|_| "a thread failed")??)
        })
    }
}

impl Drop for KernelPktgen {
    fn drop(&mut self) {
        // The next one adds its device again.
        let _ = KernelPktgen::tell(&format!("kpktgend_{LOAD}"), "rem_device_all");
    }
}

/// Frames of 64 bytes: a program on a ring beside a UDP socket, and the other ways as steps.
pub fn beside_rings(plan: &Plan) -> Result<Entry, Failure> {
    let wire = Wire::new()?;
    let (socket, mut line) = (udp()?, PacketLine::open(SENDER)?);
    let generator = Generator::new(&Sizes::all(SIZE)?, &Flows::default())?;
    let part = plan.part(0.4);
    let slices = ring::beside(&part, SIZE, |time| wire.rate(time, |time| send_datagrams(&socket, time)))?;
    let _pinned = Pinned::to(LOAD)?;
    let part = plan.part(0.2);
    let packets =
        part.alone(SLICE, |time| wire.rate(time, |time| send_packets(&mut line, &generator, time)))?;
    let kernel = KernelPktgen::new()
        .and_then(|kernel| part.alone(SLICE, |time| wire.rate(time, |time| kernel.send(time))));
    let mut entry = slices.entry("Mpps", Better::More);
    for (name, rate) in [
        (UDP, median(&slices.peer)),
        (PACKET, median(&packets.ours)),
        (KERNEL, kernel.as_ref().ok().and_then(|slices: &Slices| median(&slices.ours))),
        (RING, median(&slices.ours)),
    ] {
        if let Some(rate) = rate {
            entry = entry.step(name, &[("Mpps", rate)]);
        }
    }
    entry = entry.note("64 B; peer: a UDP socket on veth, frames that arrive at its other end, one core");
    Ok(match kernel {
        Ok(_) => entry,
        Err(error) => entry.note(format!("without the kernel's pktgen: {error}")),
    })
}

/// The plot of [`beside_rings`].
pub fn plot(report: &Report) -> Option<String> {
    let entry = report.get("sockets.peer").filter(|entry| !entry.steps.is_empty())?;
    let row = |step: &crate::entry::Step| Some((step.name.clone(), *step.figures.get("Mpps")?));
    let rows: Vec<_> = entry.steps.iter().filter_map(row).collect();
    Some(bars("Frames of 64 B that a program sends, Mpps", &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_has_a_bar_for_each_way() {
        let entry = Entry::default().step(UDP, &[("Mpps", 0.5)]).step(RING, &[("Mpps", 20.0)]);
        let image = plot(&Report::from([("sockets.peer".into(), entry)])).unwrap();
        assert_eq!(image.matches("<rect x").count(), 2, "{image}");
        assert_eq!(plot(&Report::new()), None);
    }
}
