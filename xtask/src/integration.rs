//! Each file of integration tests runs: where a crate has `tests/integration.rs`, Cargo does not find the others.
use crate::Findings;
use crate::text::File;

/// Checks that each file beside a `tests/integration.rs` is one of its modules, or a test of the manifest.
pub fn check(files: &[File]) -> Findings {
    let programs = files.iter().filter_map(|file| Some((file, file.path.strip_suffix("integration.rs")?)));
    let programs = programs.filter(|(_, folder)| folder.ends_with("tests/"));
    programs
        .flat_map(|(program, folder)| {
            let manifest = format!("{}Cargo.toml", folder.strip_suffix("tests/").unwrap_or(folder));
            let manifest = files.iter().find(|file| file.path == manifest).map_or("", |file| &file.text);
            let names = files.iter().filter_map(move |file| {
                let name = file.path.strip_prefix(folder)?.strip_suffix(".rs")?;
                (name != "integration" && !name.contains('/')).then_some(name)
            });
            names
                .filter(|name| !program.text.lines().any(|line| line == format!("mod {name};")))
                .filter(|name| !manifest.contains(&format!("name = \"{name}\"")))
                .map(|name| format!("{folder}{name}.rs: does not run; add `mod {name};` to {}", program.path))
                .collect::<Findings>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_do_not_run_are_found() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            file("crates/x/Cargo.toml", "[[test]]\nname = \"alone\"\n"),
            file("crates/x/tests/integration.rs", "//! Tests.\n\nmod there;\n"),
            file("crates/x/tests/there.rs", ""),
            file("crates/x/tests/alone.rs", ""),
            file("crates/x/tests/lost.rs", ""),
            file("crates/x/tests/common/net.rs", ""),
            file("crates/y/tests/found.rs", ""),
        ];
        let found = check(&files);
        assert_eq!(
            found,
            ["crates/x/tests/lost.rs: does not run; add `mod lost;` to crates/x/tests/integration.rs"]
        );
    }
}
