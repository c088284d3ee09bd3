//! Embeds the sources of the Python package `ringway` into this crate.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const PACKAGE: &str = "../../../python/ringway";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={PACKAGE}");
    let package = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join(PACKAGE);
    let mut files = Vec::new();
    collect(&package, &mut files)?;
    files.sort();
    let line = |file: &PathBuf| {
        let name = Path::new("ringway").join(file.strip_prefix(&package).unwrap_or(file));
        format!("    ({:?}, include_str!({:?})),\n", name.display().to_string(), file.display().to_string())
    };
    let lines: String = files.iter().map(line).collect();
    let text = format!(
        "/// The package's files, and what is in them.\nconst SOURCES: &[(&str, &str)] = &[\n{lines}];\n"
    );
    fs::write(Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("sources.rs"), text)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|it| it == "py") {
            files.push(path);
        }
    }
    Ok(())
}
