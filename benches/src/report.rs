//! The report, as a JSON file and as a table.

use crate::Failure;
use crate::entry::Entry;
use crate::machine::Machine;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Rows by key.
pub type Report = BTreeMap<String, Entry>;

/// Reads a report; an unreadable one is empty.
pub fn read(path: &Path) -> Report {
    let text = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Writes a report atomically.
pub fn write(path: &Path, report: &Report) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::other)?;
    let new = path.with_extension("new");
    std::fs::write(&new, text + "\n")?;
    std::fs::rename(new, path)
}

/// Replaces what stands between two lines of a page.
pub fn replace(page: &Path, [begin, end]: [&str; 2], tables: &str) -> Result<(), Failure> {
    let text = std::fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let missing = |line: &str| format!("{} has no line `{}`", page.display(), line.trim());
    let (before, rest) = text.split_once(begin).ok_or_else(|| missing(begin))?;
    let (_, after) = rest.split_once(end).ok_or_else(|| missing(end))?;
    Ok(std::fs::write(page, format!("{before}{begin}\n{tables}{end}{after}"))?)
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
        for (name, interval) in [("ours", entry.ours_interval), ("the ratio", entry.ratio_interval)] {
            if let Some(interval) = interval {
                let _ = writeln!(out, "    95% interval of {name}: {}", bounds(interval));
            }
        }
        if let Some(machine) = &entry.machine {
            let _ = writeln!(out, "    {}", state(machine));
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

/// All rows as a table in Markdown: medians with their intervals, and the machine's state; without notes and steps.
/// The rows are in the order of `keys`, which have descriptions; keys that are not among these come last.
pub fn markdown(report: &Report, keys: &[(&str, &str)]) -> String {
    let columns =
        ["key", "what", "ours", "best", "peer", "unit", "ratio", "mark", "holds", "line, ns", "loop, us"];
    let mut out = format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    let listed = |name: &str| keys.iter().any(|(key, _)| *key == name);
    let others = report.keys().filter(|key| !listed(key)).map(|key| (key.as_str(), ""));
    for (key, what) in keys.iter().copied().chain(others) {
        let Some(entry) = report.get(key) else { continue };
        let [key, ours, best, peer, unit, ratio, _, mark, holds] = row(key, entry);
        let with = |figure: String, interval: Option<[f64; 2]>| match interval {
            Some(interval) => format!("{figure} ({})", bounds(interval)),
            None => figure,
        };
        let (ours, ratio) = (with(ours, entry.ours_interval), with(ratio, entry.ratio_interval));
        let machine = entry.machine.as_ref();
        let [line, turns] = [machine.map(|machine| machine.line_ns), machine.map(|machine| machine.loop_us)]
            .map(|of| {
                of.map_or("-".to_string(), |[low, middle, high]| with(figure_of(middle), Some([low, high])))
            });
        let (what, holds) = (what.replace('|', "/"), holds.replace("NO", "**no**"));
        let cells = [key, what, ours, best, peer, unit, ratio, mark, holds, line, turns];
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

fn bounds([low, high]: [f64; 2]) -> String {
    format!("{} to {}", figure_of(low), figure_of(high))
}

/// The machine's state in words.
fn state(Machine { line_ns, loop_us, samples }: &Machine) -> String {
    let words = |[low, middle, high]: [f64; 3], unit: &str| {
        format!("{} {unit} ({})", figure_of(middle), bounds([low, high]))
    };
    let (line, turns) = (words(*line_ns, "ns"), words(*loop_us, "us"));
    format!("machine: a cache line there and back {line}, integer loop {turns}; {samples} samples")
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

/// A figure with about four digits.
pub fn figure_of(figure: f64) -> String {
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

    const MACHINE: Machine =
        Machine { line_ns: [90.0, 100.0, 400.0], loop_us: [240.0, 250.0, 260.0], samples: 3 };
    const INTERVAL: &str = "    95% interval of the ratio: 1.250 to 1.250";

    #[test]
    fn reports_round_trip() {
        let path = std::env::temp_dir().join(format!("ringway-bench-report-{}.json", std::process::id()));
        let slices = Slices::of(&[1.0; 6], &[2.0; 6]);
        let mut entry = slices.entry("us", Better::Less).ratio_at_most(1.0).with("floor", 3.5);
        entry.machine = Some(MACHINE);
        let report = Report::from([("a".into(), entry), ("b".into(), Entry::skipped("no peer"))]);
        write(&path, &report).unwrap();
        assert_eq!(read(&path), report);
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path).is_empty());
    }

    #[test]
    fn the_table_is_aligned_and_marks_failures() {
        let slices = Slices::of(&[12.5; 6], &[10.0; 6]);
        let mut entry = slices.entry("Mpps", Better::More).ratio_at_least(1.5);
        entry.machine = Some(MACHINE);
        let report =
            Report::from([("vhost.split.64".into(), entry), ("b".into(), Entry::skipped("no peer"))]);
        let text = table(&report, &["vhost.split.64".into(), "b".into()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("ratio >= 1.5  NO"), "{text}");
        assert_eq!(lines[0].find("unit"), lines[1].find("Mpps"), "{text}");
        assert_eq!(lines[2..4], ["    95% interval of ours: 12.50 to 12.50", INTERVAL], "{text}");
        let machine = "    machine: a cache line there and back 100.0 ns (90.00 to 400.0), \
            integer loop 250.0 us (240.0 to 260.0); 3 samples";
        assert_eq!((lines[4], lines[6]), (machine, "    left out: no peer"), "{text}");
        let text = markdown(&report, &[("vhost.split.64", "two guests")]);
        let row = "| vhost.split.64 | two guests | 12.50 (12.50 to 12.50) | 12.50 | 10.00 | Mpps \
            | 1.250 (1.250 to 1.250) | ratio >= 1.5 | **no** | 100.0 (90.00 to 400.0) \
            | 250.0 (240.0 to 260.0) |";
        assert_eq!(text.lines().nth(2), Some(row));
        assert!(text.lines().last().is_some_and(|line| line.starts_with("| b |  | - |")), "{text}");
    }
}
