//! The figures of a report in `docs/nic.md`: tables between two markers, and plots beside it.

use super::cpu::SHARES;
use super::figures::STAGES;
use crate::Failure;
use crate::entry::{Entry, Step};
use crate::report::{Report, figure_of, replace};
use crate::svg::{Line, bars, panels, stacked};
use std::fmt::Write;
use std::path::Path;

/// What the tables lie between.
const BEGIN: &str = "<!-- figures: begin (written by scripts/bench.sh --subject nic --document) -->\n";
const END: &str = "<!-- figures: end -->\n";
const PAGE: &str = "nic.md";
/// Characters of the reason why a key was left out.
const NOTE: usize = 200;

/// The rows of the ladder in the order of netmap's figures, slowest first.
const ORDER: [&str; 7] = ["plain", "+ moderation", "+ combining", "+ both", "+ CSB", "+ all", "+ rings"];

/// Rewrites the tables and plots in the folder `docs`.
pub fn write(report: &Report, docs: &Path) -> Result<(), Failure> {
    let (tables, plots) = render(report);
    replace(&docs.join(PAGE), [BEGIN, END], &tables)?;
    for (name, image) in plots {
        std::fs::write(docs.join(name), image)?;
    }
    Ok(())
}

/// The tables, and the plots by file name. A key without figures has neither.
fn render(report: &Report) -> (String, Vec<(&'static str, String)>) {
    let (mut out, mut plots) = (String::new(), Vec::new());
    summary(&mut out, report);
    for (key, title, figure, plot) in [
        ("ladder.tiny.64", "Frames of 64 B from tiny guest to tiny guest", "Mpps", "nic-ladder.svg"),
        ("ladder.tiny.rtt", "Round trip of one frame between tiny guests", "us", "nic-rtt.svg"),
        ("ladder.linux.64", "Frames of 64 B from Linux guest to Linux guest, TCG", "Mpps", "nic-linux.svg"),
    ] {
        let Some(entry) = report.get(key).filter(|entry| !entry.steps.is_empty()) else { continue };
        heading(&mut out, key, title, plot);
        steps(&mut out, entry);
        if figure == "Mpps" {
            order(&mut out, entry);
        }
        let rows: Vec<_> = entry
            .steps
            .iter()
            .filter_map(|step| Some((step.name.clone(), *step.figures.get(figure)?)))
            .collect();
        plots.push((plot, bars(&format!("{title}, {figure}"), &rows)));
    }
    if let Some(entry) = report.get("cpu.tiny").filter(|entry| !entry.steps.is_empty()) {
        heading(&mut out, "cpu.tiny", "Processor time by technique", "nic-cpu.svg");
        steps(&mut out, entry);
        let shares = |step: &Step| {
            let of = |share: &&str| step.figures.get(*share).copied().unwrap_or(0.0);
            (step.name.clone(), SHARES.iter().map(of).collect())
        };
        let rows: Vec<_> = entry.steps.iter().map(shares).collect();
        plots.push(("nic-cpu.svg", stacked("Shares of the time of two cores, %", &SHARES, &rows)));
    }
    if let Some(entry) = report.get("size").filter(|entry| !entry.steps.is_empty()) {
        heading(&mut out, "size", "Throughput against the size of the data written at once", "nic-size.svg");
        steps(&mut out, entry);
        let rates = ["all", "plain"].map(|way| line(entry, way, "Gb/s"));
        let times = STAGES.map(|stage| Line { name: stage.into(), ..line(entry, "all", stage) });
        let parts =
            [("Gb/s".into(), rates.into()), ("all techniques: ns a frame by stage".into(), times.into())];
        plots.push(("nic-size.svg", panels("Throughput against data size", "bytes of a message", &parts)));
    }
    for (key, plot) in [("delay", "nic-delay.svg"), ("delay.linux", "nic-delay-linux.svg")] {
        let Some(entry) = report.get(key).filter(|entry| !entry.steps.is_empty()) else { continue };
        heading(&mut out, key, "Moderation against rate and round trip", plot);
        steps(&mut out, entry);
        let part =
            |name: &str| (name.to_string(), vec![Line { name: String::new(), ..line(entry, "", name) }]);
        let parts = [part("Mpps"), part("round trip, us"), part("interrupts/frame")];
        plots.push((plot, panels("Moderation", "window, us (0 is drawn at 1)", &parts)));
    }
    for key in ["e1000.linux.64", "e1000e.linux.64"] {
        let Some(entry) = report.get(key).filter(|entry| !entry.steps.is_empty()) else { continue };
        let _ = writeln!(out, "### Linux guests, TCG: losses, and processor time of a frame (`{key}`)\n");
        steps(&mut out, entry);
    }
    for (key, title) in [
        ("sockets.udp.64", "Linux guests with sockets, TCG: UDP in frames of 64 B"),
        ("sockets.udp.1500", "Linux guests with sockets, TCG: UDP in frames of 1500 B"),
        ("sockets.tcp", "Linux guests with sockets, TCG: one TCP stream"),
        ("sockets.rtt", "Linux guests with sockets, TCG: ping"),
    ] {
        let Some(entry) = report.get(key).filter(|entry| !entry.steps.is_empty()) else { continue };
        let _ = writeln!(out, "### {title} (`{key}`)\n");
        steps(&mut out, entry);
    }
    if let Some(entry) = report.get("ablation").filter(|entry| !entry.steps.is_empty()) {
        let _ = writeln!(out, "### Parts of the back-end (`ablation`)\n");
        steps(&mut out, entry);
    }
    (out, plots)
}

fn heading(out: &mut String, key: &str, title: &str, plot: &str) {
    let _ = writeln!(out, "### {title} (`{key}`)\n\n![{title}]({plot})\n");
}

/// All keys with their marks.
fn summary(out: &mut String, report: &Report) {
    let _ = writeln!(out, "| key | ours | peer | ratio | mark | holds |\n|---|---|---|---|---|---|");
    for (key, entry) in report {
        let cell = |figure: Option<f64>| figure.map_or("-".to_string(), figure_of);
        let with = |figure: Option<f64>, interval: Option<[f64; 2]>| match interval {
            Some([low, high]) => format!("{} ({} to {})", cell(figure), figure_of(low), figure_of(high)),
            None => cell(figure),
        };
        let marks: Vec<_> = entry.marks.iter().map(|mark| mark.mark.as_str()).collect();
        let holds: Vec<_> = entry.marks.iter().map(|mark| if mark.holds { "yes" } else { "no" }).collect();
        let _ = match entry.ours {
            Some(_) => writeln!(
                out,
                "| `{key}` | {} {} | {} | {} | {} | {} |",
                with(entry.ours, entry.ours_interval),
                entry.unit,
                cell(entry.peer),
                with(entry.ratio, entry.ratio_interval),
                marks.join(", "),
                holds.join(", ")
            ),
            None => writeln!(
                out,
                "| `{key}` | - | - | - | {} | {} |",
                marks.join(", "),
                entry.note.replace(['|', '\n'], "/").chars().take(NOTE).collect::<String>()
            ),
        };
    }
    if let Some(machine) = report.values().find_map(|entry| entry.machine.as_ref()) {
        let [line, turns] = [machine.line_ns[1], machine.loop_us[1]].map(figure_of);
        let _ = writeln!(
            out,
            "\nMedians with 95% intervals. The machine: a cache line there and back {line} ns, \
             integer loop {turns} us."
        );
    }
    out.push('\n');
}

/// The steps of a key as a table.
fn steps(out: &mut String, entry: &Entry) {
    let mut names: Vec<&str> = Vec::new();
    for name in entry.steps.iter().flat_map(|step| step.figures.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    // The figure itself comes first.
    names.sort_by_key(|name| !["Mpps", "us", "Gb/s"].contains(name));
    let _ = writeln!(out, "| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for Step { name, figures } in &entry.steps {
        let cells =
            names.iter().map(|name| figures.get(*name).map_or("-".into(), |figure| figure_of(*figure)));
        let _ = writeln!(out, "| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    out.push('\n');
    if !entry.note.is_empty() {
        let _ = writeln!(out, "{}.\n", entry.note.replace('|', "/"));
    }
}

/// Which rows are not in the order of netmap's figures.
fn order(out: &mut String, entry: &Entry) {
    let rate = |name: &str| entry.steps.iter().find(|step| step.name == name)?.figures.get("Mpps").copied();
    let known: Vec<_> = ORDER.iter().filter_map(|name| Some((*name, rate(name)?))).collect();
    if known.len() < ORDER.len() {
        return;
    }
    let swapped = known.windows(2).filter(|pair| pair[0].1 > pair[1].1);
    let swapped: Vec<_> = swapped.map(|pair| format!("*{}* is below *{}*", pair[1].0, pair[0].0)).collect();
    let _ = match swapped.as_slice() {
        [] => writeln!(out, "The rows are in the order of netmap's figures.\n"),
        some => writeln!(out, "Not in the order of netmap's figures: {}.\n", some.join("; ")),
    };
}

/// The number in a step's name: `64` of `all, 64 B`, `20` of `20 us`.
fn number(name: &str) -> Option<f64> {
    name.split(|letter: char| !letter.is_ascii_digit()).find(|part| !part.is_empty())?.parse().ok()
}

/// A figure of the steps whose names begin with `way`, by the numbers in their names.
fn line(entry: &Entry, way: &str, figure: &str) -> Line {
    let steps = entry.steps.iter().filter(|step| step.name.starts_with(way));
    let points = steps.filter_map(|step| Some((number(&step.name)?.max(1.0), *step.figures.get(figure)?)));
    Line { name: way.into(), points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut ladder =
            Entry { ours: Some(4.0), unit: "Mpps".into(), ..Entry::default() }.ratio_at_least(20.0);
        for (number, name) in ORDER.iter().enumerate() {
            let rate = if *name == "+ combining" { 0.001 } else { 0.01 * (number + 1) as f64 };
            ladder = ladder.step(*name, &[("Mpps", rate), ("exits/frame", 2.0)]);
        }
        let size = |name: &str| (name.to_string(), [("Gb/s", 1.0), (STAGES[0], 50.0)]);
        let mut sizes = Entry { ours: Some(1.0), ..Entry::default() };
        for (name, figures) in ["all, 64 B", "all, 1024 B", "plain, 64 B"].map(size) {
            sizes = sizes.step(name, &figures);
        }
        Report::from([
            ("ladder.tiny.64".into(), ladder),
            ("size".into(), sizes),
            ("delay".into(), Entry::skipped("no KVM")),
            ("cpu.tiny".into(), Entry::default().step("plain", &[(SHARES[0], 25.0), (SHARES[5], 75.0)])),
        ])
    }

    #[test]
    fn tables_and_plots_follow_from_the_report() {
        let (tables, plots) = render(&report());
        assert!(tables.contains("| `ladder.tiny.64` | 4.000 Mpps | - | - | ratio >= 20 | no |"), "{tables}");
        assert!(tables.contains("| `delay` | - | - | - |  | left out: no KVM |"), "{tables}");
        assert!(tables.contains("| + both | 0.040 | 2.000 |"), "{tables}");
        let order = "Not in the order of netmap's figures: *+ combining* is below *+ moderation*.";
        assert!(tables.contains(order), "{tables}");
        assert_eq!(
            plots.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["nic-ladder.svg", "nic-cpu.svg", "nic-size.svg"]
        );
        assert!(plots[1].1.contains("plain") && plots[1].1.contains(SHARES[5]));
        let line = line(&report()["size"], "all", "Gb/s");
        assert_eq!(line.points, [(64.0, 1.0), (1024.0, 1.0)]);
    }

    #[test]
    fn only_what_lies_between_the_markers_is_rewritten() {
        let docs = std::env::temp_dir().join(format!("ringway-bench-docs-{}", std::process::id()));
        std::fs::create_dir_all(&docs).unwrap();
        let page = docs.join(PAGE);
        std::fs::write(&page, "no markers").unwrap();
        assert!(write(&report(), &docs).unwrap_err().to_string().contains("has no line"));
        std::fs::write(&page, format!("before\n{BEGIN}former tables\n{END}after\n")).unwrap();
        for _ in 0..2 {
            write(&report(), &docs).unwrap();
            let text = std::fs::read_to_string(&page).unwrap();
            assert!(
                text.starts_with("before\n") && text.ends_with("after\n") && !text.contains("former"),
                "{text}"
            );
            assert_eq!(text.matches("## Frames").count(), 1);
        }
        assert!(docs.join("nic-ladder.svg").exists());
        std::fs::remove_dir_all(&docs).unwrap();
    }
}
