//! Runs the files of `tests/click/`: a configuration, its input, and its expected output.
//!
//! A file consists of sections, each begun by a line `--- NAME`; the text before the first section is a
//! description.
//! - `options`: the driver's, separated by spaces.
//! - `configuration`: Click's language. `$DIR` is a folder with the files of the test.
//! - `file NAME`: a file in that folder.
//! - `output`: the expected standard output.
//! - `chatter`: the expected standard error; empty if missing.
//! - `status`: the expected exit status; 0 if missing.
//! - `output NAME`: the expected contents of a file in the folder.
#![allow(clippy::unwrap_used)]

use ringway_click_driver::click::{self, Recorder};
use std::fmt::Write;
use std::path::{Path, PathBuf};

struct Golden {
    sections: Vec<(String, String)>,
}

impl Golden {
    fn read(path: &Path) -> Self {
        let mut sections: Vec<(String, String)> = Vec::new();
        for line in std::fs::read_to_string(path).unwrap().lines() {
            match (line.strip_prefix("--- "), sections.last_mut()) {
                (Some(name), _) => sections.push((name.trim().to_string(), String::new())),
                (None, Some((_, text))) => {
                    text.push_str(line);
                    text.push('\n');
                }
                (None, None) => {}
            }
        }
        Self { sections }
    }

    fn section(&self, name: &str) -> &str {
        self.sections.iter().find(|(own, _)| own == name).map_or("", |(_, text)| text)
    }

    fn named<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.sections
            .iter()
            .filter_map(move |(name, text)| Some((name.strip_prefix(kind)?.trim(), text.as_str())))
    }

    /// All differences from the expected results.
    fn run(&self, folder: &Path, more: &[&str]) -> String {
        std::fs::create_dir_all(folder).unwrap();
        for (name, text) in self.named("file ") {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let mut arguments = vec![format!("DIR={}", folder.display())];
        arguments
            .extend(self.section("options").split_whitespace().chain(more.iter().copied()).map(String::from));
        arguments.extend(["-e".to_string(), self.section("configuration").to_string()]);
        let console = Recorder::default();
        let status = click::run(&arguments, console.clone());
        let mut wrong = String::new();
        let mut compare = |what: &str, found: &str, expected: &str| {
            if found != expected {
                let _ = write!(wrong, "--- {what} is\n{found}--- expected\n{expected}");
            }
        };
        compare("output", &console.output(), self.section("output"));
        compare("chatter", &console.chatter(), self.section("chatter"));
        let expected = self.section("status").trim();
        compare("status", &status.to_string(), if expected.is_empty() { "0" } else { expected });
        for (name, expected) in self.named("output ") {
            let found = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            compare(name, &found, expected);
        }
        wrong
    }
}

/// Runs all files with additional options; returns the differences.
fn run_all(more: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/click");
    let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "test")).collect();
    files.sort();
    assert!(!files.is_empty());
    let scratch =
        std::env::temp_dir().join(format!("ringway-golden{}-{}", more.concat(), std::process::id()));
    let mut wrong = String::new();
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let found = Golden::read(file).run(&scratch.join(&name), more);
        if !found.is_empty() {
            let _ = writeln!(wrong, "tests/click/{name}.test:\n{found}");
        }
    }
    let _ = std::fs::remove_dir_all(&scratch);
    wrong
}

/// Configurations give the same results with `-j`. In one test, since some send signals to their process.
#[test]
fn golden_files() {
    for more in [&[][..], &["-j3"]] {
        let wrong = run_all(more);
        assert!(wrong.is_empty(), "{more:?}: {wrong}");
    }
}
