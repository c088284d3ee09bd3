//! Configurations and expected results, each in one readable file in `tests/golden`.
//!
//! A file has a description and then sections: `--- input`, and the expected results: `--- flat` and `---
//! errors` of the parser for routers, `--- tool` and `--- tool errors` of the tools' parser, and with `---
//! classes`, lines of `NAME PORTS PROCESSING FLOW`, `--- check`: errors of the graph, or the processing of
//! each element's ports. `UPDATE_GOLDEN=1` writes the actual results to the files; review the difference.
use ringway_click_lang::check::{ClassProperties, Classes, ElementPorts, PortMode, check};
use ringway_click_lang::tools::ToolSource;
use ringway_click_lang::{Anything, Diagnostics, Element, Graph, Limits, Severity, Source};
use std::collections::BTreeMap;
use std::path::Path;

/// A golden file: its description and its sections.
struct Golden {
    about: String,
    sections: Vec<(String, String)>,
}

impl Golden {
    fn parse(text: &str) -> Self {
        let mut golden = Golden { about: String::new(), sections: Vec::new() };
        for line in text.split_inclusive('\n') {
            match line.strip_prefix("--- ") {
                Some(name) => golden.sections.push((name.trim().to_string(), String::new())),
                None => golden.sections.last_mut().map_or(&mut golden.about, |(_, text)| text).push_str(line),
            }
        }
        golden
    }

    fn section(&self, name: &str) -> Option<&str> {
        self.sections.iter().find(|(other, _)| other == name).map(|(_, text)| text.as_str())
    }

    fn unparse(&self) -> String {
        let section = |(name, text): &(String, String)| format!("--- {name}\n{text}");
        self.about.clone() + &self.sections.iter().map(section).collect::<String>()
    }

    /// The actual sections.
    fn run(&self) -> Vec<(String, String)> {
        let input = self.section("input").expect("a golden file has an input");
        let source = Source::new(input, "f");
        let read = source.read(&mut Anything);
        let limits = Limits::default();
        let mut diagnostics = Diagnostics::new(limits.diagnostics);
        let tool =
            ToolSource { bytes: input.as_bytes(), file: "f", variables: &[], may_be_empty: true, limits };
        let router = tool.load(&mut Anything, &mut diagnostics).flatten(false, &mut diagnostics);
        let flat = |graph: &Graph, diagnostics: &Diagnostics| match diagnostics.errors() {
            0 => graph.unparse(),
            _ => String::new(),
        };
        let mut results = vec![
            ("flat", flat(&read.graph, &read.diagnostics)),
            ("errors", shown(&read.diagnostics)),
            ("tool", flat(&router.graph(), &diagnostics)),
            ("tool errors", shown(&diagnostics)),
        ];
        if let Some(classes) = self.section("classes") {
            results.push(("check", checked(&read.graph, classes)));
        }
        results.into_iter().map(|(name, text)| (name.to_string(), text)).collect()
    }
}

fn shown(diagnostics: &Diagnostics) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        let place = diagnostic.landmark.as_ref().map(|at| format!("{}:{}:{}: ", at.file, at.line, at.column));
        let warning = if diagnostic.severity == Severity::Warning { "warning: " } else { "" };
        for line in diagnostic.text.lines() {
            out += &format!("{}{warning}{line}\n", place.as_deref().unwrap_or_default());
        }
    }
    out
}

/// Class properties as listed in a golden file.
struct Listed<'a>(BTreeMap<&'a str, [&'a str; 3]>);

impl Classes for Listed<'_> {
    fn properties(&self, element: &Element) -> Option<ClassProperties<'_>> {
        let [ports, processing, flow] = *self.0.get(element.class.as_str())?;
        Some(ClassProperties { ports, processing, flow, flags: "" })
    }
}

fn checked(graph: &Graph, classes: &str) -> String {
    let class = |line| {
        let words: Vec<&str> = str::split_whitespace(line).collect();
        (words[0], [words[1], words[2], words[3]])
    };
    let classes = Listed(classes.lines().map(class).collect());
    let mut diagnostics = Diagnostics::new(100);
    let Some(ports) = check(graph, &classes, &Limits::default(), &mut diagnostics) else {
        return diagnostics.to_string();
    };
    let letter = |kind: &PortMode| match (kind.pull, kind.agnostic) {
        (false, false) => 'h',
        (false, true) => 'H',
        (true, false) => 'l',
        (true, true) => 'L',
    };
    let letters = |kinds: &[PortMode]| kinds.iter().map(letter).collect::<String>();
    let line = |(element, ports): (&Element, &ElementPorts)| {
        format!("{} {}/{}\n", element.name, letters(&ports.inputs), letters(&ports.outputs))
    };
    graph.elements.iter().zip(&ports).map(line).collect()
}

#[test]
fn golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 10, "golden files are missing");
    let mut wrong = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut golden = Golden::parse(&text);
        let mut kept: Vec<(String, String)> = golden.sections.clone();
        kept.retain(|(name, _)| matches!(name.as_str(), "input" | "classes"));
        kept.extend(golden.run().into_iter().filter(|(_, text)| !text.is_empty()));
        golden.sections = kept;
        let now = golden.unparse();
        if now != text {
            if update {
                std::fs::write(&path, &now).unwrap();
            }
            wrong.push(format!("{}:\n{now}", path.display()));
        }
    }
    assert!(wrong.is_empty() || update, "results differ from the files:\n{}", wrong.join("\n"));
}
