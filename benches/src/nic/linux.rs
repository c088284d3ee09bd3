//! Stock Linux guests on emulated cards: the kernel's pktgen sends, and an XDP program drops what arrives, so that the
//! guests' own system calls don't hide the device. Peers: QEMU's own cards, with TAP and a Linux bridge.

use super::guests::{Bench, CARDS, Common, Run, Way};
use crate::Failure;
use crate::entry::{Better, Entry, median};
use crate::keys::{ByGroup, Folder, Group, QUIET, keys};
use crate::plan::Plan;
use crate::run::Output;
use ringway_linux_guests::image;
use ringway_port::e1000::Techniques;
use std::time::Duration;

pub const SLICE: Duration = Duration::from_secs(1);
/// The plain device: an interrupt and a publication for each frame.
pub const PLAIN: Techniques = Techniques {
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
pub const ALL: Techniques =
    Techniques { moderate: 50_000, timers: true, combine: true, batch: true, cached: true, ..PLAIN };
const MAPPED: Techniques = Techniques { mapped: Some(true), ..ALL };
const NOTE: &str = "pktgen to an XDP drop, which judges each frame by its number; peer: QEMU's own \
                    card with TAP and a Linux bridge";

/// The 82540EM.
pub const E1000: Group = Group {
    name: "e1000",
    keys: keys! {
        "e1000.linux.64": ByGroup, "Linux guests on 82540EM, 64 B; QEMU's own e1000 with TAP and a bridge";
    },
    run: |plan, output| run(plan, output, "82540em", "e1000"),
    ..LINUX
};

/// The 82574L.
pub const E1000E: Group = Group {
    name: "e1000e",
    keys: keys! {
        "e1000e.linux.64": ByGroup, "Linux guests on 82574L, 64 B; QEMU's own e1000e with TAP and a bridge";
        "e1000e.linux.rtt": ByGroup, "the same, ping";
        "e1000e.doorbells": ByGroup, "doorbell messages a frame, mapped, under load";
        "ladder.linux.64": ByGroup, "the same guests with each technique alone and together, 64 B";
        "delay.linux": ByGroup, "moderation from 0 to 1 ms against rate and round-trip time";
    },
    run: |plan, output| run(plan, output, "82574l", "e1000e"),
    ..LINUX
};

pub const LINUX: Group =
    Group { setup: 400.0, costs: 10.0, own_network: true, one_core: true, prepare: fetch, ..QUIET };

fn fetch() -> Result<(), Failure> {
    crate::peer::program("ip")?;
    image::qemu(CARDS)?;
    ringway_tests::qemu::with_cards().map(|_| ()).ok_or_else(|| "no QEMU with vfio-user is available".into())
}

/// The pairs of guests that a key needs.
fn ways(key: &str) -> &'static [Way] {
    match key {
        "e1000.linux.64" => &[Way::Trapped, Way::Own, Way::Vhost, Way::Virtio],
        "e1000e.linux.64" => &[Way::Mapped, Way::Trapped, Way::Own, Way::Vhost, Way::Virtio],
        "e1000e.linux.rtt" => &[Way::Mapped, Way::Own, Way::Virtio],
        "e1000e.doorbells" => &[Way::Mapped],
        "ladder.linux.64" => &[Way::Mapped, Way::Trapped, Way::Own],
        _ => &[Way::Trapped],
    }
}

fn run(
    plan: &Plan,
    output: &mut Output<'_>,
    model: &'static str,
    driver: &'static str,
) -> Result<(), Failure> {
    type Measure = fn(&Plan, &mut Bench<'_>) -> Result<Entry, Failure>;
    let keys: [(String, Measure); 5] = [
        (format!("{driver}.linux.64"), rates),
        ("e1000e.linux.rtt".into(), round_trips),
        ("e1000e.doorbells".into(), doorbells),
        ("ladder.linux.64".into(), ladder),
        ("delay.linux".into(), delay),
    ];
    let folder = Folder::new()?;
    let common = Common::new(folder.path())?;
    let wanted: Vec<_> = keys.into_iter().filter(|(key, _)| output.is_wanted(key)).collect();
    let mut all: Vec<(Way, Techniques)> = Vec::new();
    for way in wanted.iter().flat_map(|(key, _)| ways(key)) {
        if !all.iter().any(|(other, _)| other == way) {
            all.push((*way, if *way == Way::Mapped { MAPPED } else { ALL }));
        }
    }
    let mut bench = Bench::start(&common, model, driver, &all)?;
    for (key, measure) in wanted {
        if output.wants(&key) {
            output.put(&key, measure(&plan.part(2.0), &mut bench));
        }
    }
    Ok(())
}

/// The figures of several runs of one pair.
#[derive(Clone, Default)]
struct Runs([Vec<f64>; 5]);

impl Runs {
    fn rate(&mut self, run: &Run) -> f64 {
        let [sender, receiver, host] = run.stages;
        let figures = [run.rate, 100.0 * run.lost, sender, receiver, host];
        self.0.iter_mut().zip(figures).for_each(|(all, figure)| all.push(figure));
        run.rate
    }

    /// Their medians as a step has them.
    fn step(&self) -> Vec<(&'static str, f64)> {
        let names = ["Mpps", "lost, %", "sender, us", "receiver, us", "host, us"];
        let medians = self.0.iter().map(|figures| median(figures).unwrap_or_default());
        names.into_iter().zip(medians).collect()
    }
}

fn rates(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let is_mapped = bench.model() == "82574l";
    let ours = if is_mapped { Way::Mapped } else { Way::Trapped };
    let mut others = vec![
        ("our vhost-user ports, virtio-net", Way::Vhost),
        ("QEMU's virtio-net, TAP and bridge", Way::Virtio),
    ];
    if is_mapped {
        others.insert(0, ("ours, trapped doorbells", Way::Trapped));
    }
    let (slices, rows) = bench.measure(|pairs| {
        let (mut own, mut peer) = (Runs::default(), Runs::default());
        let mut more: Vec<Runs> = others.iter().map(|_| Runs::default()).collect();
        let slices = plan.pairs(
            SLICE,
            |time| Ok(own.rate(&pairs.run(ours, time)?)),
            |time| {
                for (runs, (_, way)) in more.iter_mut().zip(&others) {
                    runs.rate(&pairs.run(*way, time)?);
                }
                Ok(peer.rate(&pairs.run(Way::Own, time)?))
            },
        )?;
        Ok((slices, [vec![own, peer], more].concat()))
    })?;
    let names =
        ["ours", "QEMU's own, TAP and bridge"].into_iter().chain(others.iter().map(|(name, _)| *name));
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(3.0).note(NOTE);
    Ok(names.zip(&rows).fold(entry, |entry, (name, runs)| entry.step(name, &runs.step())))
}

fn round_trips(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let (slices, virtio) = bench.measure(|pairs| {
        let mut virtio = Vec::new();
        let slices = plan.pairs(
            SLICE,
            |_| pairs.round_trip(Way::Mapped),
            |_| {
                virtio.push(pairs.round_trip(Way::Virtio)?);
                pairs.round_trip(Way::Own)
            },
        )?;
        Ok((slices, virtio))
    })?;
    let virtio = median(&virtio).unwrap_or_default();
    Ok(slices.entry("us", Better::Less).note(NOTE).with("QEMU's virtio-net, TAP and bridge", virtio))
}

/// Rate, doorbell messages and interrupts a frame, and the lost part in percent, of a run between guests on our cards.
fn figures(bench: &mut Bench<'_>, way: Way) -> Result<[f64; 4], Failure> {
    let before = bench.exits(way)?;
    let run = bench.measure(|pairs| pairs.run(way, SLICE))?;
    let after = bench.exits(way)?;
    let [frames, messages, interrupts] = [0, 1, 2].map(|which: usize| after[which] - before[which]);
    Ok([run.rate, messages / frames, interrupts / frames, 100.0 * run.lost])
}

/// The medians of several runs.
fn medians(plan: &Plan, bench: &mut Bench<'_>, way: Way) -> Result<[f64; 4], Failure> {
    let mut all = [const { Vec::new() }; 4];
    for _ in 0..(plan.slices(SLICE) / 3).max(1) {
        let figures = figures(bench, way)?;
        all.iter_mut().zip(figures).for_each(|(all, figure)| all.push(figure));
    }
    Ok(all.map(|figures| median(&figures).unwrap_or_default()))
}

/// The figures as a step has them.
fn cells([rate, doorbells, interrupts, lost]: [f64; 4]) -> [(&'static str, f64); 4] {
    [("Mpps", rate), ("doorbells a frame", doorbells), ("interrupts a frame", interrupts), ("lost, %", lost)]
}

fn doorbells(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let mut interrupts = Vec::new();
    let slices = plan.alone(SLICE, |_| {
        let [_, messages, raised, _] = figures(bench, Way::Mapped)?;
        interrupts.push(raised);
        Ok(messages)
    })?;
    let interrupts = median(&interrupts).unwrap_or_default();
    Ok(slices
        .entry("messages", Better::Less)
        .at_most(0.001)
        .with("interrupts a frame, both guests", interrupts))
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
    let own = bench.measure(|pairs| pairs.run(Way::Own, SLICE))?;
    let mut entry = Entry { unit: "Mpps".into(), ..Entry::default() }.note(NOTE);
    let own = [("Mpps", own.rate), ("lost, %", 100.0 * own.lost)];
    entry = entry.step("QEMU's own, TAP and bridge", &own);
    for (name, techniques) in rows {
        bench.set(Way::Trapped, techniques)?;
        entry = entry.step(name, &cells(medians(plan, bench, Way::Trapped)?));
    }
    bench.set(Way::Trapped, ALL)?;
    let mapped = medians(plan, bench, Way::Mapped)?;
    entry.ours = Some(mapped[0]);
    Ok(entry.step("+ all, mapped doorbells", &cells(mapped)))
}

fn delay(plan: &Plan, bench: &mut Bench<'_>) -> Result<Entry, Failure> {
    let mut entry = Entry { unit: "Mpps".into(), ..Entry::default() };
    for window in [0, 20, 50, 100, 200, 500, 1000] {
        bench.set(Way::Trapped, Techniques { moderate: window * 1000, ..ALL })?;
        let [rate, _, interrupts, lost] = medians(&plan.part(0.5), bench, Way::Trapped)?;
        let trip = bench.measure(|pairs| pairs.round_trip(Way::Trapped))?;
        let cells =
            [("Mpps", rate), ("interrupts a frame", interrupts), ("lost, %", lost), ("round trip, us", trip)];
        entry = entry.step(format!("{window} us"), &cells);
        entry.ours = Some(entry.ours.map_or(rate, |best| best.max(rate)));
    }
    bench.set(Way::Trapped, ALL)?;
    Ok(entry.note("moderation against rate and round-trip time; trapped doorbells"))
}
