//! Size limits of files, functions and lines. `ratchet.toml` lists existing exceptions, which may only
//! shrink.
use crate::Findings;
use crate::text::File;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const FILE: usize = 800;
const FUNCTION: usize = 70;
const LINE: usize = 110;
/// Limit of a comment line.
const COMMENT: usize = 120;
const RATCHET: &str = "xtask/ratchet.toml";
/// Suffixes of source files.
const SOURCES: &[&str] = &[".rs", ".py", ".sh"];
/// Suffixes of sources of which only the number of lines is limited.
const C_SOURCES: &[&str] = &[".c", ".h"];
/// Sources that a program writes, as `crates/fleet/cli/tests/clients.rs` checks.
const WRITTEN: &[&str] = &["python/ringway/api.py"];

/// Exceptions: lines of a file, lines of a function (`path::name`), length of a file's longest line.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratchet {
    #[serde(default)]
    file: BTreeMap<String, usize>,
    #[serde(default)]
    function: BTreeMap<String, usize>,
    #[serde(default)]
    line: BTreeMap<String, usize>,
}

/// Compares the sources with the limits and the exceptions; with `shrink`, tightens the exceptions.
pub fn check(root: &Path, files: &[File], shrink: bool) -> Findings {
    let text = std::fs::read_to_string(root.join(RATCHET)).unwrap_or_default();
    let kept: Ratchet = match toml::from_str(&text) {
        Ok(kept) => kept,
        Err(error) => return vec![format!("{RATCHET}: {error}")],
    };
    let now = measure(files);
    let mut findings = Findings::new();
    compare("lines in a file", FILE, &kept.file, &now.file, shrink, &mut findings);
    compare("lines in a function", FUNCTION, &kept.function, &now.function, shrink, &mut findings);
    compare("characters in a line", LINE, &kept.line, &now.line, shrink, &mut findings);
    if shrink && findings.is_empty() && now != kept {
        let text = toml::to_string(&now).unwrap_or_default();
        if let Err(error) = std::fs::write(root.join(RATCHET), text) {
            findings.push(format!("{RATCHET}: {error}"));
        }
    }
    findings
}

fn compare(
    what: &str,
    limit: usize,
    kept: &BTreeMap<String, usize>,
    now: &BTreeMap<String, usize>,
    shrink: bool,
    findings: &mut Findings,
) {
    for (place, size) in now {
        match kept.get(place) {
            None => findings.push(format!("{place}: {size} {what}, at most {limit}; split it")),
            Some(old) if size > old => {
                findings.push(format!("{place}: {size} {what}, was {old}; it may only shrink"))
            }
            Some(old) if size < old && !shrink => {
                findings.push(format!("{place}: shrank to {size} {what}; run: cargo xtask tidy --shrink"));
            }
            Some(_) => {}
        }
    }
    for place in kept.keys().filter(|place| !now.contains_key(*place) && !shrink) {
        findings.push(format!("{place}: no longer too large; run: cargo xtask tidy --shrink"));
    }
}

fn measure(files: &[File]) -> Ratchet {
    let mut found = Ratchet::default();
    let has_suffix = |path: &str, suffixes: &[&str]| suffixes.iter().any(|suffix| path.ends_with(suffix));
    for file in files.iter().filter(|file| !WRITTEN.contains(&file.path.as_str())) {
        let is_source = has_suffix(&file.path, SOURCES);
        let lines = file.text.lines().count();
        if lines > FILE && (is_source || has_suffix(&file.path, C_SOURCES)) {
            found.file.insert(file.path.clone(), lines);
        }
        if !is_source {
            continue;
        }
        let longest = file.text.lines().filter(|line| too_long(line)).map(|line| line.chars().count()).max();
        if let Some(longest) = longest {
            found.line.insert(file.path.clone(), longest);
        }
        if file.is_rust() {
            for (name, length) in functions(&file.text) {
                if length > FUNCTION {
                    let entry = found.function.entry(format!("{}::{name}", file.path)).or_default();
                    *entry = (*entry).max(length);
                }
            }
        }
    }
    found
}

fn too_long(line: &str) -> bool {
    let comment = line.trim_start().starts_with("//") || line.trim_start().starts_with('#');
    line.chars().count() > if comment { COMMENT } else { LINE }
}

/// The functions of a formatted source file with their numbers of lines: rustfmt indents a function's closing brace
/// like its first line.
fn functions(source: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", " ".repeat(indent));
        let end = lines[index..].iter().position(|line| *line == closing || *line == format!("{closing},"));
        let one_line = line.trim_end().ends_with(['}', ';']);
        if let Some(end) = end.filter(|_| !one_line) {
            found.push((name.to_string(), end + 1));
        }
    }
    found
}

/// The name in a line that begins a function.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix("fn ") {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
            return after.get(..end);
        }
        let (word, after) = rest.split_once(' ')?;
        let prefix = matches!(word, "pub" | "const" | "async" | "unsafe" | "extern" | "\"C\"")
            || word.starts_with("pub(");
        if !prefix {
            return None;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let source =
            "fn a() {\n    b();\n}\nimpl X {\n    pub(crate) const fn c(\n        d: u8,\n    ) {\n    }\n}";
        assert_eq!(functions(source), [("a".to_string(), 3), ("c".to_string(), 4)]);
    }

    #[test]
    fn growth_is_reported_and_reductions_must_be_recorded() {
        let map = |size| BTreeMap::from([("x".to_string(), size)]);
        let run = |kept: &BTreeMap<_, _>, now: &BTreeMap<_, _>, shrink| {
            let mut findings = Findings::new();
            compare("lines", 10, kept, now, shrink, &mut findings);
            findings.len()
        };
        assert_eq!(run(&BTreeMap::new(), &map(11), false), 1, "new");
        assert_eq!(run(&map(11), &map(12), true), 1, "grown");
        assert_eq!(run(&map(12), &map(11), false), 1, "shrunk, not kept");
        assert_eq!(run(&map(12), &map(11), true), 0, "shrunk");
        assert_eq!(run(&map(12), &BTreeMap::new(), false), 1, "gone, not kept");
        assert_eq!(run(&map(12), &map(12), false), 0, "same");
    }
}
