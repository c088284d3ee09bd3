//! The reports of `make bench` and `make bench-click` in `docs/performance.md`: a table each between two markers.

use super::{SUBJECTS, Subject};
use crate::Failure;
use crate::report::{Report, markdown, replace};
use std::path::Path;

const END: &str = "<!-- figures: end -->\n";
const PAGE: &str = "performance.md";

fn begin(subject: &str) -> String {
    format!("<!-- figures: begin (written by scripts/bench.sh --subject {subject} --document) -->\n")
}

/// Rewrites the table of the subject `fabric` in the folder `docs`.
pub fn fabric(report: &Report, docs: &Path) -> Result<(), Failure> {
    write("fabric", report, docs)
}

/// Rewrites the table of the subject `click` in the folder `docs`.
pub fn click(report: &Report, docs: &Path) -> Result<(), Failure> {
    write("click", report, docs)
}

fn write(name: &str, report: &Report, docs: &Path) -> Result<(), Failure> {
    let keys: Vec<_> =
        SUBJECTS.iter().filter(|subject| subject.name == name).flat_map(Subject::keys).collect();
    let table = markdown(report, &keys);
    replace(&docs.join(PAGE), [&begin(name), END], &format!("{table}\n"))
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
        assert!(lines[2].starts_with("| gone |  | 3.000 (3.000 to 3.000) |"), "{text}");
        std::fs::remove_dir_all(&docs).unwrap();
    }
}
