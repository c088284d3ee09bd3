//! Licences and sources of every dependency, from `cargo metadata`; `cargo deny` adds advisories.
use crate::Findings;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

/// Permitted licences of dependencies; the same as in deny.toml.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "0BSD",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// Its registry; none for the workspace's crates.
    source: Option<String>,
}

/// Checks the packages in Cargo.lock.
pub fn check(root: &Path) -> Findings {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(root)
        .output();
    let output = match output {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            return vec![format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim())];
        }
        Err(error) => return vec![format!("cargo metadata: {error}")],
    };
    match serde_json::from_slice::<Metadata>(&output) {
        Ok(metadata) => metadata.packages.iter().filter_map(judge).collect(),
        Err(error) => vec![format!("cargo metadata: {error}")],
    }
}

fn judge(package: &Package) -> Option<String> {
    let Package { name, version, license, source } = package;
    let source = source.as_deref()?;
    if !source.starts_with("registry+") {
        return Some(format!("{name} {version}: comes from {source}; take a released version"));
    }
    let licence = license.as_deref().unwrap_or("no licence");
    (!allowed(licence)).then(|| format!("{name} {version}: licence {licence}; choose another library"))
}

/// Whether an SPDX expression can be met with the allowed licences. `/` is the old way of writing `OR`.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = either(&tokens, &mut at);
    met && at == tokens.len()
}

fn either(tokens: &[&str], at: &mut usize) -> bool {
    let mut met = both(tokens, at);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(tokens, at);
    }
    met
}

fn both(tokens: &[&str], at: &mut usize) -> bool {
    let mut met = one(tokens, at);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(tokens, at);
    }
    met
}

fn one(tokens: &[&str], at: &mut usize) -> bool {
    let Some(first) = tokens.get(*at) else { return false };
    *at += 1;
    if *first == "(" {
        let met = either(tokens, at);
        let closed = tokens.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    if tokens.get(*at) == Some(&"WITH") {
        let exception = tokens.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        let whole = format!("{first} WITH {exception}");
        return ALLOWED.contains(&whole.as_str());
    }
    ALLOWED.contains(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for good in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(allowed(good), "{good}");
        }
        assert!(allowed("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"));
        for bad in
            ["GPL-3.0", "MIT AND GPL-3.0", "", "(MIT", "MIT WITH nothing", "(GPL-2.0 OR MPL-2.0) AND MIT"]
        {
            assert!(!allowed(bad), "{bad}");
        }
    }
}
