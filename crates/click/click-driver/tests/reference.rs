//! Every element is documented in the same form, and `docs/click-element-reference.md` is up to date.
//! `BLESS=1 cargo test -p ringway-click-driver --test integration reference::` regenerates it.
#![allow(clippy::unwrap_used)]

use ringway_click::{Class, HandlerInfo, Options, Recorder, Registry, Router};
use ringway_click_driver::click::{reference, registry};
use ringway_click_lang::{Anything, Source};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/click-element-reference.md");
    let page = reference::page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let same = page.lines().zip(found.lines()).take_while(|(new, old)| new == old).count();
    assert!(page == found, "{} differs in line {}; BLESS=1 writes it", path.display(), same + 1);
}

#[test]
fn every_element_is_documented() {
    let registry = registry();
    let mut wrong = Vec::new();
    for class in registry.iter() {
        let Some(text) = registry.documentation(class.name) else {
            wrong.push(format!("{}: begin its file with documentation, `//!`", class.name));
            continue;
        };
        let mut needs = |good: bool, what: &str| {
            if !good {
                wrong.push(format!("{}: {what}", class.name));
            }
        };
        let call = format!("`{}(ARGUMENTS)`: ", class.name);
        let begins = text.starts_with(&format!("`{}", class.name)) && text.contains("`: ");
        needs(begins, &format!("must begin with {call}"));
        needs(text.contains("ports") || text.contains("Ports"), "needs a line `Ports: ..`");
        let call = text.split('`').nth(1).unwrap_or_default();
        needs(!call.contains('(') || text.contains("rguments"), "needs a section `Arguments:`");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Handlers described at the top of the page.
const COMMON: [&str; 8] =
    ["name", "class", "config", "ports", "handlers", "scheduled", "tickets", "home_thread"];

/// Handlers of an element with the largest possible number of ports; of an unconfigured one if it needs a
/// device.
fn handlers(class: &Class, registry: &Registry) -> Vec<HandlerInfo> {
    let built = [false, true].into_iter().find_map(|pull| {
        let text = crate::configuration::configuration(class, pull, true, &[Vec::new()]);
        let graph = Source::new(&text, "config").read(&mut Anything).graph;
        Router::build(graph, registry, Options::simulated(1, Recorder::default(), &text)).ok()
    });
    match built {
        Some(router) => router.handlers(router.find("e")),
        None => (class.make)().handlers().iter().map(|handler| handler.info().clone()).collect(),
    }
}

/// Names of handlers; of several with numbers, one with `N`.
fn plain(name: &str) -> String {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if bare == name { name.into() } else { format!("{bare}N") }
}

fn without_brackets(text: &str) -> String {
    let mut depth = 0;
    let outside = |c: &char| {
        depth += i32::from(*c == '(');
        let outside = depth == 0;
        depth -= i32::from(*c == ')');
        outside
    };
    text.chars().filter(outside).collect()
}

/// The handlers named in a documentation, in a sentence such as "Handlers: `a`, `b VALUE` (read): what they
/// are; those of `Queue`".
fn documented(text: &str, registry: &Registry) -> BTreeSet<String> {
    let lines = text.replace("\n\n", "\0").replace('\n', " ").replace("...", "");
    let Some((_, listed)) = lines.split_once("andlers: ") else { return BTreeSet::new() };
    let listed = without_brackets(listed.split('\0').next().unwrap_or_default());
    let sentence = listed.split(". ").next().unwrap_or_default();
    let heads = sentence.split(';').map(|clause| clause.split(": ").next().unwrap_or_default());
    let (mut found, mut without) = (BTreeSet::new(), false);
    for (index, part) in heads.collect::<Vec<_>>().join(";").split('`').enumerate() {
        let words = part.split(' ');
        if index % 2 == 0 {
            without |= part.contains(" but ");
            continue;
        }
        for word in words {
            let others = registry.documentation(word).map(|other| documented(other, registry));
            match others {
                Some(others) => found.extend(others),
                None if without => without = !found.remove(&plain(word)),
                // Others are parameters.
                None if word.starts_with(|c: char| c.is_ascii_lowercase()) => {
                    found.insert(plain(word));
                }
                None => {}
            }
        }
    }
    found
}

#[test]
fn handlers_match_the_documentation() {
    let registry = registry();
    let mut wrong = Vec::new();
    for class in registry.iter() {
        let mut listed = documented(registry.documentation(class.name).unwrap_or_default(), &registry);
        let found = handlers(class, &registry);
        let mut missing = BTreeSet::new();
        for handler in found.iter().filter(|handler| !COMMON.contains(&&*handler.name)) {
            if !handler.deprecated && !listed.contains(&plain(&handler.name)) {
                missing.insert(&*handler.name);
            }
        }
        listed.retain(|name| !found.iter().any(|handler| plain(&handler.name) == *name));
        if !missing.is_empty() || !listed.is_empty() {
            wrong.push(format!(
                "{}: add {missing:?} to the line `Handlers: ..`, remove {listed:?} from it",
                class.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
