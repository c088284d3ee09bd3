//! `ringway top`.

use crate::arguments::{Target, Top};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text::{self, Table, cell, short};
use ringway_control::api::{Counts, ProcessView, StatsView, UsageView};
use serde::Serialize;

/// A process during the last interval.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    name: String,
    kind: String,
    pid: u32,
    /// Percent of a core; none for a function on a worker, whose time is the worker's.
    cpu: Option<f64>,
    /// Bytes.
    memory: Option<u64>,
    /// Frames and bits a second that it sends and receives by its ports.
    tx_frames: f64,
    tx_bits: f64,
    rx_frames: f64,
    rx_bits: f64,
}

#[derive(Serialize)]
struct Rows {
    at: u64,
    seconds: f64,
    processes: Vec<Row>,
}

/// Both views of one moment.
struct Sample {
    usage: UsageView,
    stats: StatsView,
}

fn sample(client: &mut Client) -> Result<Sample, CommandError> {
    Ok(Sample { usage: client.get("/v1/usage")?, stats: client.get("/v1/stats")? })
}

/// Shows what VMs, functions and guests use, the busiest first.
pub fn top(target: &Target, json: bool, options: &Top) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    text::watch(json, (options.interval, options.count), || sample(&mut client), between, shown)
}

fn between(last: &Sample, now: &Sample) -> Rows {
    let seconds = |last: u64, now: u64| (now.saturating_sub(last) as f64 / 1e9).max(1e-9);
    let passed = seconds(last.usage.at, now.usage.at);
    let counted = seconds(last.stats.at, now.stats.at);
    let none = Counts::default();
    let counts = |sample: &'_ StatsView, port: &str| {
        let port = sample.ports.iter().find(|own| own.name == port);
        port.map_or(none.clone(), |port| port.total.clone())
    };
    let row = |process: &ProcessView| {
        // A process that was replaced begins at zero.
        let before =
            last.usage.processes.iter().find(|own| own.name == process.name && own.pid == process.pid);
        let cpu = before.map_or(0, |before| process.cpu.saturating_sub(before.cpu));
        let is_own = process.pid != 0;
        let rate = |of: fn(&Counts) -> u64| {
            let port =
                |port: &String| of(&counts(&now.stats, port)).saturating_sub(of(&counts(&last.stats, port)));
            process.ports.iter().map(port).sum::<u64>() as f64 / counted
        };
        Row {
            name: process.name.clone(),
            kind: process.kind.clone(),
            pid: process.pid,
            cpu: is_own.then_some(cpu as f64 / 1e7 / passed),
            memory: is_own.then_some(process.memory),
            tx_frames: rate(|total| total.tx_frames),
            tx_bits: 8.0 * rate(|total| total.tx_bytes),
            rx_frames: rate(|total| total.rx_frames),
            rx_bits: 8.0 * rate(|total| total.rx_bytes),
        }
    };
    let mut processes: Vec<Row> = now.usage.processes.iter().map(row).collect();
    let load = |row: &Row| (row.cpu.unwrap_or(0.0), row.tx_frames + row.rx_frames);
    processes.sort_by(|one, other| {
        let ((cpu, frames), (own, few)) = (load(other), load(one));
        cpu.total_cmp(&own).then(frames.total_cmp(&few)).then(one.name.cmp(&other.name))
    });
    Rows { at: now.usage.at, seconds: passed, processes }
}

fn shown(rows: &Rows) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "KIND",
        ">PID",
        ">CPU %",
        ">MEMORY MB",
        ">TX FRAMES/S",
        ">TX BIT/S",
        ">RX FRAMES/S",
        ">RX BIT/S",
    ]);
    for row in &rows.processes {
        let busy = |value: f64| (short(value), if value > 0.0 { text::GOOD } else { text::PLAIN });
        let or_none = |figure: Option<String>| cell(figure.unwrap_or("-".into()));
        table.row(vec![
            cell(&row.name),
            cell(&row.kind),
            or_none((row.pid != 0).then(|| row.pid.to_string())),
            or_none(row.cpu.map(|cpu| format!("{cpu:.1}"))),
            or_none(row.memory.map(|bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)))),
            busy(row.tx_frames),
            busy(row.tx_bits),
            busy(row.rx_frames),
            busy(row.rx_bits),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_control::api::PortStats;

    fn moment(at: u64, cpu: u64, pid: u32, frames: u64) -> Sample {
        let process = |name: &str, pid, cpu, ports: &[&str]| ProcessView {
            name: name.into(),
            kind: "vm".into(),
            pid,
            cpu,
            memory: 3 << 20,
            ports: ports.iter().map(ToString::to_string).collect(),
        };
        let processes =
            vec![process("data", 1, 0, &[]), process("f", pid, cpu, &["a", "b"]), process("w", 0, 0, &["c"])];
        let port = |name: &str, tx_frames, rx_frames| PortStats {
            name: name.into(),
            total: Counts { tx_frames, tx_bytes: 60 * tx_frames, rx_frames, ..Counts::default() },
            queues: Vec::new(),
        };
        let ports = vec![port("a", frames, 0), port("b", frames, frames), port("c", 0, frames)];
        Sample { usage: UsageView { at, processes }, stats: StatsView { at, ports } }
    }

    #[test]
    fn rates_and_parts_are_of_the_interval_and_the_busiest_is_first() {
        let second = 1_000_000_000;
        let rows = between(&moment(second, 5 * second, 7, 100), &moment(3 * second, 6 * second, 7, 300));
        let names: Vec<&str> = rows.processes.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["f", "w", "data"]);
        let [function, worker, _] = &rows.processes[..] else { panic!("three") };
        assert_eq!((function.cpu, function.tx_frames, function.rx_frames), (Some(50.0), 200.0, 100.0));
        assert_eq!((function.tx_bits, worker.cpu, worker.memory), (96_000.0, None, None));
        let text = shown(&rows).render(None);
        assert!(text.contains("50.0") && text.contains("3.0") && text.contains('-'), "{text}");
    }

    #[test]
    fn a_process_that_was_replaced_begins_at_zero() {
        let rows = between(&moment(0, 9_000_000_000, 7, 0), &moment(1_000_000_000, 20_000_000, 8, 0));
        assert_eq!(rows.processes.iter().find(|row| row.name == "f").map(|row| row.cpu), Some(Some(0.0)));
    }
}
