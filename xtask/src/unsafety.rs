//! `unsafe` occurs only in certain crates, and always with a reason.
use crate::Findings;
use crate::text::{File, code_lines, has_word};

/// The crates that may contain `unsafe`.
const NAMED: &[&str] = &[
    "bare",
    "mem",
    "frame",
    "ring",
    "virtq",
    "host",
    "tiny",
    "direct-stack",
    "direct",
    "preload",
    "netmap-preload",
    "stack-c",
];
/// Folders of test-only code that may contain it: a shared library with a C interface.
const TESTS: &[&str] = &["tests/packetdrill/"];
/// Maximum distance in lines between an `unsafe` and the beginning of its reason.
const REACH: usize = 12;

/// Checks every Rust file.
pub fn check(files: &[File]) -> Findings {
    let mut findings = Findings::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let named = file.krate().is_some_and(|name| NAMED.contains(&name))
            || TESTS.iter().any(|folder| file.path.starts_with(folder));
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, code) in code_lines(&file.text).iter().enumerate() {
            if !has_word(code, "unsafe") {
                continue;
            }
            let place = format!("{}:{}", file.path, index + 1);
            if !named {
                findings.push(format!("{place}: unsafe outside {}; move it there", NAMED.join(", ")));
            } else if needs_reason(code) && !has_reason(&lines, index) {
                findings.push(format!("{place}: unsafe without a `// SAFETY:` reason above it"));
            }
        }
    }
    findings
}

/// Blocks and implementations need a reason; declarations have a `# Safety` section, which clippy requires.
fn needs_reason(code: &str) -> bool {
    code.contains("unsafe {") || code.contains("unsafe impl")
}

fn has_reason(lines: &[&str], index: usize) -> bool {
    let from = index.saturating_sub(REACH);
    lines.get(from..=index).is_some_and(|near| near.iter().any(|line| line.contains("SAFETY:")))
}
