//! Pairs of stock Linux guests: the kernel's pktgen sends, and an XDP program drops and judges what arrives.

use super::drop::{self, Seen};
use crate::Failure;
use crate::rig::WORKER;
use crate::rig::fabric::{Rig, SWITCH, listen, vhost_user};
use ringway_frame::Counters;
use ringway_host::listener::Listener;
use ringway_host::memfd;
use ringway_linux_guests::{Attachment, Guest, Interface, Runner, Spec, image};
use ringway_port::e1000::{self, MEMORY, PAGES, Settings, Techniques};
use ringway_spec::{Kind, MacAddress, Poll, Port, To};
use ringway_tests::bridge::Bridge;
use ringway_tests::linux_driver;
use ringway_tests::traffic::{iperf, ping};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Longest start of a guest.
const BOOT: Duration = Duration::from_secs(150);
const COMMAND: Duration = Duration::from_secs(20);
/// How long pktgen runs before a slice, and after it.
const MARGIN: Duration = Duration::from_millis(400);
/// How often frames of a run that may still be on their way are looked for, and the time between two looks.
const LOOKS: usize = 40;
const LOOK: Duration = Duration::from_millis(50);
const PINGS: usize = 60;
/// Seconds that iperf3 sends for.
const STREAM: u64 = 1;
/// Where pktgen is told about its interface, and tells what it sent.
const DEVICE: &str = "/proc/net/pktgen/eth0";
/// How often pktgen sends a frame before it makes another.
const COPIES: u32 = 32;
/// Bytes of a guest's console in an error message.
const CONSOLE: usize = 400;
const BRIDGE: &str = "rwbnic";
/// Registers by which a driver announces descriptors.
const DOORBELLS: [&str; 4] = ["TDT", "RDT", "CSBTXKICK", "CSBRXKICK"];
/// The drivers' names, as QEMU names its own cards.
pub const CARDS: &[&str] = &["e1000", "e1000e"];

/// How the guests of a pair are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Our cards with trapped doorbells.
    Trapped,
    /// Our cards with mapped doorbells.
    Mapped,
    /// Our vhost-user ports, by virtio-net.
    Vhost,
    /// QEMU's own cards, TAP interfaces and a Linux bridge.
    Own,
    /// QEMU's virtio-net, TAP interfaces and a Linux bridge.
    Virtio,
    /// Our cards with trapped doorbells and a shared block, by our own driver.
    Module,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Trapped => "trapped",
            Way::Mapped => "mapped",
            Way::Vhost => "vhost",
            Way::Own => "own",
            Way::Virtio => "virtio",
            Way::Module => "module",
        }
    }

    /// The number in its guests' addresses.
    fn number(self) -> u8 {
        self as u8
    }

    fn is_ours(self) -> bool {
        !matches!(self, Way::Own | Way::Virtio)
    }

    /// Whether its ports are cards of ours.
    pub fn is_card(self) -> bool {
        matches!(self, Way::Trapped | Way::Mapped | Way::Module)
    }

    /// The names of its ports.
    fn ports(self) -> [String; 2] {
        ["sender", "receiver"].map(|end| format!("{}-{end}", self.name()))
    }
}

/// Where frames to a receiving guest are counted.
enum Counter {
    /// A port's entry of the counters page.
    Port(usize),
    /// A TAP interface, which counts what its reader took.
    Tap(String),
}

/// Two guests; the first sends.
pub struct Pair {
    way: Way,
    guests: [Guest; 2],
    receiver: String,
    counter: Counter,
}

/// What all guests have in common.
pub struct Common {
    folder: PathBuf,
    program: PathBuf,
    kernel: image::Kernel,
    /// The object file of the drop program, at the same path in the guests.
    drop: PathBuf,
    ip: PathBuf,
    /// Our driver for Linux, and the stock driver that it replaces.
    module: Option<(PathBuf, &'static str)>,
    /// Virtual processors of a guest.
    pub processors: u32,
}

/// What a run of pktgen showed.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Millions of frames a second that reached the drop program.
    pub rate: f64,
    /// The part of the frames that did not.
    pub lost: f64,
    /// Microseconds of processor time a frame: of the sender's QEMU, of the receiver's, and of this process, which has
    /// the worker and serves the sessions.
    pub stages: [f64; 3],
}

fn mac(number: u8, host: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, number, host])
}

fn asked(guest: &Guest, command: &str) -> Result<String, Failure> {
    let output = guest.run(command, COMMAND)?;
    match output.status {
        0 => Ok(output.text),
        status => Err(format!("{}: {command}: {status}: {}", guest.spec().name, output.text.trim()).into()),
    }
}

/// Microseconds of processor time that a process took (proc_pid_stat(5)).
fn processor_time(process: impl std::fmt::Display) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before may contain anything.
    let mut words = text.rsplit_once(')').unwrap_or_default().1.split_whitespace().skip(11);
    let mut next = || -> Result<f64, Failure> { Ok(words.next().ok_or("a process without times")?.parse()?) };
    Ok((next()? + next()?) * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// The end of a guest's console, for an error message.
fn console(guest: &Guest) -> String {
    let text = std::fs::read(guest.console()).unwrap_or_default();
    let last = text.len().saturating_sub(CONSOLE);
    String::from_utf8_lossy(&text[last..]).replace('\n', " ")
}

impl Common {
    /// Files for guests in `folder`.
    pub fn new(folder: &Path) -> Result<Common, Failure> {
        let (folder, drop) = (folder.to_path_buf(), folder.join("drop.o"));
        std::fs::write(&drop, drop::object())?;
        let program = ringway_tests::qemu::with_cards().ok_or("no QEMU with vfio-user is available")?;
        let (kernel, ip) = (image::qemu(CARDS)?, crate::peer::program("ip")?);
        Ok(Common { folder, program, kernel, drop, ip, module: None, processors: 1 })
    }

    /// Builds our driver for the guests' kernel, for pairs that have it in place of the stock driver `stock`.
    pub fn build_module(&mut self, stock: &'static str) -> Result<(), Failure> {
        let folder = self.folder.join("module");
        std::fs::create_dir_all(&folder)?;
        let module = linux_driver::build(&folder, &self.kernel.modules).map_err(|why| why.to_string())?;
        self.module = Some((module, stock));
        Ok(())
    }

    /// Whether our driver has been built.
    pub fn has_module(&self) -> bool {
        self.module.is_some()
    }

    /// Starts the guests of a pair and waits until both have booted and reach each other.
    fn pair(&self, way: Way, interfaces: [Interface; 2], counter: Counter) -> Result<Pair, Failure> {
        let (number, mut host) = (way.number(), 0);
        let guests = interfaces.map(|mut interface| {
            host += 1;
            interface.address = Some(format!("10.99.{number}.{host}/24"));
            if !way.is_card() {
                interface.mac = Some(mac(number, host).to_string());
            }
            let name = format!("{}-{host}", way.name());
            let mut spec = Spec::new(&name, Runner::Qemu, vec![interface]);
            spec.program = Some(self.program.clone());
            spec.kernel = Some(self.kernel.image.clone());
            spec.modules = Some(self.kernel.modules.clone());
            spec.drivers = vec!["pktgen".into()];
            spec.carried = vec![self.ip.clone(), self.drop.clone()];
            spec.carried.extend(self.module.iter().map(|(path, _)| path.clone()));
            spec.processors = self.processors;
            Guest::start(spec, &self.folder.join(&name))
        });
        let [sender, receiver] = guests;
        let pair = Pair { way, guests: [sender?, receiver?], receiver: format!("10.99.{number}.2"), counter };
        for guest in &pair.guests {
            guest.ready(BOOT).map_err(|error| format!("{error}: {}", console(guest)))?;
        }
        if let (Way::Module, Some((module, stock))) = (way, &self.module) {
            for (guest, host) in pair.guests.iter().zip(1..) {
                let address = format!("10.99.{number}.{host}/24");
                let module = module.display();
                let load =
                    format!("rmmod {stock} && insmod {module} csb=1 && ip address add {address} dev eth0");
                asked(guest, &format!("{load} && ip link set eth0 up"))?;
            }
        }
        let pings = ping(&pair.guests[0], &pair.receiver, 5, 56, 0.2)?;
        if pings.times.is_empty() {
            let name = way.name();
            return Err(format!("{name}: no ping arrives: {}", console(&pair.guests[1])).into());
        }
        pair.prepare()?;
        Ok(pair)
    }

    /// Removes the receiver's drop program, with what it counted.
    fn stop_dropping(&self, pair: &Pair) -> Result<(), Failure> {
        let (ip, map) = (self.ip.display(), drop::MAP);
        let find = format!("find /sys/fs/bpf -name {map}");
        asked(&pair.guests[1], &format!("{ip} link set dev eth0 xdpgeneric off; rm -f $({find})")).map(drop)
    }

    /// Has the receiver drop frames of pktgen and count them from zero.
    fn start_dropping(&self, pair: &Pair) -> Result<(), Failure> {
        self.stop_dropping(pair)?;
        let (ip, object) = (self.ip.display(), self.drop.display());
        asked(&pair.guests[1], &format!("{ip} link set dev eth0 xdpgeneric obj {object} sec xdp")).map(drop)
    }

    /// A run of pktgen of which `time` is measured.
    pub fn run(&self, pair: &Pair, page: &[Counters], time: Duration) -> Result<Run, Failure> {
        self.start_dropping(pair)?;
        let begin = pair.count(page)?;
        let seconds = (time + 2 * MARGIN).as_secs_f64();
        let control = "/proc/net/pktgen/pgctrl";
        let command =
            format!("(echo start >{control}) & sleep {seconds:.1}; echo stop >{control}; wait; cat {DEVICE}");
        let (frames, elapsed, times, report) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| asked(&pair.guests[0], &command));
            std::thread::sleep(MARGIN);
            let (before, since, spent) = (pair.count(page)?, Instant::now(), pair.processor_times()?);
            std::thread::sleep(time);
            let (after, elapsed, times) = (pair.count(page)?, since.elapsed(), pair.processor_times()?);
            let report = sending.join().map_err(|_| "a thread of the benchmark failed")??;
            let times = [0, 1, 2].map(|stage: usize| times[stage] - spent[stage]);
            Ok::<_, Failure>((after.saturating_sub(before) as f64, elapsed, times, report))
        })?;
        let sent = report.split("pkts-sofar:").nth(1).and_then(|rest| rest.split_whitespace().next());
        let sent = sent.and_then(|sent| sent.parse().ok()).ok_or_else(|| format!("pktgen says: {report}"))?;
        let seen = pair.seen(sent)?;
        let counted = pair.count(page)?.saturating_sub(begin);
        judge(sent, seen, counted).map_err(|why| format!("{}: {why}", pair.way.name()))?;
        // Of the frames that were passed on meanwhile, those that reached the program.
        let frames = frames * seen.frames as f64 / counted as f64;
        if frames < 1.0 {
            return Err(format!("{}: no frame was passed on in {elapsed:?}", pair.way.name()).into());
        }
        let rate = frames / elapsed.as_secs_f64() / 1e6;
        let lost = 1.0 - seen.frames as f64 / sent as f64;
        Ok(Run { rate, lost, stages: times.map(|time| time / frames) })
    }

    /// The median round-trip time in microseconds, without the drop program.
    pub fn round_trip(&self, pair: &Pair) -> Result<f64, Failure> {
        self.stop_dropping(pair)?;
        let pings = ping(&pair.guests[0], &pair.receiver, PINGS, 56, 0.01)?;
        if pings.lost() > 0 {
            return Err(format!("{} of {PINGS} pings were lost", pings.lost()).into());
        }
        Ok(pings.quantile(0.5) * 1e3)
    }
}

/// Whether the frames of a run arrived once each and in order, and no more than the port or the TAP interface counted.
fn judge(sent: u64, seen: Seen, counted: u64) -> Result<(), String> {
    let Seen { frames, missing, wrong, .. } = seen;
    if wrong > 0 {
        return Err(format!("{wrong} frames came twice or out of order"));
    }
    if frames == 0 || frames + missing > sent || frames > counted {
        return Err(format!(
            "of {sent} frames, {frames} arrived, {missing} did not, {counted} were passed on"
        ));
    }
    Ok(())
}

impl Pair {
    /// Prepares pktgen and the receiver's BPF file system.
    fn prepare(&self) -> Result<(), Failure> {
        let (to, address) = (mac(self.way.number(), 2), &self.receiver);
        // Not every driver takes a frame twice.
        asked(
            &self.guests[0],
            &format!(
                "echo add_device eth0 >/proc/net/pktgen/kpktgend_0 && for word in 'count 0' 'delay 0' \
                 'pkt_size 60' 'dst {address}' 'dst_mac {to}'; do echo $word >{DEVICE} || exit 1; done; \
                 echo clone_skb {COPIES} >{DEVICE} 2>/dev/null; true"
            ),
        )?;
        asked(&self.guests[1], "mount -t bpf bpf /sys/fs/bpf").map(drop)
    }

    /// Frames that the host has passed to the receiver.
    fn count(&self, page: &[Counters]) -> Result<u64, Failure> {
        match &self.counter {
            Counter::Port(index) => Ok(page.get(*index).map_or(0, |port| port.rx_frames.load(Relaxed))),
            Counter::Tap(name) => {
                let text = std::fs::read_to_string("/proc/net/dev")?;
                let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:")));
                let count = line.and_then(|line| line.split_whitespace().nth(9)?.parse().ok());
                Ok(count.ok_or_else(|| format!("no interface {name}"))?)
            }
        }
    }

    /// Processor time in microseconds, as [`Run::stages`] has it.
    fn processor_times(&self) -> Result<[f64; 3], Failure> {
        let [sender, receiver] = &self.guests;
        Ok([
            processor_time(sender.process())?,
            processor_time(receiver.process())?,
            processor_time(std::process::id())?,
        ])
    }

    /// What the drop program counted, when all frames have arrived or no more arrive.
    fn seen(&self, sent: u64) -> Result<Seen, Failure> {
        let mut before = None;
        for _ in 0..LOOKS {
            let text = asked(&self.guests[1], &format!("cat $(find /sys/fs/bpf -name {})", drop::MAP))?;
            let seen = Seen::parse(&text).ok_or_else(|| format!("the drop program's map says: {text}"))?;
            if seen.frames >= sent || before == Some(seen) {
                return Ok(seen);
            }
            before = Some(seen);
            std::thread::sleep(LOOK);
        }
        Err("frames still arrive long after the last one".into())
    }
}

/// Pairs of guests, and the fabric of our ports.
pub struct Bench<'a> {
    rig: Rig,
    common: &'a Common,
    model: &'static str,
    pairs: Vec<Pair>,
    /// Removed after the guests have ended.
    _bridge: Bridge,
}

/// The pairs of a bench.
pub struct Pairs<'a> {
    /// What they have in common.
    pub common: &'a Common,
    pairs: &'a [Pair],
    page: &'a [Counters],
}

impl Pairs<'_> {
    fn of(&self, way: Way) -> Result<&Pair, Failure> {
        let found = self.pairs.iter().find(|pair| pair.way == way);
        Ok(found.ok_or_else(|| format!("there are no guests of way {}", way.name()))?)
    }

    /// A run of pktgen.
    pub fn run(&self, way: Way, time: Duration) -> Result<Run, Failure> {
        self.common.run(self.of(way)?, self.page, time)
    }

    /// The median round-trip time in microseconds.
    pub fn round_trip(&self, way: Way) -> Result<f64, Failure> {
        self.common.round_trip(self.of(way)?)
    }

    /// Millions of datagrams with `bytes` bytes each that arrive in a second, sent by iperf3 as fast as it can.
    pub fn datagrams(&self, way: Way, bytes: u32) -> Result<f64, Failure> {
        let pair = self.of(way)?;
        let transfer = iperf(&pair.guests[0], &pair.receiver, STREAM, &format!("-u -b 0 -l {bytes}"))?;
        Ok(transfer.datagrams / 1e6 / STREAM as f64)
    }

    /// Gb/s of one TCP stream.
    pub fn stream(&self, way: Way) -> Result<f64, Failure> {
        let pair = self.of(way)?;
        Ok(iperf(&pair.guests[0], &pair.receiver, STREAM, "")?.rate)
    }
}

fn settings(model: &str, way: Way, host: u8, techniques: Techniques) -> Kind {
    let (mac, memory) = (Some(mac(way.number(), host)), MEMORY);
    Kind::new(
        e1000::KIND.name,
        &Settings { model: model.into(), mac, mtu: None, memory, carrier: true, techniques },
    )
}

/// A port's name, whether it is a card, and where it listens.
type Door = (String, bool, Listener);

/// Attaches clients that wait; cards may map registers.
fn accept(rig: &mut Rig, doors: &[Door]) -> Result<(), Failure> {
    for (name, is_card, listener) in doors {
        if let Some(socket) = listener.accept()? {
            let pages = is_card.then(|| memfd("registers", PAGES)).transpose()?;
            rig.attach(name, std::iter::once(socket).chain(pages).collect())?;
        }
    }
    Ok(())
}

impl<'a> Bench<'a> {
    /// Starts pairs of guests, each with a number of our techniques, one pair after the other.
    pub fn start(
        common: &'a Common,
        model: &'static str,
        driver: &'static str,
        ways: &[(Way, Techniques)],
    ) -> Result<Bench<'a>, Failure> {
        let bridge = Bridge::new(BRIDGE, 4)?;
        let mut rig = Rig::start(&[WORKER], 2 * ways.len(), Poll::Adaptive)?;
        let (mut doors, mut plans) = (Vec::new(), Vec::new());
        for &(way, techniques) in ways {
            let first = doors.len();
            for (name, host) in way.ports().into_iter().zip(1..).filter(|_| way.is_ours()) {
                let kind = if way.is_card() { settings(model, way, host, techniques) } else { vhost_user() };
                rig.add(&name, kind)?;
                let listener = listen(&common.folder.join(&name))?;
                doors.push((name, way.is_card(), listener));
            }
            let sockets = way.ports().map(|name| common.folder.join(name));
            let tap = |index: usize, card: Option<String>| Interface { card, ..bridge.interface(index, 0) };
            let (interfaces, counter) = match way {
                Way::Trapped | Way::Mapped | Way::Module => {
                    let card = |socket| Attachment::VfioUser { socket, driver: driver.into() };
                    (sockets.map(|socket| Interface::new(card(socket))), Counter::Port(first + 1))
                }
                Way::Vhost => {
                    let port = |socket| Attachment::VhostUser { socket, listen: false };
                    (sockets.map(|socket| Interface::new(port(socket))), Counter::Port(first + 1))
                }
                Way::Own => {
                    let card = Some(driver.to_string());
                    ([tap(0, card.clone()), tap(1, card)], Counter::Tap(format!("{BRIDGE}-t1")))
                }
                Way::Virtio => ([tap(2, None), tap(3, None)], Counter::Tap(format!("{BRIDGE}-t3"))),
            };
            plans.push((way, interfaces, counter));
        }
        // QEMU's client waits only a few seconds for the answer to its first message.
        let pairs = rig.serve_beside(
            |rig| accept(rig, &doors),
            || {
                let pairs = plans.into_iter();
                pairs.map(|(way, interfaces, counter)| common.pair(way, interfaces, counter)).collect()
            },
        )?;
        Ok(Bench { rig, common, model, pairs, _bridge: bridge })
    }

    /// The model of our cards.
    pub fn model(&self) -> &'static str {
        self.model
    }

    /// Measures while sessions are served.
    pub fn measure<T: Send>(
        &mut self,
        work: impl FnOnce(&Pairs<'_>) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        let Bench { rig, common, pairs, .. } = self;
        let page = rig.page();
        let pairs = Pairs { common, pairs, page: &page };
        rig.serve_while(|| work(&pairs))
    }

    /// Changes the techniques of a pair with our cards.
    pub fn set(&mut self, way: Way, techniques: Techniques) -> Result<(), Failure> {
        for (name, host) in way.ports().into_iter().zip(1..) {
            let kind = settings(self.model, way, host, techniques);
            self.rig.fabric.change_port(Port::new(&name, kind, Some(To::Switch(SWITCH.into()))))?;
        }
        Ok(())
    }

    /// Frames that the guests of a pair with our cards sent, their writes to tail registers (or to the shared block's)
    /// that reached the model, their interrupts, and all accesses to registers that reached the model.
    pub fn exits(&self, way: Way) -> Result<[f64; 4], Failure> {
        let mut sums = [0; 4];
        for port in way.ports() {
            let exits = self.rig.fabric.exits(&port)?.ok_or("a port without registers")?;
            let tails = exits.registers.iter().filter(|register| DOORBELLS.contains(&&*register.name));
            let writes: u64 = tails.map(|register| register.writes).sum();
            let all: u64 = exits.registers.iter().map(|register| register.reads + register.writes).sum();
            for (sum, count) in sums.iter_mut().zip([exits.tx_frames, writes, exits.raised, all]) {
                *sum += count;
            }
        }
        Ok(sums.map(|sum| sum as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_are_missing_twice_or_too_many_are_noticed() {
        let seen = Seen { frames: 90, last: 97, missing: 8, wrong: 0 };
        assert_eq!(judge(100, seen, 95), Ok(()));
        assert!(judge(100, Seen { wrong: 1, ..seen }, 95).is_err());
        assert!(judge(97, seen, 95).is_err(), "more than were sent");
        assert!(judge(100, seen, 89).is_err(), "more than were passed on");
        assert!(judge(100, Seen::default(), 0).is_err(), "none");
    }
}
