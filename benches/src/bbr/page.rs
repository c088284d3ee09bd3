//! The figures of docs/bbr.md: a table, and plots.

use super::chart::{Axis, Bars, Lines, Series};
use super::document::Figures;
use crate::entry::Entry;
use crate::report::{self, Report};
use std::fmt::Write;

/// A plot: its file, and what it shows; `None` without its rows.
type Plot = (&'static str, &'static str, fn(&Report) -> Option<String>);

const PLOTS: [Plot; 7] = [
    ("loss.svg", "Throughput against loss", loss),
    ("bloat.svg", "Time in queues", bloat),
    ("shallow.svg", "Shallow queues", shallow),
    ("share.svg", "BBRv1 beside CUBIC", share),
    ("probe-rtt.svg", "Frames on the line against time", probe_rtt),
    ("lateness.svg", "Lateness of timers", lateness),
    ("ablation.svg", "What exact time, buffers and pacing are worth", ablation),
];

/// The table, the figures of cells, and the plots.
pub fn figures(report: &Report) -> Figures {
    let keys = super::GROUPS.iter().flat_map(|group| group.keys).map(|key| (key.name, key.what));
    let keys: Vec<_> = keys.collect();
    let mut figures = Figures { text: report::markdown(report, &keys), images: Vec::new() };
    for (file, title, draw) in PLOTS {
        let Some(image) = draw(report) else { continue };
        // Writing to a string does not fail.
        let _ = write!(figures.text, "\n![{title}](bbr/{file})\n");
        figures.images.push((file.into(), image));
    }
    for (key, entry) in report.iter().filter(|(_, entry)| !entry.steps.is_empty()) {
        figures.text.push_str(&steps(key, entry));
    }
    figures
}

/// The steps of a row as a table.
fn steps(key: &str, entry: &Entry) -> String {
    let mut names: Vec<&String> = entry.steps.iter().flat_map(|step| step.figures.keys()).collect();
    names.sort();
    names.dedup();
    let heads: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let mut out = format!("\n`{key}`, {}:\n\n| | {} |\n|---|", entry.unit, heads.join(" | "));
    out.push_str(&"---|".repeat(names.len()));
    for step in &entry.steps {
        let cell = |name: &&String| step.figures.get(*name).map_or("-".into(), |value| format!("{value:.2}"));
        let cells: Vec<String> = names.iter().map(cell).collect();
        let _ = write!(out, "\n| {} | {} |", step.name, cells.join(" | "));
    }
    out + "\n"
}

/// The number that a step's name begins with.
fn leading(name: &str) -> Option<f64> {
    name.split(['%', ' ']).next()?.parse().ok()
}

/// A figure of each step against the number of its name.
fn points(entry: &Entry, figure: &str) -> Vec<[f64; 2]> {
    let point = |step: &crate::entry::Step| Some([leading(&step.name)?, *step.figures.get(figure)?]);
    entry.steps.iter().filter_map(point).collect()
}

/// Lines of rows: ours and the kernel's.
fn compared<'a>(report: &Report, rows: &[(&str, [&'a str; 2])], figure: &str) -> Option<Vec<Series<'a>>> {
    let mut series = Vec::new();
    for (colour, (key, names)) in rows.iter().enumerate() {
        let Some(entry) = report.get(*key) else { continue };
        for (side, name) in ["ours", "peer"].into_iter().zip(names) {
            let points = points(entry, &format!("{side}{figure}"));
            if !points.is_empty() {
                series.push(Series { name, colour, dashed: side == "peer", dots: true, points });
            }
        }
    }
    (!series.is_empty()).then_some(series)
}

fn loss(report: &Report) -> Option<String> {
    let rows = [
        ("loss", ["BBRv1", "kernel's BBRv1"]),
        ("loss.cubic", ["CUBIC", "kernel's CUBIC"]),
        ("loss.bbr3", ["BBRv3", ""]),
    ];
    let series = compared(report, &rows, "")?;
    let x = Axis { label: "loss, %", log: true, bounds: None };
    let y = Axis { label: "Mb/s; 100 Mb/s, 100 ms", bounds: Some([0.0, 100.0]), ..Axis::default() };
    Some(Lines { title: "Throughput against loss", x, y, series }.svg())
}

fn bloat(report: &Report) -> Option<String> {
    let rows = [("bloat", ["BBRv1", "kernel's BBRv1"]), ("bloat.cubic", ["CUBIC", "kernel's CUBIC"])];
    let series = compared(report, &rows, " ms")?;
    let x = Axis { label: "queue, bandwidth-delay products", log: true, bounds: None };
    let y = Axis { label: "ms in the queue; 50 Mb/s, 30 ms, two flows", ..Axis::default() };
    Some(Lines { title: "Time in queues", x, y, series }.svg())
}

fn shallow(report: &Report) -> Option<String> {
    let rows = [
        ("shallow", ["BBRv1", "kernel's BBRv1"]),
        ("shallow.cubic", ["CUBIC", "kernel's CUBIC"]),
        ("shallow.bbr3", ["BBRv3", ""]),
    ];
    let series = compared(report, &rows, " dropped, %")?;
    let x = Axis { label: "queue, bandwidth-delay products", log: true, bounds: None };
    let y = Axis { label: "% of frames dropped; 100 Mb/s, 100 ms", ..Axis::default() };
    Some(Lines { title: "Frames dropped by shallow queues", x, y, series }.svg())
}

fn share(report: &Report) -> Option<String> {
    let series = compared(report, &[("share", ["BBRv1", "kernel's BBRv1"])], " bbr, %")?;
    let x = Axis { label: "queue, bandwidth-delay products", log: true, bounds: None };
    let y =
        Axis { label: "% of the throughput; 50 Mb/s, 30 ms", bounds: Some([0.0, 100.0]), ..Axis::default() };
    Some(Lines { title: "Part of BBRv1 beside CUBIC", x, y, series }.svg())
}

/// The curves of a row whose names end with `end`.
fn curves<'a>(entry: &'a Entry, end: &str, dots: bool) -> Option<Vec<Series<'a>>> {
    let curves = entry.series.iter().filter_map(|(name, points)| Some((name.strip_suffix(end)?, points)));
    let series = curves.enumerate().map(|(colour, (name, points))| {
        let dashed = name == "kernel";
        Series { name, colour, dashed, dots, points: points.clone() }
    });
    let series: Vec<Series<'a>> = series.collect();
    (!series.is_empty()).then_some(series)
}

fn probe_rtt(report: &Report) -> Option<String> {
    let series = curves(report.get("probe.rtt")?, ": frames", false)?;
    let x = Axis { label: "s", ..Axis::default() };
    let y = Axis { label: "frames in the queue and under way; 100 Mb/s, 40 ms", ..Axis::default() };
    Some(Lines { title: "Dips that measure the round-trip time", x, y, series }.svg())
}

fn lateness(report: &Report) -> Option<String> {
    let series = curves(report.get("lateness")?, "", true)?;
    let x = Axis { label: "us after the due time", log: true, bounds: None };
    let y = Axis { label: "% of timers", bounds: Some([0.0, 100.0]), ..Axis::default() };
    Some(Lines { title: "Lateness of pacing timers", x, y, series }.svg())
}

fn ablation(report: &Report) -> Option<String> {
    let entry = report.get("ablation")?;
    let series = vec!["back to back", "1% loss, 40 ms"];
    let values = |step: &crate::entry::Step| {
        series.iter().map(|name| step.figures.get(*name).copied()).collect::<Vec<_>>()
    };
    let groups: Vec<_> = entry.steps.iter().map(|step| (step.name.clone(), values(step))).collect();
    if groups.is_empty() {
        return None;
    }
    let y = Axis { label: "Mb/s; 1 Gb/s", ..Axis::default() };
    Some(Bars { title: "BBRv1 with one thing worse", y, series: series.clone(), groups }.svg())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Better, Slices};

    #[test]
    fn rows_become_tables_and_plots() {
        let row = Slices::of(&[97.0; 6], &[96.0; 6]).entry("Mb/s", Better::More);
        let row =
            row.step("0.1%", &[("ours", 97.0), ("peer", 96.0)]).step("1%", &[("ours", 95.5), ("peer", 94.0)]);
        let figures = figures(&Report::from([("loss".into(), row)]));
        assert_eq!(figures.images.len(), 1);
        assert!(figures.text.contains("![Throughput against loss](bbr/loss.svg)"), "{}", figures.text);
        assert!(figures.text.contains("| 1% | 95.50 | 94.00 |"), "{}", figures.text);
        assert_eq!(leading("0.02 BDP"), Some(0.02));
    }
}
