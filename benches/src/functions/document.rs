//! The rates of a report in `docs/performance.md`: tables between two markers, and a plot beside it.

use super::examples::EXAMPLES;
use super::{LENGTHS, NAMES};
use crate::Failure;
use crate::report::{Report, figure_of, replace};
use crate::svg::{Panel, rows};
use std::fmt::Write;
use std::path::Path;

/// What the tables lie between.
const BEGIN: &str = "<!-- figures: begin (written by scripts/bench.sh --subject functions --document) -->\n";
const END: &str = "<!-- figures: end -->\n";
const PAGE: &str = "performance.md";
const PLOT: &str = "functions-rates.svg";
/// Names of the sizes, as in [`LENGTHS`].
const SIZES: [&str; 3] = ["64 B", "1500 B", "IMIX"];
const KINDS: [&str; 2] = ["main elements (NAME)", "file (example.NAME)"];

/// Rewrites the tables and the plot in the folder `docs`.
pub fn write(report: &Report, docs: &Path) -> Result<(), Failure> {
    replace(&docs.join(PAGE), [BEGIN, END], &tables(report))?;
    Ok(std::fs::write(docs.join(PLOT), plot(report))?)
}

fn tables(report: &Report) -> String {
    let mut out = String::new();
    let head = ["worker", "process"].map(|kind| format!("{kind}, {}", SIZES.join(" | ")));
    let _ = writeln!(out, "| | {} | {} |\n|---|---|---|---|---|---|---|", head[0], head[1]);
    for (name, _) in NAMES {
        let cells = ["worker", "process"].map(|kind| {
            LENGTHS.map(|(size, _)| cell(report, &format!("{name}.{kind}.{size}"), size == "64")).join(" | ")
        });
        let _ = writeln!(out, "| `{name}` | {} | {} |", cells[0], cells[1]);
    }
    let lines = LENGTHS.map(|(_, length)| figure_of(length.line())).join(" | ");
    let _ = writeln!(out, "| line of 10 Gb/s | {lines} | {lines} |");
    let _ = writeln!(out, "\n![Rates of the middleboxes on a worker]({PLOT})\n");
    if report.keys().any(|key| key.starts_with("example.")) {
        examples(&mut out, report, &lines);
    }
    out
}

/// The examples' files.
fn examples(out: &mut String, report: &Report, lines: &str) {
    let _ = writeln!(
        out,
        "| | worker, {} | mark holds | process, 64 B | of a worker's, in turn |\n\
         |---|---|---|---|---|---|---|",
        SIZES.join(" | ")
    );
    for example in EXAMPLES {
        let key = |kind: &str, size: &str| format!("example.{}.{kind}.{size}", example.name);
        let cells = LENGTHS.map(|(size, _)| cell(report, &key("worker", size), size == "64"));
        let process = key("process", "64");
        let ratio = report.get(&process).and_then(|entry| entry.ratio).map_or("-".into(), figure_of);
        let _ = writeln!(
            out,
            "| `example.{}` | {} | {} | {} | {ratio} |",
            example.name,
            cells.join(" | "),
            holds(report, &key("worker", "64")),
            cell(report, &process, true)
        );
    }
    let _ = writeln!(out, "| line of 10 Gb/s | {lines} | | {} | |\n", figure_of(LENGTHS[0].1.line()));
}

/// A median, and its interval.
fn cell(report: &Report, key: &str, with_interval: bool) -> String {
    let Some(entry) = report.get(key) else { return "-".into() };
    let figure = entry.ours.map_or("-".to_string(), figure_of);
    match entry.ours_interval.filter(|_| with_interval) {
        Some([low, high]) => format!("{figure} ({} to {})", figure_of(low), figure_of(high)),
        None => figure,
    }
}

/// Whether the marks of a row hold.
fn holds(report: &Report, key: &str) -> &'static str {
    match report.get(key).map_or(&[][..], |entry| &entry.marks) {
        [] => "-",
        marks if marks.iter().all(|mark| mark.holds) => "yes",
        _ => "no",
    }
}

fn plot(report: &Report) -> String {
    let panel = |(at, (size, length)): (usize, (&str, crate::click::frames::Length))| Panel {
        name: SIZES[at].into(),
        rows: EXAMPLES
            .iter()
            .map(|example| {
                let keys = ["", "example."].map(|kind| format!("{kind}{}.worker.{size}", example.name));
                let figure = |key: &String| report.get(key).and_then(|entry| entry.ours);
                (example.name.to_string(), keys.iter().map(figure).collect::<Vec<_>>())
            })
            .filter(|(_, figures)| figures.iter().any(Option::is_some))
            .collect(),
        line: (length.line(), "10 Gb/s".into()),
    };
    let panels: Vec<Panel> = LENGTHS.into_iter().enumerate().map(panel).collect();
    rows("Middleboxes on a worker, millions of frames a second", &KINDS, &panels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Better, Slices};

    #[test]
    fn tables_and_plot_follow_from_the_report() {
        let row = |figure: f64| Slices::of(&[figure; 6], &[]).entry("Mpps", Better::More).at_least(5.0);
        let report = Report::from([
            ("nat.worker.64".into(), row(8.5)),
            ("example.nat.worker.64".into(), row(4.5)),
            ("example.nat.process.64".into(), Slices::of(&[2.0; 6], &[4.0; 6]).entry("Mpps", Better::More)),
        ]);
        let tables = tables(&report);
        assert!(tables.contains("| `nat` | 8.500 (8.500 to 8.500) | - | - | - | - | - |"), "{tables}");
        let example =
            "| `example.nat` | 4.500 (4.500 to 4.500) | - | - | no | 2.000 (2.000 to 2.000) | 0.500 |";
        assert!(tables.contains(example), "{tables}");
        assert!(tables.contains("| line of 10 Gb/s | 14.88 | 0.822 | 3.274 | 14.88 |"), "{tables}");
        let image = plot(&report);
        assert_eq!(image.matches("<rect x").count(), KINDS.len() + 2, "{image}");
        assert_eq!(image.matches("dasharray").count(), LENGTHS.len());
    }
}
