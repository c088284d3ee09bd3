//! Collects the elements' documentation: the `//!` lines at the top of each file under `src` that declares a class.
//! Writes the contents of a slice of (class name, documentation).
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const FOLDER: &str = "src";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut files = Vec::new();
    collect(Path::new(FOLDER), &mut files)?;
    files.sort();
    let mut text = String::from("&[\n");
    for file in files {
        let source = std::fs::read_to_string(&file)?;
        if let Some(class) = class(&source) {
            writeln!(text, "    ({class:?}, {:?}),", documentation(&source))?;
        }
    }
    text.push_str("]\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out.join("documentation.rs"), text)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The name in `Class::new("NAME", ...)` of a file that declares a class.
fn class(source: &str) -> Option<&str> {
    let made = source.lines().position(|line| line.starts_with("pub static CLASS: Class"))?;
    let from: usize = source.split_inclusive('\n').take(made).map(str::len).sum();
    source[from..].split_once("Class::new(")?.1.trim_start().strip_prefix('"')?.split('"').next()
}

fn documentation(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    lines.join("\n")
}
