//! The reports of `make bench` and `make bench-click` in `docs/performance.md`: a table each between two markers, and
//! plots.

use super::{SUBJECTS, Subject, ablation, senders, sizes};
use crate::Failure;
use crate::entry::Step;
use crate::report::{Report, figure_of, markdown, replace};
use std::fmt::Write;
use std::path::Path;

const END: &str = "<!-- figures: end -->\n";
const PAGE: &str = "performance.md";

fn begin(subject: &str) -> String {
    format!("<!-- figures: begin (written by scripts/bench.sh --subject {subject} --document) -->\n")
}

/// A key with a plot, and its title; no plot without its row.
type Plot = (&'static str, &'static str, fn(&Report) -> Option<String>);

const PLOTS: [Plot; 3] = [
    ("ablation.switch", "What bursts are worth in the switch", ablation::plot),
    ("sizes", "Rate by the size of frames", sizes::plot),
    ("sockets.peer", "Frames that a program sends", senders::plot),
];

/// Rewrites the table of the subject `fabric` in the folder `docs`, and the plots of its keys.
pub fn fabric(report: &Report, docs: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    for (key, title, draw) in PLOTS {
        let (Some(image), Some(entry)) = (draw(report), report.get(key)) else { continue };
        let file = format!("performance-{}.svg", key.replace('.', "-"));
        std::fs::write(docs.join(&file), image)?;
        // Writing to a string does not fail.
        let _ = write!(text, "\n`{key}`, {}:\n\n![{title}]({file})\n\n", entry.unit);
        steps(&mut text, &entry.steps);
    }
    write("fabric", report, docs, &text)
}

/// Steps as a table.
fn steps(out: &mut String, steps: &[Step]) {
    let mut names: Vec<&String> = Vec::new();
    for name in steps.iter().flat_map(|step| step.figures.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let heads: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let _ = writeln!(out, "| | {} |\n|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for Step { name, figures } in steps {
        let cell = |name: &&String| figures.get(*name).map_or("-".into(), |figure| figure_of(*figure));
        let cells: Vec<String> = names.iter().map(cell).collect();
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    }
}

/// Rewrites the table of the subject `click` in the folder `docs`.
pub fn click(report: &Report, docs: &Path) -> Result<(), Failure> {
    write("click", report, docs, "")
}

fn write(name: &str, report: &Report, docs: &Path, plots: &str) -> Result<(), Failure> {
    let keys: Vec<_> =
        SUBJECTS.iter().filter(|subject| subject.name == name).flat_map(Subject::keys).collect();
    let table = markdown(report, &keys);
    replace(&docs.join(PAGE), [&begin(name), END], &format!("{table}{plots}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Better, Slices};

    #[test]
    fn the_page_has_the_places_of_both_tables() {
        let page = include_str!("../../../docs/performance.md");
        for name in ["fabric", "click"] {
            let after = page.split_once(&begin(name)).unwrap().1;
            assert!(after.starts_with("\n| key | what | ours |"), "{name}");
        }
    }

    #[test]
    fn a_table_has_the_order_and_the_words_of_the_list() {
        let docs = std::env::temp_dir().join(format!("ringway-bench-fabric-{}", std::process::id()));
        std::fs::create_dir_all(&docs).unwrap();
        let page = docs.join(PAGE);
        std::fs::write(
            &page,
            ["a\n", &begin("click"), "b\n", END, &begin("fabric"), "c\n", END, "d\n"].concat(),
        )
        .unwrap();
        let row = |figure: f64| Slices::of(&[figure; 6], &[]).entry("Mpps", Better::More);
        let report = Report::from([
            ("pipe.64".to_string(), row(1.0)),
            ("ring.64".to_string(), row(2.0)),
            ("gone".to_string(), row(3.0)),
            ("sockets.peer".to_string(), row(4.0).step("UDP socket", &[("Mpps", 0.5)])),
        ]);
        fabric(&report, &docs).unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(
            text.starts_with(&["a\n", &begin("click"), "b\n"].concat()) && text.ends_with("d\n"),
            "{text}"
        );
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        assert!(
            lines[0].starts_with("| ring.64 | program to program through the switch, one worker, 64 B; ")
        );
        assert!(lines[1].starts_with("| pipe.64 | program to program through a pipe"), "{text}");
        assert!(text.contains("![Frames that a program sends](performance-sockets-peer.svg)"), "{text}");
        assert!(
            text.contains("| UDP socket | 0.500 |") && docs.join("performance-sockets-peer.svg").exists()
        );
        assert!(lines[3].starts_with("| gone |  | 3.000 (3.000 to 3.000) |"), "{text}");
        std::fs::remove_dir_all(&docs).unwrap();
    }
}
