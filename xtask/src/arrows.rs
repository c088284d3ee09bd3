//! Permitted dependencies between crates. Arrows point down only; "may use" is transitive.
use crate::Findings;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A crate and what it may use directly. A row stands below every row it names.
const HOUSE: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("spec", &["wire"]),
    ("bare", &[]),
    ("click-lang", &[]),
    ("mem", &[]),
    ("frame", &["wire", "mem"]),
    ("click", &["frame", "wire", "click-lang"]),
    ("netstack", &["frame", "wire"]),
    ("link", &["frame", "wire"]),
    ("ring", &["mem"]),
    ("elements", &["click", "link", "ring"]),
    ("virtq", &["mem"]),
    ("nic", &["mem", "frame", "ring", "wire"]),
    ("vhost-user", &[]),
    ("vfio-user", &[]),
    ("flow", &["wire"]),
    ("switch", &["flow", "frame", "spec", "wire"]),
    ("host", &["mem"]),
    ("port", &["host", "vhost-user", "vfio-user", "nic", "link", "virtq", "frame", "wire", "spec"]),
    ("ring-client", &["ring", "host"]),
    ("sockets", &["netstack", "ring-client", "host", "frame", "mem"]),
    ("direct-stack", &["netstack", "ring", "bare"]),
    ("direct", &["direct-stack", "host"]),
    ("preload", &[]),
    ("netmap-preload", &["ring-client", "host", "mem"]),
    ("pktgen", &["ring-client", "spec"]),
    ("stack-c", &["sockets", "netstack", "host"]),
    ("exec", &["direct", "ring", "sockets", "netstack", "link", "host", "frame", "mem", "wire"]),
    ("tiny", &["bare", "elements", "nic", "ring", "virtq", "mem", "wire"]),
    ("tiny-program", &["netstack", "tiny"]),
    ("vmm", &["ring-client", "host", "tiny", "vfio-user"]),
    ("click-driver", &["elements", "ring-client", "port"]),
    ("fabric", &["switch", "port", "spec", "click-driver"]),
    ("linux-guests", &["host"]),
    ("place", &["spec"]),
    ("scheduler", &["host", "place"]),
    ("control", &["fabric", "linux-guests", "scheduler"]),
    ("cli", &["control", "click-driver", "exec", "pktgen", "vmm"]),
];

/// Checks every crate's manifest against the house.
pub fn check(root: &Path) -> Findings {
    let allowed = closure();
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    let mut findings = differences(&rows(&page));
    let crates = crates(root);
    if crates.is_empty() {
        return vec!["crates: cannot be read".to_string()];
    }
    for path in crates {
        let (folder, name) = (root.join(&path), path.rsplit('/').next().unwrap_or_default());
        let Some(may_use) = allowed.get(name) else {
            findings.push(format!(
                "{path}: add its row to xtask/src/arrows.rs and to the table in ARCHITECTURE.md"
            ));
            continue;
        };
        let used = uses(&folder.join("Cargo.toml"));
        let sources = sources(&folder.join("src"));
        for used in &used {
            if !may_use.contains(used.as_str()) {
                findings.push(format!(
                    "{path}/Cargo.toml: may not use ringway-{used}; do without it, or \
                     change xtask/src/arrows.rs and the table in ARCHITECTURE.md"
                ));
            }
            if !sources.contains(&format!("ringway_{}", used.replace('-', "_"))) {
                findings.push(format!("{path}/Cargo.toml: ringway-{used} is not used; remove it"));
            }
        }
        for below in direct(name).iter().filter(|below| !used.iter().any(|used| used == *below)) {
            findings.push(format!("xtask/src/arrows.rs: {name} does not use {below}; remove the arrow"));
        }
    }
    findings
}

/// The folders of all crates: `crates/GROUP/NAME`, sorted.
pub fn crates(root: &Path) -> Vec<String> {
    let folders = |path: &str| -> Vec<String> {
        let entries = std::fs::read_dir(root.join(path)).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        folders.map(|entry| format!("{path}/{}", entry.file_name().to_string_lossy())).collect()
    };
    let mut crates: Vec<String> = folders("crates").iter().flat_map(|group| folders(group)).collect();
    crates.sort();
    crates
}

/// The crates that a crate may use directly.
fn direct(name: &str) -> &'static [&'static str] {
    HOUSE.iter().find(|(row, _)| *row == name).map_or(&[], |(_, direct)| direct)
}

/// All source files below a folder, one after the other.
fn sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let text = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => std::fs::read_to_string(path).unwrap_or_default(),
    };
    entries.map(|entry| text(entry.path())).collect()
}

/// The crates that each crate may use, directly or through others.
fn closure() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, direct) in HOUSE {
        all.insert(name, reached(direct, &all));
    }
    all
}

/// These crates, and those that they may use.
fn reached<'a>(direct: &[&'a str], all: &BTreeMap<&str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let further = direct.iter().filter_map(|below| all.get(below)).flatten();
    direct.iter().chain(further).copied().collect()
}

/// The rows of ARCHITECTURE.md's tables of crates: name, and the crates that it may use.
fn rows(page: &str) -> BTreeMap<&str, Vec<&str>> {
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<(&str, Vec<&str>)> {
    let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
    let name = cells.next()?.strip_suffix('`')?;
    let direct = cells.next()?.split(',').map(str::trim).filter(|name| *name != "-");
    HOUSE.iter().any(|(known, _)| *known == name).then(|| (name, direct.collect()))
}

/// Whether the page's tables permit the same dependencies.
fn differences(page: &BTreeMap<&str, Vec<&str>>) -> Findings {
    let mut of_page: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut findings = Findings::new();
    let allowed = closure();
    for (name, _) in HOUSE {
        let direct = page.get(name).map_or(&[][..], |direct| direct);
        let of_row = reached(direct, &of_page);
        if of_row != allowed[name] {
            let list = |all: &BTreeSet<&str>| match all.len() {
                0 => "-".to_string(),
                _ => all.iter().copied().collect::<Vec<_>>().join(", "),
            };
            findings.push(format!(
                "ARCHITECTURE.md: `{name}` may use {} there, and {} in xtask/src/arrows.rs; correct the row",
                list(&of_row),
                list(&allowed[name])
            ));
        }
        of_page.insert(name, of_row);
    }
    findings
}

/// The project's crates among a manifest's normal and build dependencies. Tests may use anything.
fn uses(manifest: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    ["dependencies", "build-dependencies"]
        .iter()
        .filter_map(|section| table.get(*section)?.as_table())
        .flat_map(|section| section.keys())
        .filter_map(|name| name.strip_prefix("ringway-").map(str::to_string))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crate_dependencies_have_no_cycle() {
        for (name, below) in closure() {
            assert!(!below.contains(name), "{name} uses itself");
        }
        let row = |name: &str| HOUSE.iter().position(|(other, _)| *other == name);
        for (name, direct) in HOUSE {
            for below in *direct {
                assert!(row(below) < row(name), "{below} must stand above {name} in the table");
            }
        }
    }

    #[test]
    fn a_row_of_the_page_that_differs_is_found() {
        let page = [
            "| `mem` | - | memory | |",
            "| `virtq` | mem | queues | |",
            "| `host` | - | calls | |",
            "| `x` | y |",
        ];
        let page = page.join("\n");
        let rows = rows(&page);
        assert_eq!(rows.len(), 3);
        let found = differences(&rows);
        assert!(found.iter().any(|text| text.contains("`host` may use - there, and mem")), "{found:?}");
        assert!(!found.iter().any(|text| text.contains("`virtq`")), "{found:?}");
    }

    #[test]
    fn permitted_dependencies_are_transitive() {
        let all = closure();
        assert!(all["cli"].contains("mem"));
        assert!(!all["switch"].contains("host"));
        assert!(!all["port"].contains("switch"));
    }
}
