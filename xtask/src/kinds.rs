//! A kind of port has a folder in `port`, a file in `control`, and a row in a table of each, and is mentioned nowhere
//! else.
use crate::Findings;
use crate::text::File;
use std::collections::BTreeSet;

/// Kinds that other code builds on, or whose name other modules have too. Any mention of the others is a finding.
const NAMED_ELSEWHERE: &[&str] = &["vhost_user", "ring", "pipe", "source", "link", "packet"];
/// Where a kind may be named, with `KIND` for its name. ARCHITECTURE.md lists the same places.
pub const PLACES: &[&str] = &[
    "crates/switch/port/src/KIND/",
    "crates/switch/port/src/lib.rs",
    "crates/switch/port/src/kinds.rs",
    "crates/fleet/control/src/kinds/KIND.rs",
    "crates/fleet/control/src/kinds/mod.rs",
];
const SEARCHED: &[&str] = &["port", "control", "fabric", "cli", "spec"];

/// Checks every file of the crates that serve ports.
pub fn check(files: &[File]) -> Findings {
    let mut findings = Findings::new();
    let page = files.iter().find(|file| file.path == "ARCHITECTURE.md").map_or("", |file| &file.text);
    for place in PLACES.iter().filter(|place| !page.contains(**place)) {
        findings.push(format!("ARCHITECTURE.md: a new kind of port also needs {place}; name it"));
    }
    let kinds: BTreeSet<&str> = files.iter().filter_map(kind).collect();
    // A kind may use another one's queues.
    let of_a_kind =
        |path: &str| kinds.iter().any(|kind| path.starts_with(&format!("crates/switch/port/src/{kind}/")));
    for kind in &kinds {
        let places: Vec<String> = PLACES.iter().map(|place| place.replace("KIND", kind)).collect();
        for place in &places {
            if !files.iter().any(|file| file.path.starts_with(place.as_str())) {
                findings.push(format!("{place}: missing; add it, every kind of port has it"));
            }
        }
        if NAMED_ELSEWHERE.contains(kind) {
            continue;
        }
        let searched = |file: &&File| {
            file.path.contains("/src/")
                && file.krate().is_some_and(|name| SEARCHED.contains(&name))
                && !places.iter().any(|place| file.path.starts_with(place.as_str()))
                && !of_a_kind(&file.path)
        };
        for file in files.iter().filter(searched) {
            let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
            if names(code, kind) {
                findings.push(format!(
                    "{}: names the kind of port `{kind}`; move this to one of {}, or extend `Peer` or \
                     `PortControl`",
                    file.path,
                    places.join(", ")
                ));
            }
        }
    }
    findings
}

/// The kind of port that a file defines: a folder of `port` with a `PortKind`, or a file of `control`.
fn kind(file: &File) -> Option<&str> {
    if let Some(name) = file.path.strip_prefix("crates/fleet/control/src/kinds/") {
        return name.strip_suffix(".rs").filter(|name| *name != "mod");
    }
    let (name, _) = file.path.strip_prefix("crates/switch/port/src/")?.split_once('/')?;
    file.text.contains("pub const KIND: PortKind").then_some(name)
}

/// Whether code has a path through the module `kind`.
fn names(code: &str, kind: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(&format!("{kind}::")).any(|(at, _)| !code[..at].ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_new_kind_needs_every_place_and_is_named_in_no_other() {
        let mut files = vec![
            file("ARCHITECTURE.md", &PLACES.join("\n")),
            file("crates/switch/port/src/lib.rs", "pub mod discard;"),
            file("crates/switch/port/src/kinds.rs", "discard::KIND"),
            file("crates/switch/port/src/discard/mod.rs", "pub const KIND: PortKind = null::NullTx;"),
            file("crates/fleet/control/src/kinds/mod.rs", ""),
        ];
        let missing = check(&files);
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].starts_with("crates/fleet/control/src/kinds/discard.rs: missing"), "{missing:?}");
        files.push(file("crates/fleet/control/src/kinds/discard.rs", ""));
        files.push(file("crates/switch/fabric/src/world.rs", "no_discard::KIND"));
        assert_eq!(check(&files), Findings::new());
        files.push(file("crates/fleet/cli/src/up.rs", "use ringway_port::discard::KIND;"));
        let named = check(&files);
        assert!(named.len() == 1 && named[0].starts_with("crates/fleet/cli/src/up.rs: names"), "{named:?}");
    }
}
