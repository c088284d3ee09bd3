//! `ringway stats`.

use crate::arguments::{Stats, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text::{self, Table, cell, short};
use anstyle::Style;
use ringway_control::api::{Counts, ExitsView, PortStats, RegisterView, StatsView};
use serde::Serialize;
use std::collections::BTreeMap;

/// Rates of a port, per second.
#[derive(Debug, PartialEq, Serialize)]
struct Rate {
    name: String,
    tx_frames: f64,
    tx_bits: f64,
    rx_frames: f64,
    rx_bits: f64,
    kicks: f64,
    interrupts: f64,
    drops: f64,
    /// Drops by reason since the fabric came up.
    dropped: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct Rates {
    at: u64,
    seconds: f64,
    ports: Vec<Rate>,
}

/// Shows counters, or rates.
pub fn stats(target: &Target, json: bool, options: &Stats) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    if options.exits {
        let name = options.port.as_deref().unwrap_or_default();
        let view: ExitsView = client.get(&format!("/v1/ports/{name}/exits"))?;
        if json {
            text::json(&view);
        } else {
            exits(&view).print();
            println!("{}", summary(&view));
        }
        return Ok(());
    }
    let port = options.port.as_deref();
    if options.watch {
        let times = (options.interval, options.count);
        return text::watch(json, times, || fetch(&mut client, port), between, shown);
    }
    let view = fetch(&mut client, port)?;
    if json {
        text::json(&view);
    } else {
        totals(&view).print();
    }
    Ok(())
}

/// The counters, of one port if it is named.
fn fetch(client: &mut Client, port: Option<&str>) -> Result<StatsView, CommandError> {
    let mut view: StatsView = client.get("/v1/stats")?;
    if let Some(port) = port {
        view.ports.retain(|stats| stats.name == port);
        if view.ports.is_empty() {
            let name = port.escape_debug();
            return Err(CommandError::Unknown(format!(
                "there is no port \"{name}\"; `ringway ps` shows those there are"
            )));
        }
    }
    Ok(view)
}

/// Accesses by register, most first.
fn exits(view: &ExitsView) -> Table {
    let mut table = Table::new(&["REGISTER", ">READS", ">WRITES", "MAPPED"]);
    let mut rows: Vec<_> = view.registers.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.reads + row.writes));
    for RegisterView { name, reads, writes, mapped } in rows {
        let mapped = if *mapped { "yes" } else { "" };
        table.row(vec![cell(name), cell(reads), cell(writes), cell(mapped)]);
    }
    table
}

/// Exits, doorbells and interrupts for each frame.
fn summary(view: &ExitsView) -> String {
    let each = |count: u64, frames: u64| match frames {
        0 => "-".to_string(),
        _ => format!("{:.3}", count as f64 / frames as f64),
    };
    let ExitsView { tx_frames, rx_frames, tx_doorbells, rx_doorbells, raised, held, .. } = view;
    let exits = view.registers.iter().map(|row| row.reads + row.writes).sum();
    let trapped = view.registers.iter().find(|row| row.name == "TDT").map_or(0, |row| row.writes);
    let frames = tx_frames + rx_frames;
    format!(
        "frames      {tx_frames} sent, {rx_frames} received\n\
         exits       {exits}, {} a frame\n\
         doorbells   {trapped} trapped, {} a sent frame; seen: {tx_doorbells} TX, {rx_doorbells} RX\n\
         interrupts  {raised} raised, {held} held; {} frames an interrupt",
        each(exits, frames),
        each(trapped, *tx_frames),
        each(frames, *raised),
    )
}

/// Drops of both directions by reason.
fn dropped(counts: &Counts) -> BTreeMap<String, u64> {
    let mut all = counts.tx_drops.clone();
    for (reason, count) in &counts.rx_drops {
        *all.entry(reason.clone()).or_default() += count;
    }
    all
}

fn reasons(dropped: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = dropped
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    words.join(", ")
}

const TOTALS: [&str; 8] =
    ["PORT", ">TX FRAMES", ">TX BYTES", ">RX FRAMES", ">RX BYTES", ">KICKS", ">INTERRUPTS", ">FAULTS"];
/// Columns for ports whose guest has, or had, an IOMMU.
const IOTLB: [&str; 4] = [">IOTLB HITS", ">MISSES", ">INVALIDATIONS", ">REFUSED"];

fn totals(view: &StatsView) -> Table {
    let iotlb = |total: &Counts| {
        [total.iotlb_hits, total.iotlb_misses, total.iotlb_invalidations, total.iotlb_faults]
    };
    let is_translated = view.ports.iter().any(|port| iotlb(&port.total).iter().any(|&count| count > 0));
    let translated: &[&str] = if is_translated { &IOTLB } else { &[] };
    let mut table = Table::new(&[&TOTALS[..], translated, &[">DROPS", "REASONS"]].concat());
    for PortStats { name, total, .. } in &view.ports {
        let mut row = vec![
            cell(name),
            cell(total.tx_frames),
            cell(total.tx_bytes),
            cell(total.rx_frames),
            cell(total.rx_bytes),
            cell(total.kicks),
            cell(total.interrupts),
            (total.faults.to_string(), alarm(total.faults > 0)),
        ];
        if is_translated {
            let [known @ .., refused] = iotlb(total);
            row.extend(known.map(cell));
            row.push((refused.to_string(), alarm(refused > 0)));
        }
        row.push((total.drops().to_string(), alarm(total.drops() > 0)));
        row.push(cell(reasons(&dropped(total))));
        table.row(row);
    }
    table
}

fn alarm(wrong: bool) -> Style {
    if wrong { text::FAIR } else { text::PLAIN }
}

fn between(last: &StatsView, now: &StatsView) -> Rates {
    let seconds = (now.at.saturating_sub(last.at) as f64 / 1e9).max(1e-9);
    let none = Counts::default();
    let rate = |port: &PortStats| {
        let before =
            last.ports.iter().find(|other| other.name == port.name).map_or(&none, |other| &other.total);
        // Counters of a port that was removed and added again restart at zero.
        let per = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let total = &port.total;
        Rate {
            name: port.name.clone(),
            tx_frames: per(total.tx_frames, before.tx_frames),
            tx_bits: per(total.tx_bytes, before.tx_bytes) * 8.0,
            rx_frames: per(total.rx_frames, before.rx_frames),
            rx_bits: per(total.rx_bytes, before.rx_bytes) * 8.0,
            kicks: per(total.kicks, before.kicks),
            interrupts: per(total.interrupts, before.interrupts),
            drops: per(total.drops(), before.drops()),
            dropped: dropped(total),
        }
    };
    Rates { at: now.at, seconds, ports: now.ports.iter().map(rate).collect() }
}

fn shown(rates: &Rates) -> Table {
    let mut table = Table::new(&[
        "PORT",
        ">TX FRAMES/S",
        ">TX BIT/S",
        ">RX FRAMES/S",
        ">RX BIT/S",
        ">KICKS/S",
        ">INTERRUPTS/S",
        ">DROPS/S",
        "DROPPED",
    ]);
    for rate in &rates.ports {
        let busy = |value: f64| (short(value), if value > 0.0 { text::GOOD } else { text::PLAIN });
        table.row(vec![
            cell(&rate.name),
            busy(rate.tx_frames),
            busy(rate.tx_bits),
            busy(rate.rx_frames),
            busy(rate.rx_bits),
            cell(short(rate.kicks)),
            cell(short(rate.interrupts)),
            (short(rate.drops), alarm(rate.drops > 0.0)),
            cell(reasons(&rate.dropped)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iommu_columns_appear_only_with_an_iommu() {
        let view = |hits, misses| {
            let total = Counts { tx_frames: 7, iotlb_hits: hits, iotlb_misses: misses, ..Counts::default() };
            StatsView { at: 1, ports: vec![PortStats { name: "a".into(), total, queues: Vec::new() }] }
        };
        assert!(!totals(&view(0, 0)).render(None).contains("IOTLB"));
        let text = totals(&view(51, 42)).render(None);
        assert!(text.contains("IOTLB HITS") && text.contains("51") && text.contains("42"), "{text}");
    }

    #[test]
    fn exits_are_shown_a_frame() {
        let row =
            |name: &str, reads, writes, mapped| RegisterView { name: name.into(), reads, writes, mapped };
        let view = ExitsView {
            registers: vec![row("ICR", 20, 0, false), row("TDT", 0, 50, true)],
            tx_frames: 100,
            rx_frames: 100,
            tx_doorbells: 60,
            raised: 40,
            ..ExitsView::default()
        };
        let table = exits(&view).render(None);
        assert!(table.find("TDT") < table.find("ICR"), "{table}");
        let text = summary(&view);
        assert!(
            text.contains("70, 0.350 a frame") && text.contains("50 trapped, 0.500 a sent frame"),
            "{text}"
        );
        assert!(text.contains("40 raised, 0 held; 5.000 frames an interrupt"), "{text}");
        assert!(summary(&ExitsView::default()).contains("0, - a frame"));
    }

    #[test]
    fn rates_are_differences_over_time() {
        let view = |at, tx_frames, tx_bytes| StatsView {
            at,
            ports: vec![PortStats {
                name: "a".into(),
                total: Counts { tx_frames, tx_bytes, ..Counts::default() },
                queues: Vec::new(),
            }],
        };
        let rates = between(&view(1_000_000_000, 10, 600), &view(3_000_000_000, 110, 6_600));
        assert_eq!((rates.ports[0].tx_frames, rates.ports[0].tx_bits), (50.0, 24_000.0));
        let again = between(&view(1_000_000_000, 10, 600), &view(3_000_000_000, 0, 0));
        assert_eq!(again.ports[0].tx_frames, 0.0);
    }
}
