//! The report: a file for programs, a table for people.

use crate::entry::Entry;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Rows by key.
pub type Report = BTreeMap<String, Entry>;

/// Reads a report; an empty one if it can't be read.
pub fn read(path: &Path) -> Report {
    let text = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Writes a report, whole or not at all.
pub fn write(path: &Path, report: &Report) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::other)?;
    let new = path.with_extension("new");
    std::fs::write(&new, text + "\n")?;
    std::fs::rename(new, path)
}

const COLUMNS: [&str; 9] = ["key", "ours", "best", "peer", "unit", "ratio", "spread", "mark", "holds"];

/// The rows of `keys` as an aligned table, each followed by its steps and its note.
pub fn table(report: &Report, keys: &[String]) -> String {
    let rows: Vec<(&Entry, [String; 9])> =
        keys.iter().filter_map(|key| report.get(key).map(|entry| (entry, row(key, entry)))).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|(_, row)| row[column].chars().count());
        cells.chain([COLUMNS[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut out = String::new();
    line(&mut out, &COLUMNS.map(String::from), &widths);
    for (entry, row) in &rows {
        line(&mut out, row, &widths);
        if let Some([low, high]) = entry.interval {
            let _ = writeln!(out, "    95% interval of the ratio: {} to {}", figure_of(low), figure_of(high));
        }
        for (name, figure) in &entry.more {
            let _ = writeln!(out, "    {name}: {}", figure_of(*figure));
        }
        for step in &entry.steps {
            let figures: Vec<String> = step
                .figures
                .iter()
                .map(|(name, figure)| format!("{name} {:>9}", figure_of(*figure)))
                .collect();
            let _ = writeln!(out, "    {:<32} {}", step.name, figures.join("   "));
        }
        if !entry.note.is_empty() {
            let _ = writeln!(out, "    {}", entry.note);
        }
    }
    out
}

/// All rows as a table in Markdown, without notes and steps.
pub fn markdown(report: &Report) -> String {
    let mut out = format!("| {} |\n|{}\n", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len()));
    for (key, entry) in report {
        let _ = writeln!(out, "| {} |", row(key, entry).join(" | "));
    }
    out
}

fn line(out: &mut String, cells: &[String; 9], widths: &[usize; 9]) {
    let mut text = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        // Figures are right-aligned, words left-aligned.
        let _ = match column {
            1..=3 | 5 | 6 => write!(text, "{cell:>width$}  "),
            _ => write!(text, "{cell:<width$}  "),
        };
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

fn row(key: &str, entry: &Entry) -> [String; 9] {
    let figure = |figure: Option<f64>| figure.map_or("-".to_string(), figure_of);
    let marks: Vec<&str> = entry.marks.iter().map(|mark| mark.mark.as_str()).collect();
    let holds: Vec<&str> = entry.marks.iter().map(|mark| if mark.holds { "yes" } else { "NO" }).collect();
    let spread = if entry.runs > 1 { format!("{:.0}%", entry.spread * 100.0) } else { "-".into() };
    [
        key.to_string(),
        figure(entry.ours),
        figure(entry.best),
        figure(entry.peer),
        entry.unit.clone(),
        figure(entry.ratio),
        spread,
        marks.join(", "),
        holds.join(", "),
    ]
}

/// Four digits or so.
fn figure_of(figure: f64) -> String {
    match figure.abs() {
        size if size >= 1000.0 => format!("{figure:.0}"),
        size if size >= 100.0 => format!("{figure:.1}"),
        size if size >= 10.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Better, Slices};

    #[test]
    fn reports_round_trip() {
        let path = std::env::temp_dir().join(format!("ringway-bench-report-{}.json", std::process::id()));
        let slices = Slices { ours: vec![1.0], peer: vec![2.0] };
        let entry = slices.entry("us", Better::Less).ratio_at_most(1.0).with("floor", 3.5);
        let report = Report::from([("a".into(), entry), ("b".into(), Entry::skipped("no peer"))]);
        write(&path, &report).unwrap();
        assert_eq!(read(&path), report);
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path).is_empty());
    }

    #[test]
    fn the_table_is_aligned_and_marks_failures() {
        let entry =
            Slices { ours: vec![12.5], peer: vec![10.0] }.entry("Mpps", Better::More).ratio_at_least(1.5);
        let report =
            Report::from([("vhost.split.64".into(), entry), ("b".into(), Entry::skipped("no peer"))]);
        let text = table(&report, &["vhost.split.64".into(), "b".into()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("ratio >= 1.5  NO"), "{text}");
        assert_eq!(lines[0].find("unit"), lines[1].find("Mpps"), "{text}");
        assert_eq!(lines[3], "    left out: no peer");
    }
}
