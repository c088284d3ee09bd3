//! Descriptions of elements from their own documentation, for `--elements` and for the reference page.
use super::registry;
use ringway_click::{Class, Console, Metadata, Registry};
use std::fmt::Write;

const HEAD: &str = "\
# Elements

Every element class that `ringway click` knows, by name. This page is made of the elements' own
documentation, which `ringway click --elements NAME` prints too; a test keeps it so.

An argument is given by its place or by its name (`Queue(CAPACITY 10)`). Codes are Click's: how many
inputs and outputs there are; whether they push (`h`), pull (`l`) or follow their surroundings (`a`);
and, if not every input may lead to every output, which do. Handlers that every element has: `name`,
`class`, `config`, `ports`, `handlers`; with a task also `scheduled`, `tickets`, `home_thread`.
";

/// Prints a list of all classes, or the documentation of some. Returns the exit status.
pub(super) fn print(registry: &Registry, classes: &[String], console: &mut impl Console) -> u8 {
    if classes.is_empty() {
        console.output(list(registry).as_bytes());
        return 0;
    }
    let mut status = 0;
    for (index, name) in classes.iter().enumerate() {
        match registry.find(name) {
            Some(class) => {
                let between = if index > 0 { "\n" } else { "" };
                console.output(format!("{between}{}", entry(registry, class)).as_bytes());
            }
            None => {
                console.chatter(&format!("unknown element class '{name}'; --elements alone lists all"));
                status = 1;
            }
        }
    }
    status
}

/// One line per class: its name and summary.
fn list(registry: &Registry) -> String {
    let mut text = String::new();
    for class in registry.iter() {
        let _ = writeln!(
            text,
            "{:<24} {}",
            class.name,
            summary(registry.documentation(class.name).unwrap_or(""))
        );
    }
    text
}

/// The text after the call in the first paragraph, without its final full stop.
fn summary(documentation: &str) -> String {
    let first = documentation.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    let summary = first.split_once("`: ").map_or(first.as_str(), |(_, summary)| summary);
    summary.trim_end_matches('.').to_string()
}

fn entry(registry: &Registry, class: &Class) -> String {
    format!("{}\n\n{}\n", registry.documentation(class.name).unwrap_or("Not documented."), codes(class))
}

fn codes(class: &Class) -> String {
    let mut text = format!("Codes: ports `{}`, processing `{}`", class.ports, class.processing);
    if class.flow != "x/x" {
        let _ = write!(text, ", flow `{}`", class.flow);
    }
    text.push('.');
    if class.live {
        text.push_str(" `config` may be written.");
    }
    if class.metadata == Metadata::Resolve {
        text.push_str(" Packets reach it with checksums filled and segments made.");
    }
    text
}

/// The element reference page.
pub fn page() -> String {
    let registry = registry();
    let mut text = HEAD.to_string();
    for class in registry.iter() {
        let _ = write!(text, "\n## {}\n\n{}", class.name, entry(&registry, class));
    }
    text
}
