//! Every element is documented, in one form, and `docs/click-element-reference.md` says the same.
//! `RINGWAY_UPDATE=1 cargo test -p ringway-function --test reference` writes it anew.
#![allow(clippy::unwrap_used)]

use ringway_function::click::{reference, registry};
use std::path::Path;

#[test]
fn the_page_is_what_the_elements_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/click-element-reference.md");
    let page = reference::page();
    if std::env::var_os("RINGWAY_UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let wrong = page.lines().zip(found.lines()).position(|(new, old)| new != old);
    assert!(page == found, "line {:?}; with RINGWAY_UPDATE=1 this test writes it", wrong.map(|at| at + 1));
}

#[test]
fn every_element_is_documented() {
    let registry = registry();
    let mut wrong = Vec::new();
    for class in registry.iter() {
        let Some(text) = registry.documentation(class.name) else {
            wrong.push(format!("{}: no documentation", class.name));
            continue;
        };
        let mut needs = |good: bool, what: &str| {
            if !good {
                wrong.push(format!("{}: {what}", class.name));
            }
        };
        needs(text.starts_with(&format!("`{}", class.name)) && text.contains("`: "), "begins with a call");
        needs(text.contains("ports") || text.contains("Ports"), "says nothing of ports");
        let call = text.split('`').nth(1).unwrap_or_default();
        needs(!call.contains('(') || text.contains("rguments"), "says nothing of its arguments");
        // "Handlers as Queue's."
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let others = words.filter_map(|word| registry.documentation(word));
        let told: Vec<&str> = others.chain([text]).collect();
        for handler in (class.make)().handlers() {
            let found = handler.deprecated || told.iter().any(|text| text.contains(handler.name.as_ref()));
            needs(found, &format!("handler {} is missing", handler.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
