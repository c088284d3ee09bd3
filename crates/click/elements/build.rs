//! Collects the classes, and their documentation: the `//!` lines at the top of each file under `src` that declares a
//! class. Writes a slice of the classes and one of (class name, documentation).
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const FOLDER: &str = "src";

/// The file, in a crate that has it, of rows `NAME = MODULE;`; the comments above a row are added to the documentation
/// of MODULE's class.
const ALIASES: &str = "aliases.rs";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut files = Vec::new();
    collect(Path::new(FOLDER), &mut files)?;
    files.sort();
    let (mut classes, mut texts) = (String::from("&[\n"), String::from("&[\n"));
    for file in files {
        let source = std::fs::read_to_string(&file)?;
        if let Some(class) = class(&source) {
            writeln!(classes, "    &{}::CLASS,", module(&file).ok_or("a file's name is not UTF-8")?)?;
            writeln!(texts, "    ({class:?}, {:?}),", documentation(&source))?;
        }
    }
    let rows = Path::new(FOLDER).join(ALIASES);
    if rows.exists() {
        texts.push_str(&aliases(&std::fs::read_to_string(rows)?)?);
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out.join("classes.rs"), classes + "]\n")?;
    std::fs::write(out.join("documentation.rs"), texts + "]\n")?;
    Ok(())
}

/// The path of a file's module in the crate.
fn module(file: &Path) -> Option<String> {
    let path = file.strip_prefix(FOLDER).ok()?.with_extension("");
    let names: Option<Vec<&str>> = path.iter().map(|name| name.to_str()).collect();
    Some(names?.join("::").trim_end_matches("::mod").to_owned())
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

/// The documentation of aliases.
fn aliases(source: &str) -> Result<String, Box<dyn Error>> {
    let (mut texts, mut note) = (String::new(), String::new());
    for line in source.lines() {
        if let Some(comment) = line.strip_prefix("    ///") {
            note.push_str(comment);
        } else if let Some((alias, module)) = row(line) {
            let file = Path::new(FOLDER).join(module.replace("::", "/")).with_extension("rs");
            let source = std::fs::read_to_string(file)?;
            let class = class(&source).ok_or_else(|| format!("{module} declares no class"))?;
            let text = documentation(&source).replacen(class, alias, 1);
            writeln!(texts, "    ({:?}, {:?}),", alias, format!("{text}\n\nThe same as `{class}`.{note}"))?;
            note.clear();
        }
    }
    Ok(texts)
}

/// The words of a row.
fn row(line: &str) -> Option<(&str, &str)> {
    let (alias, module) = line.strip_prefix("    ")?.strip_suffix(';')?.split_once(" = ")?;
    alias.chars().all(char::is_alphanumeric).then_some((alias, module))
}
