//! The pages of the documentation: the index names each, every link between pages leads somewhere, and the program
//! prints the messages of the page about faults.
use crate::Findings;
use crate::text::File;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const INDEX: &str = "docs/README.md";
const FAULTS: &str = "docs/troubleshooting.md";

/// Checks the index, and the relative links of every page, their anchors included.
pub fn check(root: &Path, files: &[File]) -> Findings {
    let pages: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| file.path.ends_with(".md"))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let mut findings = missing_in_index(&pages);
    findings.extend(unknown_messages(pages.get(FAULTS).copied().unwrap_or_default(), files));
    for (page, text) in &pages {
        for (line, link) in links(text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.to_string() } else { resolved(page, path) };
            let text = pages.get(target.as_str());
            if text.is_none() && !root.join(&target).exists() {
                findings.push(format!("{page}:{line}: {link}: there is no {target}; correct the link"));
            } else if text.is_some_and(|text| !anchor.is_empty() && !anchors(text).contains(anchor)) {
                findings.push(format!(
                    "{page}:{line}: {link}: no heading of {target} is #{anchor}; correct the link"
                ));
            }
        }
    }
    findings
}

fn missing_in_index(pages: &BTreeMap<&str, &str>) -> Findings {
    let Some(index) = pages.get(INDEX) else {
        return vec![format!("{INDEX}: missing; it lists every page of docs/")];
    };
    let path = |link: &str| resolved(INDEX, link.split('#').next().unwrap_or_default());
    let listed: BTreeSet<String> = links(index).map(|(_, link)| path(link)).collect();
    let of_docs = |page: &&&str| page.starts_with("docs/") && **page != INDEX;
    let missing = pages.keys().filter(of_docs).filter(|page| !listed.contains(**page));
    missing.map(|page| format!("{INDEX}: does not link to {page}; add its row")).collect()
}

/// Messages in the first column of a page's tables that no crate has. `...` stands for words that differ.
fn unknown_messages(page: &str, files: &[File]) -> Findings {
    let source = |file: &&File| file.is_rust() && file.path.starts_with("crates/");
    let joined = |file: &File| {
        // A text may go on in the next line of the source.
        let parts: Vec<&str> = file.text.split("\\\n").map(str::trim_start).collect();
        parts.concat().replace("\\\"", "\"")
    };
    let sources: Vec<String> = files.iter().filter(source).map(joined).collect();
    let rows = page.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    let messages = rows.flat_map(|(index, line)| {
        let cell = line.split(" | ").next().unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(move |message| (index + 1, message))
    });
    let known = |part: &str| sources.iter().any(|source| source.contains(part));
    messages
        .filter(|(_, message)| !message.split("...").all(known))
        .map(|(line, message)| format!("{FAULTS}:{line}: no crate has the message `{message}`; correct it"))
        .collect()
}

/// The relative links of a page, outside code, with the numbers of their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    });
    prose.flat_map(|(index, line)| {
        // What lies between pairs of backticks is code.
        let quoted = |at: usize| line[..at].matches('`').count() % 2 == 1;
        let starts = line.match_indices("](").filter(move |(at, _)| !quoted(*at));
        let targets = starts.filter_map(|(at, _)| line[at + 2..].split(')').next());
        targets.filter(|target| !target.contains("://")).map(move |target| (index + 1, target))
    })
}

/// The path that a link of a page names, from the workspace's folder.
fn resolved(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a page's headings, as GitHub derives them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if code || title.len() == line.len() {
            continue;
        }
        let title = title.trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = [anchor.clone()].into_iter().chain(numbered).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Findings {
        let file = |(path, text): &(&str, &str)| File { path: path.to_string(), text: text.to_string() };
        check(Path::new("/nonexistent"), &pages.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn a_page_that_the_index_lacks_is_found() {
        let found = found(&[("docs/README.md", "[a](a.md)"), ("docs/a.md", ""), ("docs/b.md", "")]);
        assert_eq!(found, ["docs/README.md: does not link to docs/b.md; add its row"]);
    }

    #[test]
    fn a_message_that_no_crate_prints_is_found() {
        let source = "error(\"no fabric is up in {place}; \\\n      start one with \\\"up\\\"\")";
        let page = "| message | what |\n|---|---|\n\
                    | `no fabric is up in ...; start one with \"up\"` | `a` |\n\
                    | `no fabric was` | `b` |\n";
        let found = found(&[
            ("docs/README.md", "[faults](troubleshooting.md)"),
            (FAULTS, page),
            ("crates/a/src/lib.rs", source),
        ]);
        assert_eq!(
            found,
            ["docs/troubleshooting.md:4: no crate has the message `no fabric was`; correct it"]
        );
    }

    #[test]
    fn broken_links_are_found() {
        let a = "# A page: `it`\n[b](../b.md#two-words) [`c`](c.md) `[x](y)` [h](https://h/)\n\
                 ```\n[d](d.md)\n# not a heading\n```\n[e](#a-page-it) [f](#not-a-heading)\n\
                 ## Again\n## Again\n\
                 [g](#again-1) [i](#again-2)\n";
        let pages = [("docs/README.md", "[a](a.md#a-page-it)"), ("docs/a.md", a), ("b.md", "## Two words")];
        let found = found(&pages);
        let places: Vec<_> = found.iter().map(|finding| &finding[..finding.find(": ").unwrap()]).collect();
        assert_eq!(places, ["docs/a.md:2", "docs/a.md:7", "docs/a.md:10"], "{found:?}");
        assert!(found[0].contains("no docs/c.md") && found[1].contains("#not-a-heading"), "{found:?}");
    }
}
