//! A kind of port has a folder in `port`, a file in `control`, and a row in a table of each, and is mentioned nowhere
//! else.
use crate::Findings;
use crate::text::File;

/// Kinds that no other code builds on, so that any mention elsewhere is a finding.
const LEAVES: &[&str] = &["null", "tap"];
/// Where a kind may be named, with `KIND` for its name. ARCHITECTURE.md lists the same places.
pub const PLACES: &[&str] = &[
    "crates/port/src/KIND/",
    "crates/port/src/kinds.rs",
    "crates/control/src/kinds/KIND.rs",
    "crates/control/src/kinds/mod.rs",
];
/// The module's declaration, and a queue that `source` takes from `null`.
const DECLARED: &[&str] = &["crates/port/src/lib.rs", "crates/port/src/source/"];
const SEARCHED: &[&str] = &["port", "control", "fabric", "cli", "spec"];

/// Checks every file of the crates that serve ports.
pub fn check(files: &[File]) -> Findings {
    let mut findings = Findings::new();
    let page = files.iter().find(|file| file.path == "ARCHITECTURE.md").map_or("", |file| &file.text);
    for place in PLACES.iter().filter(|place| !page.contains(**place)) {
        findings.push(format!("ARCHITECTURE.md: a new kind of port also needs {place}; name it"));
    }
    for kind in LEAVES {
        let places: Vec<String> = PLACES.iter().map(|place| place.replace("KIND", kind)).collect();
        for place in &places {
            if !files.iter().any(|file| file.path.starts_with(place.as_str())) {
                findings.push(format!("{place}: missing; every kind of port has it"));
            }
        }
        let searched = |file: &&File| {
            SEARCHED.iter().any(|name| file.path.starts_with(&format!("crates/{name}/src/")))
                && !places.iter().any(|place| file.path.starts_with(place.as_str()))
                && !DECLARED.iter().any(|place| file.path.starts_with(place))
        };
        for file in files.iter().filter(searched) {
            let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
            if code.contains(&format!("{kind}::")) {
                findings.push(format!(
                    "{}: names the kind of port `{kind}`; its places are {PLACES:?}",
                    file.path
                ));
            }
        }
    }
    findings
}
