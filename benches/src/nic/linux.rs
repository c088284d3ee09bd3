//! Stock Linux guests on emulated cards: the kernel's pktgen sends, and an XDP program drops what arrives, so that the
//! guests' own system calls don't hide the device. Peers: QEMU's own cards, with TAP and a Linux bridge.

use super::drop;
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::keys::{Folder, Group, QUIET};
use crate::plan::Plan;
use crate::rig::WORKER;
use crate::rig::fabric::{Rig, listen, vhost_user};
use crate::run::Output;
use ringway_frame::Counters;
use ringway_guests::{Attachment, Guest, Interface, Runner, Spec, image};
use ringway_host::listener::Listener;
use ringway_host::memfd;
use ringway_port::e1000::{self, MEMORY, PAGES, Settings, Techniques};
use ringway_spec::{Kind, MacAddress, Poll, Port, To};
use ringway_tests::bridge::Bridge;
use ringway_tests::traffic::ping;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const BOOT: Duration = Duration::from_secs(200);
const SLICE: Duration = Duration::from_secs(1);
const COMMAND: Duration = Duration::from_secs(20);
/// How long pktgen runs before a slice, and after it.
const MARGIN: Duration = Duration::from_millis(400);
const PINGS: usize = 60;
/// Bytes of a guest's console in an error message.
const CONSOLE: usize = 400;
const BRIDGE: &str = "rwbnic";
const CARDS: &[&str] = &["e1000", "e1000e"];
/// The plain device: an interrupt and a publication for each frame.
const PLAIN: Techniques = Techniques {
    moderate: 0,
    timers: false,
    combine: false,
    batch: false,
    mapped: Some(false),
    poll: 100_000,
    in_place: false,
    csb: false,
    cached: false,
};
const ALL: Techniques =
    Techniques { moderate: 50_000, timers: true, combine: true, batch: true, cached: true, ..PLAIN };
const MAPPED: Techniques = Techniques { mapped: Some(true), ..ALL };
const NOTE: &str = "pktgen to an XDP drop; peer: QEMU's own card with TAP and a Linux bridge";

/// The 82540EM.
pub const E1000: Group = Group {
    name: "e1000",
    keys: &[("e1000.linux.64", "Linux guests on 82540EM, 64 B; QEMU's own e1000 with TAP and a bridge")],
    run: |plan, output| run(plan, output, "82540em", "e1000"),
    ..LINUX
};

/// The 82574L.
pub const E1000E: Group = Group {
    name: "e1000e",
    keys: &[
        ("e1000e.linux.64", "Linux guests on 82574L, 64 B; QEMU's own e1000e with TAP and a bridge"),
        ("e1000e.linux.rtt", "the same, ping"),
        ("e1000e.doorbells", "doorbell messages a frame, mapped, under load"),
        ("ladder.linux.64", "the same guests with each technique alone and together, 64 B"),
        ("delay.linux", "moderation from 0 to 1 ms against rate and round-trip time"),
    ],
    run: |plan, output| run(plan, output, "82574l", "e1000e"),
    ..LINUX
};

const LINUX: Group = Group { setup: 400.0, costs: 10.0, own_network: true, prepare: fetch, ..QUIET };

fn fetch() -> Result<(), Failure> {
    crate::peer::program("ip")?;
    image::qemu(CARDS)?;
    ringway_tests::qemu::with_cards().map(|_| ()).ok_or_else(|| "no QEMU with vfio-user is available".into())
}

/// Where frames to a receiving guest are counted.
enum Counter {
    /// A port's entry of the counters page.
    Port(usize),
    /// A TAP interface, which counts what its reader took.
    Tap(String),
}

/// Two guests; the first sends.
struct Pair {
    guests: [Guest; 2],
    receiver: String,
    counter: Counter,
}

/// What all guests have in common.
struct Common {
    folder: PathBuf,
    program: PathBuf,
    kernel: image::Kernel,
    /// The object file of the drop program, at the same path in the guests.
    drop: PathBuf,
    ip: PathBuf,
}

impl Common {
    fn new(folder: &Path) -> Result<Common, Failure> {
        let (folder, drop) = (folder.to_path_buf(), folder.join("drop.o"));
        std::fs::write(&drop, drop::object())?;
        let program = ringway_tests::qemu::with_cards().ok_or("no QEMU with vfio-user is available")?;
        Ok(Common { folder, program, kernel: image::qemu(CARDS)?, drop, ip: crate::peer::program("ip")? })
    }

    /// Starts guests of pair `number`; they boot concurrently.
    fn pair(&self, number: u8, interfaces: [Interface; 2], counter: Counter) -> Result<Pair, Failure> {
        let mut host = 0;
        let guests = interfaces.map(|mut interface| {
            host += 1;
            interface.address = Some(format!("10.99.{number}.{host}/24"));
            if !matches!(interface.attachment, Attachment::VfioUser { .. }) {
                interface.mac = Some(mac(number, host).to_string());
            }
            let name = format!("nic{number}-{host}");
            let mut spec = Spec::new(&name, Runner::Qemu, vec![interface]);
            spec.program = Some(self.program.clone());
            spec.kernel = Some(self.kernel.image.clone());
            spec.modules = Some(self.kernel.modules.clone());
            spec.drivers = vec!["pktgen".into()];
            spec.carried = vec![self.ip.clone(), self.drop.clone()];
            Guest::start(spec, &self.folder.join(&name))
        });
        let [sender, receiver] = guests;
        Ok(Pair { guests: [sender?, receiver?], receiver: format!("10.99.{number}.2"), counter })
    }

    /// Turns the receiver's drop program on or off.
    fn set_drop(&self, pair: &Pair, on: bool) -> Result<(), Failure> {
        let program = if on { format!("obj {} sec xdp", self.drop.display()) } else { "off".into() };
        succeeds(&pair.guests[1], &format!("{} link set dev eth0 xdpgeneric {program}", self.ip.display()))
    }

    /// Waits until a pair has booted, and prepares pktgen and the drop program.
    fn begin(&self, number: u8, pair: &Pair) -> Result<(), Failure> {
        for guest in &pair.guests {
            guest.ready(BOOT)?;
        }
        let pings = ping(&pair.guests[0], &pair.receiver, 5, 56, 0.2)?;
        if pings.times.is_empty() {
            return Err(format!("no ping reaches {}", pair.receiver).into());
        }
        let (to, address) = (mac(number, 2), &pair.receiver);
        let device = "/proc/net/pktgen/eth0";
        // Not every driver takes a frame twice.
        succeeds(
            &pair.guests[0],
            &format!(
                "echo add_device eth0 >/proc/net/pktgen/kpktgend_0 && for word in 'count 0' 'delay 0' \
                 'pkt_size 60' 'dst {address}' 'dst_mac {to}'; do echo $word >{device} || exit 1; done; \
                 echo clone_skb 1000 >{device} 2>/dev/null; true"
            ),
        )?;
        self.set_drop(pair, true)
    }
}

fn mac(number: u8, host: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, number, host])
}

fn succeeds(guest: &Guest, command: &str) -> Result<(), Failure> {
    let output = guest.run(command, COMMAND)?;
    match output.status {
        0 => Ok(()),
        status => Err(format!("{}: {command}: {status}: {}", guest.spec().name, output.text.trim()).into()),
    }
}

impl Pair {
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

    /// Why a guest has ended, with the end of its console.
    fn ended(&self) -> Option<String> {
        let guest = self.guests.iter().find(|guest| guest.ended().is_some())?;
        let why = guest.ready(Duration::ZERO).err()?;
        let console = match &why {
            ringway_guests::Error::Ended { console, .. } => std::fs::read(console).unwrap_or_default(),
            _ => Vec::new(),
        };
        let last = console.len().saturating_sub(CONSOLE);
        Some(format!("{why}: {}", String::from_utf8_lossy(&console[last..]).replace('\n', " ")))
    }

    /// Millions of frames a second that reach the receiver's ring.
    fn rate(&self, page: &[Counters], time: Duration) -> Result<f64, Failure> {
        let seconds = (time + 2 * MARGIN).as_secs_f64();
        let control = "/proc/net/pktgen/pgctrl";
        let command = format!("(echo start >{control}) & sleep {seconds:.1}; echo stop >{control}; wait");
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| succeeds(&self.guests[0], &command));
            std::thread::sleep(MARGIN);
            let (before, since) = (self.count(page)?, Instant::now());
            std::thread::sleep(time);
            let (after, elapsed) = (self.count(page)?, since.elapsed());
            sending.join().map_err(|_| "a thread of the benchmark failed")??;
            Ok(after.saturating_sub(before) as f64 / elapsed.as_secs_f64() / 1e6)
        })
    }

    /// The median round-trip time in microseconds. The drop program is off.
    fn round_trip(&self) -> Result<f64, Failure> {
        let pings = ping(&self.guests[0], &self.receiver, PINGS, 56, 0.01)?;
        if pings.lost() > 0 {
            return Err(format!("{} of {PINGS} pings were lost", pings.lost()).into());
        }
        Ok(pings.quantile(0.5) * 1e3)
    }
}

/// The pairs of a group: ours with trapped and with mapped doorbells, QEMU's own card, its virtio-net, and our
/// vhost-user port.
struct Bench<'a> {
    rig: Rig,
    common: &'a Common,
    model: &'static str,
    trapped: Pair,
    mapped: Pair,
    own: Pair,
    virtio: Pair,
    vhost: Pair,
}

const NAMES: [&str; 6] = ["left", "right", "mapped-left", "mapped-right", "vhost-left", "vhost-right"];

fn settings(model: &str, number: u8, host: u8, techniques: Techniques) -> Kind {
    let (mac, memory) = (Some(mac(number, host)), MEMORY);
    Kind::new(
        e1000::KIND.name,
        &Settings { model: model.into(), mac, mtu: None, memory, carrier: true, techniques },
    )
}

/// Attaches clients that wait at `listeners`, which may map registers.
fn accept(rig: &mut Rig, listeners: &[Listener]) -> Result<(), Failure> {
    for (name, listener) in NAMES.iter().zip(listeners) {
        if let Some(socket) = listener.accept()? {
            let is_card = !name.starts_with("vhost");
            let pages = is_card.then(|| memfd("registers", PAGES)).transpose()?;
            rig.attach(name, std::iter::once(socket).chain(pages).collect())?;
        }
    }
    rig.accept(&[])
}

impl<'a> Bench<'a> {
    fn start(
        common: &'a Common,
        bridge: &Bridge,
        model: &'static str,
        driver: &'static str,
    ) -> Result<Bench<'a>, Failure> {
        let mut rig = Rig::start(&[WORKER], NAMES.len(), Poll::Adaptive)?;
        let mut listeners = Vec::new();
        for (index, name) in NAMES.into_iter().enumerate() {
            let (number, host) = (index as u8 / 2, index as u8 % 2 + 1);
            let kind = match number {
                0 => settings(model, number, host, ALL),
                1 => settings(model, number, host, MAPPED),
                _ => vhost_user(),
            };
            rig.add(name, kind)?;
            listeners.push(listen(&common.folder.join(name))?);
        }
        let socket = |name: &str| common.folder.join(name);
        let card =
            |name: &str| Interface::new(Attachment::VfioUser { socket: socket(name), driver: driver.into() });
        let port = |name: &str| Interface::new(Attachment::VhostUser { socket: socket(name), listen: false });
        let tap = |index: usize, own: Option<&str>| Interface {
            card: own.map(String::from),
            ..bridge.interface(index, 0)
        };
        let named = |index: usize| Counter::Tap(format!("{BRIDGE}-t{index}"));
        let [l, r, ml, mr, vl, vr] = NAMES;
        let trapped = common.pair(0, [card(l), card(r)], Counter::Port(1))?;
        let mapped = common.pair(1, [card(ml), card(mr)], Counter::Port(3))?;
        let vhost = common.pair(2, [port(vl), port(vr)], Counter::Port(5))?;
        let own = common.pair(3, [tap(0, Some(driver)), tap(1, Some(driver))], named(1))?;
        let virtio = common.pair(4, [tap(2, None), tap(3, None)], named(3))?;
        let end = Instant::now() + BOOT;
        while !rig.is_up() {
            accept(&mut rig, &listeners)?;
            if let Some(why) = [&trapped, &mapped, &vhost].into_iter().find_map(Pair::ended) {
                return Err(why.into());
            }
            if Instant::now() > end {
                return Err(format!("the guests' drivers do not start: {}", rig.states()).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        rig.serve_while(|| {
            let pairs = [&trapped, &mapped, &vhost, &own, &virtio];
            (0..).zip(pairs).try_for_each(|(number, pair)| common.begin(number, pair))
        })?;
        Ok(Bench { rig, common, model, trapped, mapped, own, virtio, vhost })
    }

    /// Measures while sessions are served.
    fn measure<T: Send>(
        &mut self,
        work: impl FnOnce(&Pairs<'_>, &[Counters]) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        let Bench { rig, common, trapped, mapped, own, virtio, vhost, .. } = self;
        let (pairs, page) = (Pairs { common, trapped, mapped, own, virtio, vhost }, rig.page());
        rig.serve_while(|| work(&pairs, &page))
    }

    /// Changes the techniques of the pair with trapped doorbells.
    fn set(&mut self, techniques: Techniques) -> Result<(), Failure> {
        for host in [1, 2] {
            let kind = settings(self.model, 0, host, techniques);
            let to = Some(To::Switch(crate::rig::fabric::SWITCH.into()));
            self.rig.fabric.change_port(Port::new(NAMES[usize::from(host) - 1], kind, to))?;
        }
        Ok(())
    }

    /// Frames that a port's guest sent, writes to its tail registers, interrupts.
    fn exits(&self, port: &str) -> Result<[f64; 3], Failure> {
        let exits = self.rig.fabric.exits(port)?.ok_or("a port without registers")?;
        let tails = exits.registers.iter().filter(|register| ["TDT", "RDT"].contains(&&*register.name));
        let writes: u64 = tails.map(|register| register.writes).sum();
        Ok([exits.tx_frames, writes, exits.raised].map(|count| count as f64))
    }
}

/// The pairs, without the fabric.
struct Pairs<'a> {
    common: &'a Common,
    trapped: &'a Pair,
    mapped: &'a Pair,
    own: &'a Pair,
    virtio: &'a Pair,
    vhost: &'a Pair,
}

fn run(
    plan: &Plan,
    output: &mut Output<'_>,
    model: &'static str,
    driver: &'static str,
) -> Result<(), Failure> {
    let folder = Folder::new()?;
    let common = Common::new(folder.path())?;
    let bridge = Bridge::new(BRIDGE, 4)?;
    let mut bench = Bench::start(&common, &bridge, model, driver)?;
    let plan = plan.part(2.0);
    let key = format!("{driver}.linux.64");
    if output.wants(&key) {
        output.put(&key, rates(&plan, &mut bench));
    }
    if output.wants("e1000e.linux.rtt") {
        output.put("e1000e.linux.rtt", round_trips(&plan, &mut bench));
    }
    if output.wants("e1000e.doorbells") {
        output.put("e1000e.doorbells", doorbells(&plan, &mut bench));
    }
    if output.wants("ladder.linux.64") {
        output.put("ladder.linux.64", ladder(&plan, &mut bench));
    }
    if output.wants("delay.linux") {
        output.put("delay.linux", delay(&plan, &mut bench));
    }
    Ok(())
}

fn rates(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let is_mapped = bench.model == "82574l";
    let (slices, more) = bench.measure(|pairs, page| {
        let ours = if is_mapped { pairs.mapped } else { pairs.trapped };
        let mut more = [Vec::new(), Vec::new(), Vec::new()];
        let slices = plan.pairs(
            SLICE,
            |time| ours.rate(page, time),
            |time| {
                for (figures, pair) in more.iter_mut().zip([pairs.trapped, pairs.vhost, pairs.virtio]) {
                    figures.push(pair.rate(page, time)?);
                }
                pairs.own.rate(page, time)
            },
        )?;
        Ok((slices, more))
    })?;
    let [trapped, vhost, virtio] = more.map(|figures| median(&figures).unwrap_or_default());
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(3.0).note(NOTE);
    let entry = if is_mapped { entry.with("trapped doorbells", trapped) } else { entry };
    Ok(entry.with("our vhost-user port, virtio-net", vhost).with("QEMU's virtio-net, TAP and bridge", virtio))
}

fn round_trips(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let (slices, virtio): (Slices, _) = bench.measure(|pairs, _| {
        let measured = [pairs.mapped, pairs.own, pairs.virtio];
        measured.iter().try_for_each(|pair| pairs.common.set_drop(pair, false))?;
        let mut virtio = Vec::new();
        let slices = plan.pairs(
            SLICE,
            |_| pairs.mapped.round_trip(),
            |_| {
                virtio.push(pairs.virtio.round_trip()?);
                pairs.own.round_trip()
            },
        )?;
        measured.iter().try_for_each(|pair| pairs.common.set_drop(pair, true))?;
        Ok((slices, virtio))
    })?;
    let virtio = median(&virtio).unwrap_or_default();
    Ok(slices.entry("us", Better::Less).note(NOTE).with("QEMU's virtio-net, TAP and bridge", virtio))
}

fn doorbells(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let mut slices = Slices::default();
    let mut interrupts = Vec::new();
    for _ in 0..plan.slices(SLICE) {
        let before = [bench.exits(NAMES[2])?, bench.exits(NAMES[3])?];
        bench.measure(|pairs, page| pairs.mapped.rate(page, SLICE))?;
        let after = [bench.exits(NAMES[2])?, bench.exits(NAMES[3])?];
        let sum =
            |which: usize| (0..2).map(|port: usize| after[port][which] - before[port][which]).sum::<f64>();
        slices.ours.push(sum(1) / sum(0));
        interrupts.push(sum(2) / sum(0));
    }
    let interrupts = median(&interrupts).unwrap_or_default();
    Ok(slices
        .entry("messages", Better::Less)
        .at_most(0.001)
        .with("interrupts a frame, both guests", interrupts))
}

/// Figures of the pair with trapped doorbells: rate, and tail messages and interrupts a frame.
fn figures(plan: &Plan, bench: &mut Bench<'_>) -> Result<[f64; 3], Failure> {
    let mut rates = Vec::new();
    let before = [bench.exits(NAMES[0])?, bench.exits(NAMES[1])?];
    for _ in 0..(plan.slices(SLICE) / 3).max(1) {
        rates.push(bench.measure(|pairs, page| pairs.trapped.rate(page, SLICE))?);
    }
    let after = [bench.exits(NAMES[0])?, bench.exits(NAMES[1])?];
    let sum = |which: usize| (0..2).map(|port: usize| after[port][which] - before[port][which]).sum::<f64>();
    Ok([median(&rates).unwrap_or_default(), sum(1) / sum(0), sum(2) / sum(0)])
}

fn ladder(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let moderate = Techniques { moderate: 50_000, ..PLAIN };
    let combine = Techniques { combine: true, ..PLAIN };
    let rows = [
        ("plain", PLAIN),
        ("+ moderation", moderate),
        ("+ combining", combine),
        ("+ both", Techniques { combine: true, ..moderate }),
        ("+ back-end", Techniques { batch: true, cached: true, ..PLAIN }),
        ("+ all, trapped doorbells", ALL),
    ];
    let own = bench.measure(|pairs, page| pairs.own.rate(page, SLICE))?;
    let mut entry = Entry { unit: "Mpps".into(), ..Entry::default() }.note(NOTE);
    entry = entry.step("QEMU's own, TAP and bridge", &[("Mpps", own)]);
    for (name, techniques) in rows {
        bench.set(techniques)?;
        let [rate, doorbells, interrupts] = figures(plan, bench)?;
        let cells = [("Mpps", rate), ("doorbells a frame", doorbells), ("interrupts a frame", interrupts)];
        entry = entry.step(name, &cells);
    }
    let mapped = bench.measure(|pairs, page| pairs.mapped.rate(page, SLICE))?;
    entry.ours = Some(mapped);
    Ok(entry.step("+ all, mapped doorbells", &[("Mpps", mapped)]))
}

fn delay(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let mut entry = Entry { unit: "Mpps".into(), ..Entry::default() };
    for window in [0, 20, 50, 100, 200, 500, 1000] {
        bench.set(Techniques { moderate: window * 1000, ..ALL })?;
        let [rate, _, interrupts] = figures(&plan.part(0.5), bench)?;
        let trip = bench.measure(|pairs, _| {
            pairs.common.set_drop(pairs.trapped, false)?;
            let trip = pairs.trapped.round_trip()?;
            pairs.common.set_drop(pairs.trapped, true)?;
            Ok(trip)
        })?;
        let cells = [("Mpps", rate), ("interrupts a frame", interrupts), ("round trip, us", trip)];
        entry = entry.step(format!("{window} us"), &cells);
        entry.ours = Some(entry.ours.map_or(rate, |best| best.max(rate)));
    }
    bench.set(ALL)?;
    Ok(entry.note("moderation against rate and round-trip time; trapped doorbells"))
}
