//! Stock Linux guests with sockets on emulated cards: each row of the ladder, with one and with two virtual
//! processors.

use super::guests::{Bench, Common, Way};
use super::linux::{ALL, LINUX, PLAIN};
use crate::Failure;
use crate::entry::{Entry, median};
use crate::keys::{ByGroup, Folder, Group, keys};
use crate::plan::Plan;
use crate::run::Output;
use ringway_port::e1000::Techniques;

/// The 82540EM, for which there is a driver of ours as well.
pub const GROUP: Group = Group {
    name: "sockets",
    keys: keys! {
        "sockets.udp.64": ByGroup,
            "Linux guests on 82540EM, sockets: UDP in frames of 64 B, with 1 and 2 processors";
        "sockets.udp.1500": ByGroup, "the same, UDP in frames of 1500 B";
        "sockets.tcp": ByGroup, "the same, one TCP stream";
        "sockets.rtt": ByGroup, "the same, ping";
    },
    setup: 900.0,
    costs: 30.0,
    run,
    ..LINUX
};

const MODEL: &str = "82540em";
const DRIVER: &str = "e1000";
const PROCESSORS: [u32; 2] = [1, 2];
const NOTE: &str = "received by iperf3, or ping's median; exits (accesses to registers), doorbells and \
                    interrupts are of both guests, for each frame that either sent; QEMU does not count \
                    those of its own cards";

/// Characters of an error in a note.
const ERROR: usize = 100;

/// What is sent, and how the figure is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// Datagrams of so many bytes.
    Udp(u32),
    Tcp,
    Ping,
}

impl Traffic {
    const EACH: [(&'static str, Traffic); 4] = [
        // With headers of Ethernet, IPv4 and UDP: 60 bytes, and the frame's checksum.
        ("sockets.udp.64", Traffic::Udp(18)),
        ("sockets.udp.1500", Traffic::Udp(1458)),
        ("sockets.tcp", Traffic::Tcp),
        ("sockets.rtt", Traffic::Ping),
    ];

    fn unit(self) -> &'static str {
        match self {
            Traffic::Udp(_) => "Mpps",
            Traffic::Tcp => "Gb/s",
            Traffic::Ping => "us",
        }
    }
}

/// A row of the ladder.
struct Row {
    name: &'static str,
    way: Way,
    techniques: Techniques,
}

fn rows(module: bool) -> Vec<Row> {
    let moderate = Techniques { moderate: 50_000, ..PLAIN };
    let row = |name, way, techniques| Row { name, way, techniques };
    let mut rows = vec![
        row("QEMU's own, TAP and bridge", Way::Own, PLAIN),
        row("plain", Way::Trapped, PLAIN),
        row("+ moderation", Way::Trapped, moderate),
        row("+ combining", Way::Trapped, Techniques { combine: true, ..PLAIN }),
        row("+ both", Way::Trapped, Techniques { combine: true, ..moderate }),
        row("+ back-end", Way::Trapped, Techniques { batch: true, cached: true, ..PLAIN }),
        row("+ all without CSB", Way::Trapped, ALL),
    ];
    if module {
        rows.push(row("+ CSB", Way::Module, Techniques { csb: true, ..PLAIN }));
        rows.push(row("+ all", Way::Module, Techniques { csb: true, timers: false, moderate: 0, ..ALL }));
    }
    rows.push(row("our vhost-user ports, virtio-net", Way::Vhost, PLAIN));
    rows
}

/// The figures of a row for each kind of traffic, by name.
type Cells = Vec<(String, f64)>;

fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    let folder = Folder::new()?;
    let mut common = Common::new(folder.path())?;
    let mut why = String::new();
    if let Err(error) = common.build_module(DRIVER) {
        why = format!("without rows of our driver: {error}");
    }
    let rows = rows(common.has_module());
    let wanted: Vec<_> = Traffic::EACH.into_iter().filter(|(key, _)| output.is_wanted(key)).collect();
    let mut tables: Vec<Vec<Cells>> = wanted.iter().map(|_| vec![Cells::new(); rows.len()]).collect();
    for processors in PROCESSORS {
        common.processors = processors;
        let mut ways: Vec<(Way, Techniques)> = Vec::new();
        for row in &rows {
            if !ways.iter().any(|(way, _)| *way == row.way) {
                ways.push((row.way, row.techniques));
            }
        }
        let mut bench = Bench::start(&common, MODEL, DRIVER, &ways)?;
        for (index, row) in rows.iter().enumerate() {
            if row.way.is_card() {
                bench.set(row.way, row.techniques)?;
            }
            for ((_, traffic), table) in wanted.iter().zip(&mut tables) {
                match cells(plan, &mut bench, row.way, *traffic) {
                    Ok(figures) => {
                        let named = figures.into_iter().map(|(name, it)| (column(processors, name), it));
                        table[index].extend(named);
                    }
                    Err(error) => {
                        let error: String =
                            error.to_string().replace('\n', " ").chars().take(ERROR).collect();
                        why = format!("{why}; {}, {processors} processors: {error}", row.name);
                    }
                }
            }
        }
    }
    for ((key, traffic), table) in wanted.into_iter().zip(tables) {
        if output.wants(key) {
            let entry = entry(&rows, traffic, &table);
            output.put(key, Ok(if why.is_empty() { entry } else { entry.note(&why) }));
        }
    }
    Ok(())
}

/// The name of a figure of guests with so many processors.
fn column(processors: u32, figure: &str) -> String {
    format!("{processors} vCPU: {figure}")
}

/// The rows as steps; the figure itself is that of all techniques with one processor.
fn entry(rows: &[Row], traffic: Traffic, table: &[Cells]) -> Entry {
    let first = column(PROCESSORS[0], traffic.unit());
    let mut entry = Entry { unit: traffic.unit().into(), ..Entry::default() }.note(NOTE);
    for (row, cells) in rows.iter().zip(table) {
        let figures: Vec<(&str, f64)> = cells.iter().map(|(name, figure)| (name.as_str(), *figure)).collect();
        if row.name.starts_with("+ all") {
            entry.ours = figures.iter().find(|(name, _)| *name == first).map(|(_, figure)| *figure);
        }
        entry = entry.step(row.name, &figures);
    }
    entry
}

/// The medians of some runs of a row.
fn cells(
    plan: &Plan,
    bench: &mut Bench<'_>,
    way: Way,
    traffic: Traffic,
) -> Result<Vec<(&'static str, f64)>, Failure> {
    let counts = way.is_card();
    let before = if counts { bench.exits(way)? } else { [0.0; 4] };
    let runs = bench.measure(|pairs| {
        let once = || match traffic {
            Traffic::Udp(bytes) => pairs.datagrams(way, bytes),
            Traffic::Tcp => pairs.stream(way),
            Traffic::Ping => pairs.round_trip(way),
        };
        (0..(plan.slices(super::linux::SLICE) / 3).max(1)).map(|_| once()).collect::<Result<Vec<_>, _>>()
    })?;
    let mut figures = vec![(traffic.unit(), median(&runs).unwrap_or_default())];
    if counts {
        let after = bench.exits(way)?;
        let [frames, doorbells, interrupts, exits] =
            [0, 1, 2, 3].map(|which: usize| after[which] - before[which]);
        let each = |count: f64| count / frames.max(1.0);
        let counts = [("exits", exits), ("doorbells", doorbells), ("interrupts", interrupts)];
        figures.extend(counts.map(|(name, count)| (name, each(count))));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_both_numbers_of_processors_side_by_side() {
        let rows = rows(true);
        let cells = |figure: f64| -> Cells {
            vec![("1 vCPU: Gb/s".into(), figure), ("2 vCPU: Gb/s".into(), 2.0 * figure)]
        };
        let table: Vec<Cells> = (0..rows.len()).map(|row| cells(row as f64)).collect();
        let entry = entry(&rows, Traffic::Tcp, &table);
        let all = rows.iter().position(|row| row.name == "+ all").unwrap();
        assert_eq!((entry.ours, entry.steps.len()), (Some(all as f64), rows.len()));
        assert_eq!(entry.steps[all].figures["2 vCPU: Gb/s"], 2.0 * all as f64);
    }
}
