//! Forbidden names in files, and required names in ARCHITECTURE.md.
use crate::Findings;
use crate::text::{File, code_lines};
use std::path::Path;

/// Machine-specific paths and registry hosts; split, so that this file does not contain them.
const FOREIGN: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("crates", ".io"),
    concat!("docs", ".rs"),
    concat!("py", "pi.org"),
    concat!("deb.deb", "ian.org"),
    concat!("archive.ub", "untu.com"),
    concat!("registry.np", "mjs.org"),
    concat!("proxy.go", "lang.org"),
];
/// Markers of unfinished code; split as well.
const UNFINISHED: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[ign", "ore"), concat!("dbg", "!(")];
/// Files written by Cargo, which name its registry.
const WRITTEN_BY_TOOLS: &[&str] = &["Cargo.lock", "fuzz/libfuzzer/Cargo.lock", "examples/tiny/Cargo.lock"];

/// Checks every file.
pub fn check(root: &Path, files: &[File]) -> Findings {
    let mut findings = architecture(root, files);
    for file in files.iter().filter(|file| !WRITTEN_BY_TOOLS.contains(&file.path.as_str())) {
        for (index, line) in file.text.lines().enumerate() {
            for word in FOREIGN.iter().filter(|word| line.contains(**word)) {
                findings.push(format!("{}:{}: names {word}; say it without", file.path, index + 1));
            }
        }
        if file.is_rust() {
            for (index, line) in code_lines(&file.text).iter().enumerate() {
                for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                    findings.push(format!(
                        "{}:{}: {word} stands for something unfinished",
                        file.path,
                        index + 1
                    ));
                }
            }
        }
    }
    findings
}

/// Every crate is listed in ARCHITECTURE.md, and every `crates/NAME` there exists.
fn architecture(root: &Path, files: &[File]) -> Findings {
    const PAGE: &str = "ARCHITECTURE.md";
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![format!("{PAGE}: missing; it names every crate")];
    };
    let named: Vec<&str> = page
        .text
        .split(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '/'))
        .flat_map(|word| word.split('/'))
        .collect();
    let mut findings = Findings::new();
    for folder in crate::arrows::crates(root) {
        let name = folder.rsplit('/').next().unwrap_or_default();
        if !named.contains(&name) {
            findings.push(format!("{PAGE}: does not name {folder}; say what lives there"));
        }
    }
    for (index, line) in page.text.lines().enumerate() {
        for part in line.split("crates/").skip(1) {
            let path: String =
                part.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '-' | '/')).collect();
            let name = path.split('/').take(2).collect::<Vec<_>>().join("/");
            if !root.join("crates").join(&name).is_dir() {
                findings.push(format!("{PAGE}:{}: crates/{name} does not exist", index + 1));
            }
        }
    }
    findings
}
