//! Prints a flattened configuration, as `click -qo-` does, and errors with columns. With a second file, only
//! the classes listed in that file are known.
use ringway_click_lang::{Environment, Source};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// The listed classes; without a list, all capitalized names.
struct Listed(Option<BTreeSet<String>>);

impl Environment for Listed {
    fn has_class(&self, name: &str) -> bool {
        match &self.0 {
            Some(names) => names.contains(name),
            None => name.starts_with(|first: char| first.is_ascii_uppercase()),
        }
    }

    fn has_package(&mut self, _: &str) -> bool {
        true
    }

    fn library(&mut self, _: &str, _: &str) -> Option<(String, Result<String, String>)> {
        None
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [file] => flat(file, None),
        [file, classes] => flat(file, Some(classes)),
        _ => Err("usage: flat FILE [CLASSES]".into()),
    }
    .unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

fn flat(file: &str, classes: Option<&str>) -> Result<ExitCode, String> {
    let read = |file: &str| std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
    let classes = classes.map(read).transpose()?;
    let mut environment = Listed(classes.map(|list| list.split_whitespace().map(String::from).collect()));
    let parsed = Source::new(&read(file)?, file).read(&mut environment);
    for diagnostic in &parsed.diagnostics {
        let column = diagnostic.landmark.as_ref().map_or(0, |landmark| landmark.column);
        eprintln!("{diagnostic} (column {column})");
    }
    if parsed.diagnostics.errors() > 0 {
        return Ok(ExitCode::FAILURE);
    }
    print!("{}", parsed.graph.unparse());
    Ok(ExitCode::SUCCESS)
}
