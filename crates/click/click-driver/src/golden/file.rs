//! The parts of a test file.
use super::Complaint;
use ringway_click_lang::near::proposal;

/// The sections, by the first word of their heading.
const SECTIONS: [&str; 9] =
    ["ports", "devices", "parameters", "configuration", "input", "output", "handlers", "chatter", "time"];
/// What begins a heading.
const HEADING: &str = "--- ";

/// Lines of a file.
#[derive(Clone, Debug)]
pub(super) struct Text {
    /// The file, in messages.
    pub(super) file: String,
    /// Number of the first line.
    pub(super) first: usize,
    pub(super) text: String,
}

/// A section of a test file.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// The first word of its heading.
    pub(super) name: String,
    /// The other words.
    pub(super) arguments: Vec<String>,
    /// Line of the heading.
    pub(super) line: usize,
    pub(super) body: Text,
}

impl Text {
    /// Its lines with their numbers, without blank ones and comments.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.text.lines().enumerate().map(|(index, line)| (self.first + index, line));
        numbered.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
    }

    pub(super) fn complaint(&self, line: usize, column: usize, what: impl Into<String>) -> Complaint {
        Complaint { file: self.file.clone(), line, column, what: what.into() }
    }
}

impl Section {
    /// A complaint about its heading.
    pub(super) fn wrong(&self, what: impl Into<String>) -> Complaint {
        self.body.complaint(self.line, 1, what)
    }

    /// Its lines as pairs `NAME=VALUE`.
    pub(super) fn pairs(&self) -> Result<Vec<(String, String)>, Complaint> {
        let pair = |(line, text): (usize, &str)| match text.split_once('=') {
            Some((name, value)) => Ok((name.trim().to_string(), value.trim().to_string())),
            None => Err(self.body.complaint(line, 1, "no `=`; write NAME=VALUE")),
        };
        self.body.lines().map(pair).collect()
    }
}

/// Splits a test file; the text before the first heading is a description.
pub(super) fn sections(file: &str, text: &str) -> Result<Vec<Section>, Vec<Complaint>> {
    let mut sections: Vec<Section> = Vec::new();
    let mut wrong = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let number = index + 1;
        let Some(heading) = line.strip_prefix(HEADING) else {
            if let Some(last) = sections.last_mut() {
                last.body.text.push_str(line);
            }
            continue;
        };
        let mut words = heading.split_whitespace().map(String::from);
        let name = words.next().unwrap_or_default();
        let body = Text { file: file.into(), first: number + 1, text: String::new() };
        let section = Section { name, arguments: words.collect(), line: number, body };
        wrong.extend(check(&section, &sections));
        sections.push(section);
    }
    if !sections.iter().any(|section| section.name == "configuration") {
        let at = Text { file: file.into(), first: 1, text: String::new() };
        wrong.push(at.complaint(1, 1, "no configuration; add the heading `--- configuration`"));
    }
    if wrong.is_empty() { Ok(sections) } else { Err(wrong) }
}

/// What is wrong with a heading.
fn check(section: &Section, before: &[Section]) -> Option<Complaint> {
    let Section { name, arguments, .. } = section;
    if !SECTIONS.contains(&name.as_str()) {
        let near = proposal(name, SECTIONS).unwrap_or_else(|| format!("use {}", SECTIONS.join(", ")));
        let column = HEADING.len() + 1;
        return Some(section.body.complaint(section.line, column, format!("no section '{name}'; {near}")));
    }
    let (least, most, form) = match name.as_str() {
        "input" | "output" => (1, 2, " PORT [FILE]"),
        "configuration" => (0, 1, " [FILE]"),
        "time" => (1, 1, " SECONDS"),
        _ => (0, 0, ""),
    };
    if !(least..=most).contains(&arguments.len()) {
        return Some(section.wrong(format!("write `--- {name}{form}`")));
    }
    let same = |other: &&Section| {
        other.name == *name
            && (name != "output" || other.arguments.first() == arguments.first())
            && name != "input"
    };
    let first = before.iter().find(same)?;
    Some(section.wrong(format!("the same heading as in line {}; join both", first.line)))
}
